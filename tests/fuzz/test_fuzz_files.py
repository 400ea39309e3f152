"""Damaged files of every kind that the library reads: a clear error or the right content, never a wrong number."""

import json
import math
import warnings

import pandas as pd
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flashtrace_book.claims.evidence import Evidence
from flashtrace_book.claims.rules import Missing
from flashtrace_book.manifest import read_models
from flashtrace_book.profiles import load_profile
from flashtrace_lib import FlashTrace, files
from flashtrace_lib.store import Store, StoreError
from flashtrace_lib.tasks.datasets import read_records, synthetic_records, task_examples
from flashtrace_lib.tasks.registry import TASKS
from flashtrace_lib.trace import Trace
from flashtrace_lib.viewer.trace_json import from_dict
from tests.oracles.tiny import tiny_model, tiny_sample

MANY = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
NASTY = st.sampled_from(["", "\u200b", "\u202eabc", "שלום", "\r\n", "\x00", "\ud7ff", "🦜" * 3, "x" * 100_000, "'\"\\"])
TEXT = NASTY | st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats(allow_nan=True) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
DAMAGE = st.tuples(st.sampled_from(["cut", "flip", "zero", "insert", "replace"]), st.floats(0, 1), st.integers(1, 255))


def damaged(raw, damage):
    """Bytes with one thing wrong with them; the place is a share of the length."""
    kind, share, value = damage
    at = min(int(share * len(raw)), len(raw) - 1)
    if kind == "cut":
        return raw[:at]
    if kind == "insert":
        return raw[:at] + bytes([value]) + raw[at:]
    if kind == "replace":
        return bytes([value]) * len(raw)
    return raw[:at] + (bytes([raw[at] ^ value]) if kind == "flip" else bytes(min(8, len(raw) - at))) + raw[at + (
        1 if kind == "flip" else 8) :]  # fmt: skip


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A merged store, its bytes and its records."""
    store = Store(tmp_path_factory.mktemp("store") / "results")
    for i in range(3):
        store.put(f"k{i}", {"name": f"flow {i}", "value": 0.1 * i + 0.3, "scores": [0.1 * i, 0.25, -1.5], "flag": i > 1,
                            "hops": [[0.5 * i] * 3, [1.0, 2.0, 3.0]], "n": i})  # fmt: skip
    store.compact()
    return store.path, store.path.read_bytes(), store.records()


def assert_right_or_refused(path, records):
    try:
        found = Store(path).records()
    except StoreError as error:
        assert str(path) in str(error) and "restore it" in str(error)
    else:
        pd.testing.assert_frame_equal(found, records)


@MANY
@given(DAMAGE)
def test_a_damaged_store_is_refused_or_right(stored, damage):
    path, raw, records = stored
    path.write_bytes(damaged(raw, damage))
    assert_right_or_refused(path, records)


def test_every_damaged_byte_of_the_footer_is_refused_or_right(stored):
    """The footer, where the names and types of the columns stand, has no checksum of its own in the format."""
    path, raw, records = stored
    length = int.from_bytes(raw[-8:-4], "little")
    refused = 0
    for at in range(len(raw) - 8 - length, len(raw), 9):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ (1 if at % 2 else 128)]) + raw[at + 1 :])
        assert_right_or_refused(path, records)
        try:
            len(Store(path))
        except StoreError:
            refused += 1
    assert refused > 30


@MANY
@given(DAMAGE)
def test_a_damaged_part_is_missing_or_right(tmp_path, damage):
    store = Store(tmp_path / "parts")
    store.put("a", {"scores": [0.1, 0.2], "name": "ρ"})
    part = store.parts / "a.parquet"
    raw, before = part.read_bytes(), store.get("a")
    part.write_bytes(damaged(raw, damage))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert store.get("a") in (None, before) and ("a" in store) == (store.get("a") is not None)


def same(found, value):
    """Equal, a nan to a nan; a list of whole numbers and others may come back as floats."""
    if isinstance(value, list):
        return len(found) == len(value) and all(map(same, found, value))
    return found == value or (value != value and found != found)


@MANY
@given(st.text(max_size=10), JSON)
def test_what_is_put_is_got_back_or_refused(tmp_path, key, value):
    store = Store(tmp_path / "odd")
    try:
        store.put(key, {"value": value})
    except ValueError as error:
        assert "key" in str(error) or "column value" in str(error)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Store(store.path).get(key)
    assert same(found["value"], value)


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
    at = data.draw(st.sampled_from([p for p in places(changed) if p]))
    inner = changed
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
    assert len(attribution.scores) == len(sample.prompt_ids) and all(len(hop.scores) == len(sample) for hop in
                                                                     attribution.hops)  # fmt: skip
    assert attribution.scores.isfinite().all() and all(hop.scores.isfinite().all() for hop in attribution.hops)
    assert all(isinstance(token, str) for token in sample.tokens or [])


@MANY
@given(DAMAGE)
@example(("cut", 0.0, 1))
def test_a_damaged_trace_file_is_refused_or_whole(traced, tmp_path, damage):
    path = tmp_path / "t.json"
    path.write_bytes(damaged(traced[1], damage))
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


LAPTOP = (files.root() / "notebooks" / "flashtrace_book" / "profiles" / "laptop.yaml").read_text(encoding="utf-8")
FILES = {"gsm8k": "answer", "math500": "solution", "morehopqa": "context", "hotpotqa": "supporting_facts"}


@settings(MANY, max_examples=120)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_odd_records_are_named_or_read(tmp_path, kind, data):
    record = json.loads(json.dumps(synthetic_records(kind, 1, 0)[0]))
    at = data.draw(st.sampled_from([p for p in places(record) if p]))
    inner = record
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = data.draw(JSON)
    path = tmp_path / TASKS[kind].files[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record)
    path.write_text(text + "\r\n" if path.suffix == ".jsonl" else f"[{text}]\r\n", encoding="utf-8", newline="")
    try:
        (found,) = task_examples(kind, None, source="folder", folder=tmp_path)
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


@MANY
@given(st.sampled_from(["", "ruler.", "reasoning.", "pilot.", "efficiency."]), st.data())
def test_odd_profiles_are_refused_by_name(tmp_path, section, data):
    known = yaml.safe_load(LAPTOP)
    inner = known[section[:-1]] if section else known
    key = data.draw(st.sampled_from(sorted(inner)))
    inner[key] = data.draw(JSON.filter(lambda v: "\x00" not in repr(v)))
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(known, allow_unicode=True), encoding="utf-8")
    try:
        profile = load_profile(path)
    except ValueError as error:
        assert "own.yaml" in str(error)
    else:
        assert profile.to_dict()


@MANY
@given(st.binary(max_size=80))
def test_any_bytes_are_a_profile_or_refused(tmp_path, raw):
    path = tmp_path / "own.yaml"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="own.yaml"):
        load_profile(path)


@MANY
@given(st.binary(max_size=60) | JSON.map(lambda v: json.dumps(v).encode()))
def test_a_damaged_list_of_models_is_named(tmp_path, raw):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path))
        (tmp_path / "smoke").mkdir(exist_ok=True)
        (tmp_path / "smoke" / "models.json").write_bytes(raw)
        try:
            assert isinstance(read_models("smoke"), dict)
        except ValueError as error:
            assert "models.json is damaged" in str(error)


@MANY
@given(DAMAGE)
def test_a_damaged_table_makes_no_claim_of_what_it_does_not_say(tmp_path, damage):
    columns = "metric,cell,difference,low,high,n\n"
    raw = (columns + "recovery,needles,0.05,0.04,0.07,12\n" + "recovery,chains,0.03,0.02,0.04,8\n").encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLASHTRACE_FIGURES_DIR", str(tmp_path))
        (tmp_path / "own").mkdir(exist_ok=True)
        (tmp_path / "own" / "ruler_paired_groups.csv").write_bytes(damaged(raw, damage))
        try:
            found = Evidence("own").difference("x", "ruler_paired_groups", cell="needles", metric="recovery")
        except Missing:
            return
        except ValueError as error:
            assert "ruler_paired_groups" in str(error) or "no interval" in str(error)
        else:
            assert math.isfinite(found.value)


def test_every_data_set_is_fuzzed_or_code():
    assert set(FILES) | {"math", "exercism"} == set(TASKS)
