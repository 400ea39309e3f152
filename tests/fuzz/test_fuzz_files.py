"""Damaged traces and records: a clear error or the right content, never a wrong number."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flashtrace_lib import FlashTrace, files
from flashtrace_lib.tasks.datasets import folder_records, read_records, task_examples
from flashtrace_lib.tasks.registry import TASKS
from flashtrace_lib.traced import Trace
from flashtrace_lib.viewer.trace_json import from_dict
from tests.oracles.tiny import tiny_model, tiny_sample

MANY = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
NASTY = st.sampled_from(["", "\u200b", "\u202eabc", "שלום", "\r\n", "\x00", "\ud7ff", "🦜" * 3, "x" * 100_000, "'\"\\"])
TEXT = NASTY | st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats(allow_nan=True) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6,
)  # fmt: skip
# The place, as a share of the length, how many bytes go there, and what takes their place.
DAMAGE = st.tuples(st.floats(0, 1), st.sampled_from([0, 1, 8, 10**9]), st.just(bytes(8)) | st.binary(max_size=8))


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """A trace as a JSON object, and its bytes."""
    sample = tiny_sample()
    sample.tokens = [f"t{i} " for i in range(len(sample))]
    result = Trace(sample, FlashTrace(hops=1).attribute(tiny_model(), sample), "tiny")
    path = result.to_json(tmp_path_factory.mktemp("trace") / "t.json")
    return json.loads(path.read_text()), path.read_bytes()


def places(data, at=()):
    """Path of every value in nested JSON, the first three entries of a list standing for all."""
    yield at
    items = data.items() if isinstance(data, dict) else enumerate(data[:3]) if isinstance(data, list) else ()
    for key, value in items:
        yield from places(value, (*at, key))


@settings(MANY, max_examples=150)
@given(st.data())
def test_a_changed_trace_is_refused_or_whole(traced, data):
    changed = json.loads(json.dumps(traced[0]))
    at, inner = data.draw(st.sampled_from([p for p in places(changed) if p])), changed
    for key in at[:-1]:
        inner = inner[key]
    if data.draw(st.booleans()):
        del inner[at[-1]]
    else:
        inner[at[-1]] = data.draw(JSON)
    try:
        sample, attribution, *_ = from_dict(changed)
    except ValueError as error:
        assert len(str(error)) > 10
        return
    assert len(attribution.scores) == len(sample.prompt_ids)
    assert all(len(hop.scores) == len(sample) for hop in attribution.hops)
    assert attribution.scores.isfinite().all() and all(hop.scores.isfinite().all() for hop in attribution.hops)
    assert all(isinstance(token, str) for token in sample.tokens or [])


@MANY
@given(DAMAGE)
@example((0.0, 10**9, b""))
def test_a_damaged_trace_file_is_refused_or_whole(traced, tmp_path, damage):
    path, raw, (share, gone, put) = tmp_path / "t.json", traced[1], damage
    at = int(share * len(raw))
    path.write_bytes(raw[:at] + put + raw[at + gone :])
    try:
        found = Trace.from_json(path)
    except ValueError as error:
        assert len(str(error)) > 10
    else:
        assert len(found.attribution.scores) == len(found.sample.prompt_ids)


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 100_000])
def test_endless_brackets_are_refused(tmp_path, deep):
    path = tmp_path / "deep.json"
    path.write_text(deep)
    for read in (read_records, Trace.from_json, files.read_json):
        with pytest.raises(ValueError, match="deep.json"):
            read(path)


RECORDS = Path(__file__).parents[1] / "records"


@settings(MANY, max_examples=120)
@given(st.sampled_from(sorted(set(TASKS) - {"exercism"})), st.data())
def test_odd_records_are_named_or_read(tmp_path, kind, data):
    record = json.loads(json.dumps(folder_records(kind, RECORDS)[1][0]))
    at, inner = data.draw(st.sampled_from([p for p in places(record) if p])), record
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = data.draw(JSON)
    path = tmp_path / TASKS[kind].files[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record)
    path.write_text(text + "\r\n" if path.suffix == ".jsonl" else f"[{text}]\r\n", encoding="utf-8", newline="")
    try:
        (found,) = task_examples(kind, None, folder=tmp_path)
    except ValueError as error:
        assert path.name in str(error) and "record 0" in str(error)
        return
    assert isinstance(found.prompt, str) and found.prompt and all(isinstance(a, str) for a in found.answers)
    assert all(0 <= a < b <= len(found.prompt) for a, b in found.evidence)


@MANY
@given(st.binary(max_size=60) | st.lists(JSON, max_size=3).map(lambda v: json.dumps(v).encode()))
@example(b"")
@example("\ufeff[{}]".encode())
def test_any_bytes_are_records_or_refused(tmp_path, raw):
    for name in ("r.json", "r.jsonl"):
        path = tmp_path / name
        path.write_bytes(raw)
        try:
            found = read_records(path)
        except ValueError as error:
            assert str(path) in str(error)
        else:
            assert found and all(isinstance(record, dict) for record in found)
