"""Many records at once: what is made, what is found again, and records that fail alone."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from flashtrace_lib import Trace, trace
from flashtrace_lib.__main__ import main
from flashtrace_lib.batch import Entry, file_name, trace_many
from flashtrace_lib.methods import Position
from flashtrace_lib.viewer.trace_json import schema
from tests.oracles.tiny_chat import EVIDENCE, PROMPT, RESPONSE, make_chat_model, make_tokenizer
from tests.support.hostile import HOSTILE

TALK = [{"role": "user", "content": "Hi. Is it 7?"}, {"role": "assistant", "content": "Hello. It is."}]
LINES = [
    {"id": "q1", "prompt": PROMPT, "response": RESPONSE, "output": "re:is (\\d+)", "input": EVIDENCE},
    {"id": "talk", "messages": TALK},
    {"prompt": "Which number?", "response": "The\u2028number is 7261.", "reasoning": "none"},
]


def write(*lines):
    text = "\n".join(line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines)
    Path("r.jsonl").write_text(text + "\n", encoding="utf-8")


def run(*arguments):
    return main(["trace", "--batch", "r.jsonl", "--out", "out", *arguments])


def stored(folder):
    return [json.loads(line) for line in (folder / "traces.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]


def test_each_record_is_what_a_trace_of_it_alone_is(folder, loaded, capsys):
    write(LINES[0], "", LINES[1], LINES[2])
    assert run("--hops", "2") == 0
    said = capsys.readouterr().out
    assert "3 records: 3 traced, 0 done before, 0 failed" in said and "traces: out/traces.jsonl" in said
    lines = stored(folder / "out")
    assert [line["id"] for line in lines] == ["q1", "talk", "record-3"]
    for line in lines:
        jsonschema.validate(line["trace"], schema())
    alone = trace(*loaded, PROMPT, RESPONSE, hops=2, output=re.compile(r"is (\d+)"), input=EVIDENCE)
    found = Trace.from_dict(lines[0]["trace"])
    assert found.attribution.scores.tolist() == alone.attribution.scores.tolist() and found.answer == "7261"
    alone.to_html("alone.html")
    assert (folder / "out" / "pages" / "q1.html").read_text() == Path("alone.html").read_text()
    assert Trace.from_dict(lines[1]["trace"]).answer == "Hello. It is."


def test_in_python_options_count_for_records_that_name_none(loaded, tmp_path):
    both = {"prompt": PROMPT, "response": "It is 7261. Bye now."}
    records = [both, {**both, "output": "Bye"}]
    entries = trace_many(*loaded, records, tmp_path, method=Position(), output="7261", reasoning=None)
    assert all(isinstance(entry, Entry) and entry.made and entry.page.exists() for entry in entries)
    found = [Trace.from_dict(line["trace"]) for line in stored(tmp_path)]
    assert [one.answer for one in found] == ["7261", "Bye"] and found[0].attribution.method == "position"
    with pytest.raises(ValueError, match="there are no records"):
        trace_many(*loaded, [], tmp_path)


def test_what_is_done_is_not_done_again(folder, capsys):
    write(*LINES)
    assert run() == 0
    before, page = stored(folder / "out"), folder / "out" / "pages" / "q1.html"
    shown, written = page.read_text(), page.stat().st_mtime_ns
    assert run() == 0 and stored(folder / "out") == before and page.stat().st_mtime_ns == written
    assert "3 records: 0 traced, 3 done before" in capsys.readouterr().out
    page.unlink()
    assert run() == 0 and page.read_text() == shown  # from its trace
    write({**LINES[0], "output": "auto"}, *LINES[1:])
    assert run() == 0 and "3 records: 1 traced, 2 done before" in capsys.readouterr().out
    assert run("--hops", "2") == 0  # a setting shapes them all
    assert "3 records: 3 traced, 0 done before" in capsys.readouterr().out


def test_another_model_or_template_makes_everything_again(loaded, tmp_path):
    model, tokenizer = loaded
    other = make_chat_model(tokenizer, rope_theta=5000.0, max_position_embeddings=2048)
    changed = make_tokenizer(tokenizer.chat_template.replace("<|start|>", "<|start|> "))
    pairs = (loaded, loaded, (other, tokenizer), (other, changed), (other, changed))
    made = [sum(entry.made for entry in trace_many(*pair, LINES, tmp_path / "out")) for pair in pairs]
    assert made == [3, 0, 3, 3, 0]


def test_an_interrupted_batch_goes_on_where_it_was(folder, capsys, monkeypatch):
    write(*LINES)
    with monkeypatch.context() as patch:
        whole = Trace.to_dict
        patch.setattr(Trace, "to_dict", lambda self: whole(self) if "7261" in self.answer else pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            run()
    file = folder / "out" / "traces.jsonl"
    assert [line["id"] for line in stored(folder / "out")] == ["q1"]
    file.write_text(file.read_text() + '{"id": "talk", "key": "12')  # and of the next one half a line
    assert run() == 0 and "3 records: 2 traced, 1 done before" in capsys.readouterr().out
    assert [line["id"] for line in stored(folder / "out")] == ["q1", "talk", "record-3"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("a text", "a record is an object with a prompt or messages"),
        ({"prompt": "  "}, "the prompt is empty"),
        ({"prompt": "a", "messages": TALK}, "a prompt or messages"),
        ({"prompt": "a", "respnse": "b"}, "and any of id, prompt"),
        ({"prompt": 7}, "prompt must be a text or a list of messages, got int"),
        ({"prompt": "a", "response": "b", "output": "Paris"}, "output: the text 'Paris' does not occur"),
        ({"prompt": "far too long " * 400, "response": "x"}, "the model reads 2048 at most"),
    ],
)
def test_a_record_that_fails_is_named_and_the_others_go_on(folder, capsys, record, message):
    write(LINES[2], json.dumps(record), LINES[1])
    assert run() == 1
    said = capsys.readouterr()
    assert re.search(f"^r.jsonl, record-2: .*{message}", said.err, flags=re.M) and "2 traced" in said.out
    assert ["error" in line for line in stored(folder / "out")] == [False, True, False]
    assert run() == 1 and "0 traced, 2 done before, 1 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"id": "a", "prompt": "x"}, {"id": "a", "prompt": ""}], "two records have the id 'a'"),
        (['{"prompt": "a'], "r.jsonl, line 1 is no JSON"),
        ([" "], "there are no records"),
    ],
)
def test_a_file_that_holds_no_records_is_named(folder, capsys, lines, message):
    write(*lines)
    assert run() == 2 and message in capsys.readouterr().err and not Path("out").exists()


def test_another_file_of_that_name_is_kept(folder, capsys):
    write(LINES[2])
    Path("out").mkdir()
    Path("out/traces.jsonl").write_text('{"mine": 1}\n')
    assert run() == 2 and "line 1 is not of a batch: name another folder" in capsys.readouterr().err
    assert Path("out/traces.jsonl").read_text() == '{"mine": 1}\n'


def test_unsafe_ids_stay_in_the_folder(folder):
    ids = ["../../evil", "/tmp/evil", "..", "a/b", "a-b", HOSTILE]
    write(*({"id": name, "prompt": "Which number?", "response": "It is 7."} for name in ids))
    assert run() == 0
    written = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert {str(path.parent) for path in written} == {".", "out", "out/pages"} and len(written) == len(ids) + 2
    assert [line["id"] for line in stored(folder / "out")] == ids
    for file in map(file_name, ids[:4]):
        assert re.fullmatch(r"[A-Za-z0-9-]+~[0-9a-f]{16}", file) and file_name(file) != file
