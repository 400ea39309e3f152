"""Many records at once: what is made, what is found again, what is refused, and where files go."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from flashtrace_book.cli import main
from flashtrace_lib import Trace, cli, trace
from flashtrace_lib.batch import Entry, trace_many
from flashtrace_lib.methods import Position
from flashtrace_lib.viewer.trace_json import schema
from tests.oracles.tiny_chat import EVIDENCE, PROMPT, RESPONSE, make_chat_model, make_tokenizer
from tests.support.trace_pages import HOSTILE

TALK = [{"role": "user", "content": "Hi. Is it 7?"}, {"role": "assistant", "content": "Hello. It is."}]
LINES = [
    {"id": "q1", "prompt": PROMPT, "response": RESPONSE, "output": "re:is (\\d+)", "input": EVIDENCE},
    {"id": "talk", "messages": TALK},
    {"prompt": "Which number?", "response": "The number is 7261.", "reasoning": "none"},
]


@pytest.fixture(scope="module")
def loaded():
    tokenizer = make_tokenizer()
    return make_chat_model(tokenizer), tokenizer


@pytest.fixture
def folder(tmp_path, monkeypatch, loaded):
    """An empty working folder in which every model is the tiny one; ``folder.loads`` counts how often it is loaded."""
    loads = []
    monkeypatch.setattr(cli, "load_model", lambda name, **_: loads.append(name) or loaded)
    monkeypatch.chdir(tmp_path)
    return tmp_path, loads


def write(path, *lines):
    text = "\n".join(line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines)
    Path(path).write_text(text + "\n", encoding="utf-8")


def run(*arguments):
    return main(["trace", "--batch", "r.jsonl", "--out", "out", *arguments])


def state(folder):
    """Time of writing of each trace and page, by name."""
    return {path.name: path.stat().st_mtime_ns for path in sorted((folder / "traces").iterdir())}


def summary(folder):
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))["records"]


# --- what is made -----------------------------------------------------------------------------------------------


def test_each_record_is_what_a_trace_of_it_alone_is(folder, loaded, capsys):
    write("r.jsonl", LINES[0], "", LINES[1], LINES[2])
    assert run("--hops", "2") == 0
    printed = capsys.readouterr()
    assert "3 records: 3 traced, 0 done before, 0 failed" in printed.out and "index: out/index.html" in printed.out
    out = folder[0] / "out"
    assert sorted(state(out)) == [f"{name}.{kind}" for name in ("q1", "record-4", "talk") for kind in ("html", "json")]
    given = {"output": re.compile(r"is (\d+)"), "input": EVIDENCE}
    alone = trace(*loaded, PROMPT, RESPONSE, hops=2, **given)
    stored = json.loads((out / "traces" / "q1.json").read_text(encoding="utf-8"))
    jsonschema.validate(stored, schema())
    found = Trace.from_json(out / "traces" / "q1.json")
    assert found.attribution.scores.tolist() == alone.attribution.scores.tolist() and found.answer == "7261"
    alone.to_html("alone.html")
    assert (out / "traces" / "q1.html").read_text() == Path("alone.html").read_text()
    entries = summary(out)
    assert [e["line"] for e in entries] == [1, 3, 4] and [e["error"] for e in entries] == [None] * 3
    assert entries[0]["evidence"] == "The secret number is 7261." and entries[0]["share"] == pytest.approx(1)
    assert entries[1]["prompt"] == "Hi. Is it 7?" and entries[1]["response"] == "Hello. It is."
    assert folder[1] == ["embedded"]


def test_a_response_that_is_missing_is_written_by_the_model(folder):
    write("r.jsonl", {"prompt": "Which number?", "reasoning": "none"})
    assert run("--max-new-tokens", "4", "--no-pages") == 0
    found = Trace.from_json(folder[0] / "out" / "traces" / "record-1.json")
    assert 1 <= found.sample.response[1] - found.sample.response[0] <= 4
    assert list(state(folder[0] / "out")) == ["record-1.json"]


def test_options_name_the_passages_of_records_that_name_none(folder):
    both = {"prompt": PROMPT, "response": "It is 7261. Bye now."}
    write("r.jsonl", both, {**both, "output": "Bye"})
    assert run("--output", "7261", "--reasoning", "none") == 0
    first, second = (Trace.from_json(folder[0] / "out" / "traces" / f"record-{k}.json") for k in (1, 2))
    assert first.answer == "7261" and second.answer == "Bye" and not second.sample.segments.has_reasoning


def test_in_python(loaded, tmp_path):
    entries = trace_many(*loaded, LINES, tmp_path / "out", method=Position(), output="auto", pages=False)
    assert all(isinstance(entry, Entry) and entry.made and entry.page is None for entry in entries)
    assert [entry.id for entry in entries] == ["q1", "talk", "record-3"]
    assert Trace.from_json(entries[0].json).attribution.method == "position"
    again = trace_many(*loaded, iter(LINES), tmp_path / "out", method=Position())
    assert [entry.made for entry in again] == [False] * 3 and all(entry.page.exists() for entry in again)
    with pytest.raises(ValueError, match="there are no records"):
        trace_many(*loaded, [], tmp_path / "out")


# --- what is done is found --------------------------------------------------------------------------------------


def test_what_is_done_is_not_done_again(folder, capsys):
    write("r.jsonl", *LINES)
    assert run() == 0
    before, out = state(folder[0] / "out"), folder[0] / "out"
    index = (out / "index.html").read_text()
    assert run() == 0 and state(out) == before and (out / "index.html").read_text() == index
    assert "3 records: 0 traced, 3 done before" in capsys.readouterr().out
    assert run("--hops", "2") == 0
    after = state(out)
    assert all(after[name] > before[name] for name in before)  # a setting shapes them all


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": PROMPT + "!"},
        {"response": RESPONSE + " Yes."},
        {"input": "auto"},
        {"output": "auto"},
        {"reasoning": "none"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_record_that_changed_is_made_again_and_no_other(folder, change):
    write("r.jsonl", *LINES)
    assert run() == 0
    before, out = state(folder[0] / "out"), folder[0] / "out"
    write("r.jsonl", {**LINES[0], **change}, *LINES[1:])
    assert run() == 0
    after = state(out)
    assert {name for name in after if after[name] != before[name]} == {"q1.json", "q1.html"}


def test_another_model_or_template_makes_everything_again(loaded, tmp_path):
    model, tokenizer = loaded
    other = make_chat_model(tokenizer, rope_theta=5000.0)
    changed = make_tokenizer(tokenizer.chat_template.replace("<|start|>", "<|start|> "))
    made = [
        sum(entry.made for entry in trace_many(*pair, LINES, tmp_path / "out", pages=False))
        for pair in (loaded, loaded, (other, tokenizer), (other, changed), (other, changed))
    ]
    assert made == [3, 0, 3, 3, 0]


def test_a_damaged_trace_is_made_again_and_a_lost_page_from_its_trace(folder):
    write("r.jsonl", *LINES)
    assert run() == 0
    out, before = folder[0] / "out", state(folder[0] / "out")
    page = (out / "traces" / "q1.html").read_text()
    damaged = out / "traces" / "talk.json"
    damaged.write_bytes(damaged.read_bytes()[:-200])
    (out / "traces" / "q1.html").unlink()
    assert run() == 0
    after = state(out)
    assert {name for name in after if after[name] != before[name]} == {"q1.html", "talk.html", "talk.json"}
    assert (out / "traces" / "q1.html").read_text() == page and Trace.from_json(damaged).answer == "Hello. It is."


def test_a_page_never_outlives_its_trace(folder, monkeypatch):
    write("r.jsonl", *LINES)
    assert run() == 0
    monkeypatch.setattr(Trace, "to_html", lambda *_: pytest.fail("killed"))
    write("r.jsonl", {**LINES[0], "output": "auto"}, *LINES[1:])
    with pytest.raises(pytest.fail.Exception):
        run()
    assert "q1.json" in state(folder[0] / "out") and "q1.html" not in state(folder[0] / "out")


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "a', r"the line is no JSON: Unterminated string.* \(column 12\)"),
        ("[" * 100_000, "the line is no JSON"),
        ('"a text"', "a record is an object such as"),
        ({"prompt": "  "}, "the prompt is empty"),
        ({"response": "x"}, "either a prompt or messages"),
        ({"prompt": "a", "messages": TALK}, "either a prompt or messages"),
        ({"prompt": 7}, "neither a text nor a list of messages"),
        ({"prompt": "a", "respnse": "b"}, "unknown field 'respnse': a record may have prompt"),
        ({"prompt": "a", "response": ""}, "the response is empty, or no text"),
        ({"prompt": "a", "response": ["b"]}, "the response is empty, or no text"),
        ({"prompt": "a", "id": ""}, "neither a text nor a whole number"),
        ({"prompt": "a", "id": True}, "neither a text nor a whole number"),
        ('{"prompt": "a", "id": "\\ud83e"}', "the id holds half a surrogate pair"),
        ({"prompt": "a", "output": "re:("}, "no regular expression"),
        ({"prompt": "a", "output": [1, 2, 3]}, "neither a passage in words nor a token range"),
        ({"prompt": "a", "response": "b", "output": "Paris"}, "output: the text 'Paris' does not occur"),
        ({"prompt": "a", "input": "Paris"}, "input: the text 'Paris' does not occur in the prompt 'a'"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "message 1 has the role 'wizard', which is none of"),
        ({"messages": [{"role": "user"}, *TALK]}, r"message 1 \(user\) has no content"),
        ({"messages": TALK, "response": "x"}, "drop one of them"),
    ],
)
def test_a_broken_record_is_named_and_the_others_go_on(folder, capsys, line, message):
    write("r.jsonl", LINES[2], line, LINES[1])
    assert run() == 1
    printed = capsys.readouterr()
    assert re.search(f"^r.jsonl line 2 .*{message}", printed.err, flags=re.M) and "2 traced" in printed.out
    assert [entry["error"] is None for entry in summary(folder[0] / "out")] == [True, False, True]
    assert len(state(folder[0] / "out")) == 4


def test_a_line_that_is_no_utf8_is_named(folder, capsys):
    Path("r.jsonl").write_bytes(
        b'\xef\xbb\xbf{"prompt": "Hi.", "response": "a\xe2\x80\xa8b."}\r\n{"prompt": "caf\xe9"}\n'
    )
    assert run() == 1
    assert "line 2 (record-2): the line is no UTF-8 text" in capsys.readouterr().err
    assert summary(folder[0] / "out")[0]["error"] is None  # a mark of byte order, a separator within a text


def test_what_only_the_model_can_tell_fails_alone(folder, capsys):
    long = {"prompt": "far too long " * 400, "response": "x"}
    write("r.jsonl", long, {"prompt": "a", "response": "b c", "output": "tokens:1:2"}, LINES[1])
    assert run() == 1
    errors = capsys.readouterr().err
    assert re.search(r"line 1 .*the model reads 512 at most", errors)
    assert re.search(r"line 2 .*\(1, 2\) is not a token range of the response", errors)
    assert summary(folder[0] / "out")[2]["error"] is None


def test_records_that_all_fail_load_no_model(folder, capsys):
    write("r.jsonl", "{", {"prompt": ""})
    assert run() == 1 and folder[1] == []
    assert "2 records: 0 traced, 0 done before, 2 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"id": "a", "prompt": "x"}, {"prompt": "y"}, {"id": "a", "prompt": ""}], r"lines 1 and 3 have the id 'a'"),
        ([{"id": 2, "prompt": "x"}, {"id": "2", "prompt": "x"}], r"lines 1 and 2 have the id '2'"),
        ([{"id": "record-2", "prompt": "x"}, {"prompt": "y"}], r"lines 1 and 2 have the id 'record-2'"),
        ([" "], "r.jsonl is empty"),
    ],
)
def test_ids_that_occur_twice_stop_before_a_model_is_loaded(folder, capsys, lines, message):
    write("r.jsonl", *lines)
    assert run() == 2 and folder[1] == []
    assert re.search(message, capsys.readouterr().err) and not Path("out").exists()


def test_a_folder_that_cannot_be_used_is_named_before_a_model_is_loaded(folder, capsys):
    write("r.jsonl", LINES[2])
    Path("out").mkdir()
    Path("out/index.html").write_text("mine")
    assert run() == 2 and "an index.html that no batch wrote" in capsys.readouterr().err
    assert Path("out/index.html").read_text() == "mine"
    assert run("--out", "r.jsonl") == 2 and "r.jsonl is a file" in capsys.readouterr().err
    assert run("--out", "/proc/out") == 2 and "cannot write /proc/out: /proc is not writable" in capsys.readouterr().err
    assert main(["trace", "--batch", "gone.jsonl", "--out", "o"]) == 2 and folder[1] == []
    assert "cannot read the records gone.jsonl: No such file" in capsys.readouterr().err


def test_a_full_disk_stops_the_batch(folder, capsys, monkeypatch):
    def full(self, path):
        raise OSError(28, "No space left on device", f".{path}.tmp")

    monkeypatch.setattr(Trace, "to_json", full)
    write("r.jsonl", *LINES)
    assert run() == 2 and "cannot write the trace of 'q1' into out: No space left" in capsys.readouterr().err


# --- the index --------------------------------------------------------------------------------------------------


def test_unsafe_ids_stay_in_the_folder(folder):
    ids = ["../../evil", "/tmp/evil", "..", "a/b", "a-b", HOSTILE]
    write("r.jsonl", *({"id": name, "prompt": "Which number?", "response": "It is 7."} for name in ids))
    assert run() == 0
    written = [path.relative_to(folder[0]) for path in folder[0].rglob("*") if path.is_file()]
    assert {str(path.parent) for path in written} == {".", "out", "out/traces"} and len(written) == 2 * len(ids) + 3
    assert [entry["id"] for entry in summary(folder[0] / "out")] == ids


def test_the_index_shows_texts_as_text_and_loads_nothing(folder):
    write("r.jsonl", {"id": HOSTILE, "prompt": HOSTILE, "response": f"Yes. {HOSTILE}"}, f'{{"prompt": "{HOSTILE[:8]}')
    assert run() == 1
    index = (folder[0] / "out" / "index.html").read_text(encoding="utf-8")
    assert "<script" not in index and "<img" not in index and "&lt;script&gt;" in index
    assert "default-src 'none'" in index and not re.search(r"https?://|@import|url\(", index) and "Not traced:" in index
    for link in re.findall(r'href="(traces/[^"]+)"', index):
        assert (folder[0] / "out" / link).exists()
