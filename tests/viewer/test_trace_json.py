"""The JSON of a trace: its schema, its way back, and what is refused."""

import json
from dataclasses import replace

import jsonschema
import pytest
import torch

from flashtrace_lib import FlashTrace, Trace, trace
from flashtrace_lib.methods import Position
from flashtrace_lib.viewer.trace_json import FORMAT, schema
from tests.oracles.tiny_chat import PROMPT, RESPONSE

THOUGHT = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nYes?"}
TALK = [{"role": "user", "content": "Hi."}, THOUGHT, {"role": "user", "content": "7?"}]


@pytest.fixture(scope="module")
def made(model, tok):
    return {
        "thinking": trace(model, tok, PROMPT, RESPONSE, hops=2),
        "direct": trace(model, tok, PROMPT, "It is 7261.", reasoning=None),
        "talk": trace(model, tok, TALK, "Yes. 7261 <script>.", system="Be brief."),
        "no hops": trace(model, tok, PROMPT, RESPONSE, method=Position()),
        "raw": trace(model, tok, PROMPT, RESPONSE, method=FlashTrace(hop_scale="raw")),
    }


@pytest.fixture(params=["thinking", "direct", "talk", "no hops", "raw"])
def result(made, request):
    return made[request.param]


def test_the_schema_is_a_schema_and_names_the_format():
    jsonschema.Draft202012Validator.check_schema(schema())
    assert schema()["properties"]["format"]["const"] == FORMAT and schema()["$id"].endswith(f":{FORMAT}")


def test_a_trace_fits_the_schema_and_comes_back(result, tmp_path):
    path = result.to_json(tmp_path / "new folder" / "t.json")
    stored = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(stored, schema())
    back = Trace.from_json(path)
    assert back.to_dict() == result.to_dict() == stored
    torch.testing.assert_close(back.attribution.scores, result.attribution.scores, atol=0, rtol=0)
    for a, b in zip(back.targets, result.targets, strict=True):
        assert a.span == b.span
        for hop, other in zip(a.attribution.hops, b.attribution.hops, strict=True):
            assert torch.equal(hop.scores, other.scores) and hop.target == other.target and hop.scale == other.scale
    assert back.top(5).equals(result.top(5)) and back.shares().equals(result.shares())
    assert back.sample.sentences == result.sample.sentences and back.response == result.response
    prompt = result.sample.segments.prompt
    assert back.sample.words(prompt) == result.sample.words(prompt)  # without the marks of earlier thoughts
    assert [p.name for p in path.parent.iterdir()] == ["t.json"]  # no temporary file is left
    assert back.to_html(tmp_path / "again.html").read_bytes() == result.to_html(tmp_path / "t.html").read_bytes()


def test_a_lone_surrogate_is_replaced(made, tmp_path):
    sample = made["direct"].sample
    odd = Trace(replace(sample, tokens=["\ud800", *sample.tokens[1:]]), made["direct"].attribution)
    assert Trace.from_json(odd.to_json(tmp_path / "t.json")).sample.tokens[0] == "?"
    assert "⟨U+D800⟩" in odd.to_html(tmp_path / "t.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1}, {"scores": "x"}, {"segments": {"prompt": [0, 1]}}, {"input_ids": [1.5, 2]}, {"extra": 1},
        {"messages": [{"role": "user"}]}, {"response": [1, 2, 3]}, {"flow": [-0.5]},
    ],
)  # fmt: skip
def test_the_schema_refuses_what_is_no_trace(made, change):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(made["thinking"].to_dict() | change, schema())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ([], "no trace of format"), ("<html>", "no JSON file"),
        ({"format": 1}, "no trace of format 2 .its format is 1"), ({"scores": [0.5]}, "1 scores where"),
        ({"flow": []}, "0 flow where 3 belong"), ({"segments": {}}, "damaged"),
        ({"tokens": ["x"]}, "one display string a token"), ({"response": [0, 2]}, "must hold the reasoning"),
    ],
)  # fmt: skip
def test_damaged_traces_are_refused(made, tmp_path, change, message):
    whole = made["thinking"].to_dict()
    (tmp_path / "t.json").write_text(json.dumps(whole | change) if isinstance(change, dict) else str(change))
    with pytest.raises(ValueError, match=message):
        Trace.from_json(tmp_path / "t.json")


def test_an_interrupted_write_leaves_the_old_file(made, tmp_path, monkeypatch):
    path = made["direct"].to_json(tmp_path / "t.json")
    before = path.read_bytes()
    monkeypatch.setattr("flashtrace_lib.files.os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    for write in (made["thinking"].to_json, made["thinking"].to_html):
        with pytest.raises(KeyboardInterrupt):
            write(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
