"""The tracer from the shell, on a tiny model."""

import io
import json
import re

import jsonschema
import pytest

from flashtrace_lib import Trace, load, report
from flashtrace_lib.__main__ import main
from flashtrace_lib.cli import make_method, read_prompt
from flashtrace_lib.methods import IFR, FlashTrace
from flashtrace_lib.text import build_sample
from flashtrace_lib.text.locate import parse_locator
from flashtrace_lib.viewer.trace_json import schema
from tests.oracles.tiny_chat import PROMPT, RESPONSE


@pytest.fixture
def folder(folder):
    """With a prompt, a response and a conversation."""
    (folder / "prompt.txt").write_text(PROMPT, encoding="utf-8")
    (folder / "response.txt").write_text(RESPONSE, encoding="utf-8")
    talk = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello. Bye."}]
    (folder / "talk.json").write_text(json.dumps({"messages": talk}))
    return folder


def run(*arguments):
    return main(["trace", *arguments])


def test_the_table_and_both_files(folder, capsys):
    arguments = ["--prompt", "prompt.txt", "--response", "response.txt", "--output", "re:is (\\d+)", "--hops", "2"]
    assert run(*arguments, "--top", "4", "--html", "t.html", "--json", "out/t.json") == 0
    printed = capsys.readouterr().out
    stored = json.loads((folder / "out" / "t.json").read_text(encoding="utf-8"))
    jsonschema.validate(stored, schema())
    assert stored["options"]["hops"] == 2 and len(stored["hops"]) == 3
    assert "<|" not in printed.split("rank")[1]  # words around a token are of its own message
    assert printed.startswith("flashtrace (hops=2) · ")
    assert "answer: 7261" in printed and "share of each hop's mass on the reasoning" in printed
    rows = re.findall(r"^ +(\d+) +\S+ +([\d.]+)% +(\d+) ", printed, flags=re.M)
    start = stored["segments"]["prompt"][0]
    words = [i for i in range(len(stored["scores"])) if stored["tokens"][start + i].strip()]
    order = sorted(words, key=lambda i: -stored["scores"][i])[:4]
    assert [(int(rank), int(at)) for rank, _, at in rows] == [(k + 1, start + i) for k, i in enumerate(order)]
    assert (folder / "t.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "page: t.html" in printed and "JSON: out/t.json" in printed


def test_tools_of_a_request_reach_the_template(folder):
    tools = [{"type": "function", "function": {"name": "lookup"}}]
    (folder / "asked.json").write_text(json.dumps({"messages": ["Hi."], "tools": tools}))
    assert read_prompt("asked.json") == (["Hi."], {"template_kwargs": {"tools": tools}})


def test_the_trace_is_kept_where_a_comparison_fails(folder, capsys):
    assert run("--prompt", "prompt.txt", "--response", "response.txt", "--json", "kept.json", "--compare", "at2") == 2
    assert "no weights" in capsys.readouterr().err and Trace.from_json(folder / "kept.json").answer


def test_an_answer_without_reasoning_that_the_model_writes(folder, capsys):
    assert run("--prompt", "prompt.txt", "--reasoning", "none", "--max-new-tokens", "5") == 0
    printed = capsys.readouterr().out
    assert "hop 0" in printed and "hop 1" not in printed and "mass on the reasoning" not in printed


def test_a_transcript_ends_with_its_answer_and_shows_roles(folder, capsys):
    assert run("--prompt", "talk.json", "--method", "ifr") == 0
    printed = capsys.readouterr().out
    assert "ifr · " in printed and "answer: Hello. Bye." in printed and "the whole answer only" in printed
    assert re.search(r"^user +\d+ +100.0%", printed, flags=re.M)


def test_the_format_and_an_output_by_its_place(folder, capsys):
    (folder / "response.txt").write_text("It is 7, I say 7.")
    arguments = ["--prompt", "prompt.txt", "--response", "response.txt", "--json", "t.json"]
    assert run(*arguments) == 0 and "told apart by: plain text\n" in (printed := capsys.readouterr().out)
    assert "note: The response marks no reasoning" in printed
    assert run(*arguments, "--output", "7", "--occurrence", "1") == 0 and "as given" in capsys.readouterr().out
    stored = Trace.from_json(folder / "t.json").sample
    assert "".join(stored.tokens[stored.response[0] : stored.segments.output[0]]).strip() == "It is"
    assert run(*arguments, "--occurrence", "1") == 2 and "--occurrence counts the places" in capsys.readouterr().err


def test_step_by_step_begins_the_turn_and_finds_the_answer(folder, capsys):
    (folder / "response.txt").write_text(" It is 7261.\nAnswer: 7261, yes")
    shared = ["--prompt", "prompt.txt", "--response", "response.txt", "--step-by-step", "--json", "t.json"]
    for more, answer in ([], "Answer: 7261, yes"), (["--output", "7261"], "7261"):
        assert run(*shared, *more) == 0
        assert f"answer: {answer}\n" in capsys.readouterr().out
        stored = json.loads((folder / "t.json").read_text(encoding="utf-8"))
        assert "The facts I need are:\n1. It is" in "".join(stored["tokens"])


def test_standard_input(folder, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"The number\r\nis 7261.\r\n")))
    assert run("--prompt", "-", "--response", "response.txt", "--no-template", "--json", "t.json") == 0
    assert "prompt" not in capsys.readouterr().err
    assert "".join(json.loads((folder / "t.json").read_text())["tokens"]).startswith("The number\r\nis 7261.<think>")


@pytest.mark.parametrize(("arguments", "message"), [
    (["--prompt", "gone.txt"], "cannot read the prompt file gone.txt: No such file"),
    (["--prompt", "."], "cannot read the prompt file"),
    (["--prompt", "empty.txt"], "the prompt file empty.txt is empty"), (["--prompt", "latin.txt"], "save it as UTF-8"),
    (["--prompt", "bad.json"], "is no JSON"), (["--prompt", "none.json"], "holds no list of messages"),
    (["--prompt", "prompt.txt", "--html", "."], "is no regular file"),
    (["--prompt", "prompt.txt", "--output", "re:("], "no regular expression"),
    (["--prompt", "prompt.txt", "--output", "tokens:1"], "write tokens:START:STOP"),
    (["--prompt", "prompt.txt", "--method", "ifr", "--hops", "2"], "'ifr' has no hops.* flashtrace"),
    (["--prompt", "prompt.txt", "--method", "ifr", "--best"], "ifr has no other setting"),
    ([], "the following arguments are required: --prompt"),
    (["--prompt", "prompt.txt", "--top", "0"], "--top: must be a whole number of at least 1, got '0'"),
    (["--prompt", "prompt.txt", "--max-new-tokens", "some"], "must be a whole number"),
    (["--prompt", "prompt.txt", "--html", "prompt.txt/t.html"], "prompt.txt is no folder"),
    (["--prompt", "prompt.txt", "--html", "t", "--json", "./t"], "both name t"),
    (["--prompt", "many.jsonl"], "many.jsonl holds many records"),
    (["--prompt", "prompt.txt", "--input", "Paris"], "input: the text 'Paris' does not occur in the prompt"),
    (["--prompt", "odd.json"], "the content of a user message is no text"),
])  # fmt: skip
def test_errors_say_what_to_do(folder, capsys, arguments, message):
    bad = {"empty.txt": b" \n", "latin.txt": b"caf\xe9", "bad.json": b"[{]", "none.json": b'{"messages": []}',
           "odd.json": b'[{"role": "user", "content": 7}]'}  # fmt: skip
    for name, text in bad.items():
        (folder / name).write_bytes(text)
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and re.search(message, error) and error.count("\n") == 1
    assert not list(folder.glob("*.html"))


@pytest.mark.parametrize(("arguments", "message"), [
    (["--prompt", "prompt.txt", "--html", "/proc/t.html"], "cannot write /proc/t.html: /proc is not writable"),
    (["--prompt", "hollow.json"], "message 1 (user), the one to answer, is empty"),
    (["--prompt", "wizard.json"], "message 1 has the role 'wizard', which is none of system, "),
    (["--prompt", "talk.json", "--response", "response.txt"], "the conversation ends with the assistant's message"),
    (["--prompt", "prompt.txt", "--hops", "17"], "--hops: 17 are too many, 16 at most"),
])  # fmt: skip
def test_what_can_be_known_is_said_before_the_model_is_loaded(folder, capsys, monkeypatch, arguments, message):
    monkeypatch.setattr(load, "load_model", lambda *_, **__: pytest.fail("a model was loaded"))
    (folder / "hollow.json").write_text('[{"role": "user"}]')
    (folder / "wizard.json").write_text(json.dumps([{"role": "wizard", "content": "Hi."}]))
    assert run(*arguments) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


@pytest.mark.parametrize("arguments", [
    ["--output", "re:(\\d+)\\. Bye\\.$"], ["--output", "tokens:LAST", "--reasoning", "So it is"],
    ["--input", "re:The (.*) is"],
])  # fmt: skip
def test_passages_beside_the_end_token_are_found(folder, loaded, arguments):
    last = len(build_sample(loaded[1], PROMPT, RESPONSE)) - 1  # the end token
    arguments = [text.replace("LAST", f"{last - 3}:{last}") for text in arguments]
    (folder / "ended.txt").write_text(RESPONSE + "<|end|>\n", encoding="utf-8")
    assert run("--prompt", "prompt.txt", "--response", "ended.txt", *arguments) == 0


def test_calls_of_tools_need_no_content(folder):
    call = {"type": "function", "function": {"name": "clock", "arguments": {}}}
    talk = [{"role": "user", "content": "When?"}, {"role": "assistant", "tool_calls": [call]}]
    talk.append({"role": "tool", "content": "Noon."})
    (folder / "tools.json").write_text(json.dumps(talk))
    assert run("--prompt", "tools.json", "--response", "response.txt", "--input", "Noon.") == 0


def test_hops_without_reasoning_are_said_to_change_nothing(folder, capsys):
    for hops, said in (("2", True), ("1", False)):
        assert run("--prompt", "talk.json", "--hops", hops) == 0
        assert ("further hops change nothing" in capsys.readouterr().out) == said


def test_a_token_is_shown_between_its_neighbours():
    tokens = ["The", " blue", " key", "\n", "opens", " ", "."]
    shown = [report._in_context(tokens, i) for i in range(len(tokens))]
    assert shown[0] == "[The] blue key⏎opens ." and shown[2] == "The blue [key]⏎opens ."
    assert shown[3] == "The blue key[⏎]opens ." and shown[5] == "The blue key⏎opens[ ]."
    assert report._in_context(["x" * 30, "y", "z" * 30], 1) == "x" * 24 + "[y]" + "z" * 24


def test_passages_and_methods_as_the_shell_names_them():
    named = {"auto": "auto", "none": None, "at 12:15": "at 12:15", "text:none": "none", "tokens:3:9": (3, 9)}
    assert {text: parse_locator(text) for text in named} == named and parse_locator("re:a+").pattern == "a+"
    assert make_method("flashtrace", 3) == FlashTrace(hops=3) and make_method("ifr", None) == IFR()
    assert make_method("flashtrace", None, best=True) == FlashTrace.best()
    assert make_method("flashtrace", 2, best=True) == FlashTrace.best(hops=2)


def test_help_names_every_option_and_every_command(capsys):
    with pytest.raises(SystemExit) as stop:
        run("--help")
    assert stop.value.code == 0 and "--reasoning" in capsys.readouterr().out
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"\n  {command} " in said for command in ("trace", "fetch", "bench", "book", "claims", "audit"))
    assert main([]) == 2
