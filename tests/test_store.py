"""The store survives crashes, corruption and concurrent writers."""

import errno
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from flashtrace_lib import store as store_module
from flashtrace_lib.fingerprints import fingerprint
from flashtrace_lib.store import Store, StoreError
from tests.environment import ROOT

RECORD = {
    "name": "flow ρ",
    "n": 3,
    "value": 0.1,
    "flagged": True,
    "nothing": None,
    "scores": torch.tensor([0.1, 0.2], dtype=torch.float32),
    "hops": [torch.ones(3), torch.zeros(3)],
    "grid": np.arange(4).reshape(2, 2),
    "spans": [[0, 1], [1, 4]],
    "empty": [],
}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results" / "ruler")


def test_round_trip(store):
    store.put("a", RECORD)
    record = store.get("a")
    assert record["key"] == "a" and record["name"] == "flow ρ" and record["n"] == 3
    assert record["value"] == 0.1 and record["flagged"] is True and record["nothing"] is None
    assert torch.equal(torch.tensor(record["scores"]), RECORD["scores"])
    assert record["hops"] == [[1.0] * 3, [0.0] * 3] and record["grid"] == [[0, 1], [2, 3]]
    assert record["spans"] == [[0, 1], [1, 4]] and record["empty"] == []
    assert "a" in store and "b" not in store and store.get("b") is None and len(store) == 1


def test_reading_creates_nothing(tmp_path):
    store = Store(tmp_path / "none" / "x.parquet")
    assert store.get("a") is None and len(store) == 0 and store.records().empty
    store.compact()
    assert not (tmp_path / "none").exists()


def test_compaction_keeps_every_record_and_merges_unlike_columns(store):
    store.put("b", {"x": None, "hops": [], "n": 1})
    store.put("a", {"x": 1.5, "hops": [torch.ones(2)], "n": 2, "late": "yes"})
    before = store.records()
    store.compact()
    assert [p.name for p in store.parts.glob("*.parquet")] == [] and store.path.exists()
    after = store.records()
    assert before.to_dict("records")[0] == after.to_dict("records")[0]
    assert after["key"].tolist() == ["a", "b"]
    assert store.get("b")["hops"] == [] and store.get("b")["x"] is None and store.get("b")["late"] is None
    store.put("c", {"x": 2})
    store.compact()
    assert store.records()["key"].tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    "first, second, types",
    [(1, "one", "int64 and string"), ([1.0], [[1.0]], "list<item: double>"), (True, "yes", "bool and string")],
)
def test_a_column_has_one_type(store, first, second, types):
    store.put("a", {"x": None, "n": 1})
    store.put("b", {"x": first})
    for state in ("parts", "merged"):
        for writer in (store, Store(store.path)):  # one that wrote the records, and one that has not read any
            with pytest.raises(ValueError, match=rf"column x holds .*{types}"):
                writer.put("c", {"x": second})
        assert "c" not in store and len(store.records()) == 2, state
        store.compact()
    store.put("d", {"x": None, "n": 2.5})
    assert store.records()["n"].dropna().tolist() == [1.0, 2.5]


def test_writers_that_could_not_see_each_other_are_named(store):
    other = Store(store.path)
    store.put("a", {"x": 1})
    other._schema = store_module.pa.schema([])  # it had looked before the record was there
    other.put("b", {"x": "one"})
    for read in (store.records, store.compact):
        with pytest.raises(StoreError, match="ruler.parquet cannot be merged: column x holds int64 and string"):
            read()
    assert store.get("a")["x"] == 1 and store.get("b")["x"] == "one"


def test_newer_part_wins_and_is_counted_once(store):
    store.put("a", {"x": 1})
    store.compact()
    store.put("a", {"x": 2})
    assert store.get("a")["x"] == 2 and len(store) == 1 and store.records()["x"].tolist() == [2]
    store.compact()
    assert store.get("a")["x"] == 2 and len(store) == 1


def test_crash_while_writing_leaves_the_old_record(store, monkeypatch):
    store.put("a", {"x": 1})
    monkeypatch.setattr(store_module.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        store.put("a", {"x": 2})
    monkeypatch.undo()
    assert store.get("a")["x"] == 1
    assert len(list(store.parts.iterdir())) == 2  # the part and the lock: no temporary file


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"PAR1 not really"])
def test_corrupt_part_is_missing_with_a_warning(store, damage):
    store.put("a", {"x": 1})
    store.put("b", {"x": 2})
    part = store.parts / "a.parquet"
    part.write_bytes(damage(part.read_bytes()))
    with pytest.warns(UserWarning, match="a.parquet is damaged.*counts as missing"):
        assert "a" not in store
    with pytest.warns(UserWarning, match="damaged"):
        assert store.records()["x"].tolist() == [2]
    with pytest.warns(UserWarning, match="damaged"):
        store.compact()
    store.put("a", {"x": 3})  # recomputed
    store.compact()
    assert store.records()["x"].tolist() == [3, 2]


def test_part_under_a_wrong_name_is_missing(store):
    store.put("a", {"x": 1})
    (store.parts / "a.parquet").rename(store.parts / "b.parquet")
    with pytest.warns(UserWarning, match="does not hold the one record"):
        assert store.get("b") is None


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b[:40] + b"\xff" + b[41:]])
def test_corrupt_merged_file_is_an_error_that_names_it(store, damage):
    store.put("a", {"x": list(range(100))})
    store.compact()
    store.path.write_bytes(damage(store.path.read_bytes()))
    with pytest.raises(StoreError, match="ruler.parquet is damaged.*restore it from version control"):
        Store(store.path).get("a")


def test_foreign_parquet_is_refused(tmp_path):
    import pandas as pd

    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(StoreError, match="no key column"):
        Store(tmp_path / "other").records()


def test_change_by_another_process_is_seen(store):
    store.put("a", {"x": 1})
    store.compact()
    assert store.get("a")["x"] == 1
    other = Store(store.path)
    other.put("b", {"x": 2})
    other.compact()
    assert store.get("b")["x"] == 2


@pytest.mark.parametrize("key", ["", "a/b", "../a", ".hidden", "x" * 121])
def test_unsafe_key_is_refused(store, key):
    with pytest.raises(ValueError, match="file name"):
        store.put(key, {})


def test_unstorable_values_are_named(store):
    with pytest.raises(ValueError, match="column meta holds a dict"):
        store.put("a", {"meta": {}})
    with pytest.raises(ValueError, match="column thing cannot be stored"):
        store.put("a", {"thing": object()})
    assert len(store) == 0


VALUE = {"b": [1, 2.5, None, True], "a": ("x", {"y": "ü"})}
WRITER = (
    f"""
import sys
from flashtrace_lib.store import Store
from flashtrace_lib.fingerprints import fingerprint
store, name = Store(sys.argv[1]), sys.argv[2]
print(fingerprint({VALUE!r}), flush=True)
"""
    + """
for i in range(int(sys.argv[3])):
    store.put(f"{name}-{i:04d}", {"x": i, "scores": [float(i)] * 50})
    if i % 7 == 3:
        store.compact()
"""
)


def start_writer(path, name, count):
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=os.environ)


def test_concurrent_writers_and_a_killed_one_lose_nothing(store):
    doomed, steady = start_writer(store.path, "doomed", 100_000), start_writer(store.path, "steady", 40)
    for process in (doomed, steady):  # a hash is the same in every process
        assert process.stdout.readline().decode().strip() == fingerprint(VALUE)
    assert steady.wait(60) == 0
    deadline = time.time() + 30
    while not any(key.startswith("doomed") for key in store.records()["key"]) and time.time() < deadline:
        time.sleep(0.02)
    doomed.send_signal(signal.SIGKILL)
    doomed.wait()
    keys = store.records()["key"].tolist()
    assert len(keys) == len(set(keys))
    assert sum(key.startswith("steady") for key in keys) == 40
    written = sorted(key for key in keys if key.startswith("doomed"))
    assert written == [f"doomed-{i:04d}" for i in range(len(written))] and written
    store.compact()  # the dead writer holds no lock, and its temporary files go
    assert store.records()["key"].tolist() == keys
    assert [path.name for path in store.parts.iterdir()] == [".lock"]


def test_a_cached_record_is_computed_once_and_always_read_from_the_disk(store):
    calls = []

    def compute():
        calls.append(1)
        return {"spans": ((0, 1), (1, 4)), "scores": torch.ones(2)}

    first = store.cached("a", compute)
    assert first == store.cached("a", compute) == Store(store.path).cached("a", compute) == store.get("a")
    assert first == {"spans": [[0, 1], [1, 4]], "scores": [1.0, 1.0], "key": "a"} and len(calls) == 1


def test_a_cached_record_that_cannot_be_computed_leaves_nothing(store):
    with pytest.raises(ZeroDivisionError):
        store.cached("a", lambda: {"x": 1 / 0})
    assert "a" not in store and store.cached("a", lambda: {"x": 1})["x"] == 1


def test_an_error_of_the_system_is_no_damage(store, monkeypatch):
    store.put("a", {"x": 1})
    store.compact()

    def fails(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("flashtrace_lib.parquet_files.pq.read_table", fails)
    with pytest.raises(OSError, match="Too many open files") as caught:
        Store(store.path).records()
    assert not isinstance(caught.value, StoreError)
