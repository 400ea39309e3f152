"""The store survives kills, damage and concurrent writers."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
import torch

from flashtrace_lib.fingerprints import fingerprint
from flashtrace_lib.store import Store
from tests.environment import ROOT

RECORD = {
    "name": "flow ρ", "n": 3, "value": 0.1, "flagged": True, "nothing": None, "empty": [], "one": np.float32(0.5),
    "scores": torch.tensor([0.1, 0.2], dtype=torch.float32), "half": torch.tensor([0.5], dtype=torch.bfloat16),
    "hops": [torch.ones(3), np.zeros(3)], "grid": np.arange(4).reshape(2, 2), "spans": [[0, 1], (1, 4)],
}  # fmt: skip


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results" / "ruler")


def test_round_trip(store):
    store.put("a", RECORD)
    for reader in (store, Store(store.path)):
        record = reader.get("a")
        assert record["key"] == "a" and record["name"] == "flow ρ" and record["n"] == 3
        assert record["value"] == 0.1 and record["flagged"] is True and record["nothing"] is None
        assert torch.equal(torch.tensor(record["scores"]), RECORD["scores"]) and record["half"] == [0.5]
        assert record["hops"] == [[1.0] * 3, [0.0] * 3] and record["grid"] == [[0, 1], [2, 3]]
        assert record["spans"] == [[0, 1], [1, 4]] and record["empty"] == [] and record["one"] == 0.5
        assert "a" in reader and "b" not in reader and reader.get("b") is None and len(reader) == 1


def test_reading_creates_nothing(tmp_path):
    store = Store(tmp_path / "none" / "x")
    assert store.get("a") is None and len(store) == 0 and store.records().empty and "a" not in store
    store.compact()
    assert not (tmp_path / "none").exists()


def test_the_last_record_of_a_key_counts_and_compacting_drops_the_others(store):
    store.put("b", {"x": None, "hops": [], "n": 1})
    store.put("a", {"x": 1.5, "hops": [torch.ones(2)], "n": 2, "late": "yes"})
    store.put("b", {"x": 2.5, "hops": [], "n": 1})
    other = Store(store.path)
    before, size = other.records(), store.path.stat().st_size
    assert before["key"].tolist() == ["a", "b"] and before["x"].tolist() == [1.5, 2.5]
    assert before["late"].isna().tolist() == [False, True]
    store.compact()
    assert store.path.stat().st_size < size
    for reader in (store, other):  # one that had read the former file
        assert reader.records().equals(before) and len(reader) == 2
    other.put("c", {"x": 2})
    assert store.records()["key"].tolist() == ["a", "b", "c"] and store.get("b")["x"] == 2.5


@pytest.mark.parametrize("damage", [b"not a record", b"1234abcd a {}", b"\xff\x00"])
def test_a_damaged_line_is_missing_with_a_warning(store, damage):
    for key, x in (("a", 1), ("b", 2), ("c", 3)):
        store.put(key, {"x": x})
    lines = store.path.read_bytes().splitlines()
    store.path.write_bytes(b"\n".join([lines[0], damage, lines[2]]) + b"\n")
    with pytest.warns(UserWarning, match="ruler.jsonl has a damaged line at byte .* computed again"):
        assert Store(store.path).records()["x"].tolist() == [1, 3]
    with pytest.warns(UserWarning, match="damaged"):
        again = Store(store.path)
        assert "b" not in again
    again.put("b", {"x": 2})
    again.compact()
    assert Store(store.path).records()["x"].tolist() == [1, 2, 3]


def test_a_flipped_bit_is_noticed(store):
    store.put("a", {"x": 1, "scores": list(range(100))})
    data = store.path.read_bytes()
    for place in (3, 9, 20, 60):
        store.path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.warns(UserWarning, match="damaged"):
            assert Store(store.path).get("a") is None


def test_a_line_that_a_killed_writer_left_is_taken_off_by_the_next(store, recwarn):
    store.put("a", {"x": 1})
    whole = store.path.read_bytes()
    for left in (whole[: len(whole) // 2], b"x" * 70_000):
        store.path.write_bytes(whole + left)
        assert Store(store.path).records()["x"].tolist() == [1]
        Store(store.path).put("b", {"x": 2})
        assert Store(store.path).records()["x"].tolist() == [1, 2] and store.path.read_bytes().startswith(whole)
    assert not recwarn.list


def test_threads_may_share_one(store, request):
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)

    def work(name):
        for i in range(150):
            store.get("none")
            store.put(f"{name}-{i}", {"x": i})

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for step in ("start", "join"):
        for thread in threads:
            getattr(thread, step)()
    assert len(Store(store.path)) == len(store) == 300 and b"\0" not in store.path.read_bytes()


def test_a_file_in_the_place_of_the_one_that_was_read_is_read_anew(store):
    for key in "abc":
        store.put(key, {"who": key})
    assert len(store) == 3
    turned = b"".join(store.path.read_bytes().splitlines(keepends=True)[::-1])
    store.path.write_bytes(turned)  # the same size and inode, as an inode that is used again
    assert [store.get(key)["who"] for key in "abc"] == ["a", "b", "c"]
    store.path.write_bytes(turned.splitlines(keepends=True)[1] + b" " * 99)
    assert store.records()["who"].tolist() == ["b"] and store.get("a") is None


@pytest.mark.parametrize("key", ["", "a/b", "a b", ".hidden", "x" * 121, "a\n"])
def test_an_unfit_key_is_refused(store, key):
    with pytest.raises(ValueError, match="is none of a store"):
        store.put(key, {})


def test_unstorable_values_are_named(store):
    with pytest.raises(ValueError, match="column thing cannot be stored"):
        store.put("a", {"thing": object()})
    assert len(store) == 0


VALUE = {"b": [1, 2.5, None, True], "a": ("x", {"y": "ü"})}
WRITER = f"""
import sys
from flashtrace_lib.store import Store
from flashtrace_lib.fingerprints import fingerprint
store, name = Store(sys.argv[1]), sys.argv[2]
print(fingerprint({VALUE!r}), flush=True)
for i in range(int(sys.argv[3])):
    store.put(f"{{name}}-{{i:04d}}", {{"x": i, "scores": [float(i)] * 50}})
    if i % 7 == 3:
        store.compact()
"""


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
    store.compact()  # the dead writer holds no lock
    assert Store(store.path).records()["key"].tolist() == keys
    assert sorted(path.name for path in store.path.parent.iterdir() if ".tmp" not in path.name) == [
        "ruler.jsonl", "ruler.lock"
    ]  # fmt: skip


def test_a_cached_record_is_computed_once_and_always_read_from_the_disk(store):
    calls = []

    def compute():
        calls.append(1)
        return {"spans": ((0, 1), (1, 4)), "scores": torch.ones(2)}

    first = store.cached("a", compute)
    assert first == store.cached("a", compute) == Store(store.path).cached("a", compute) == store.get("a")
    assert first == {"spans": [[0, 1], [1, 4]], "scores": [1.0, 1.0], "key": "a"} and len(calls) == 1
    with pytest.raises(ZeroDivisionError):
        store.cached("b", lambda: {"x": 1 / 0})
    assert "b" not in store and store.cached("b", lambda: {"x": 1})["x"] == 1
