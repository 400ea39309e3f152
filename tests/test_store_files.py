"""Parts of a store are merged into files, and a full file is followed by another: nothing is lost on the way."""

import errno
import os
from pathlib import Path

import pytest

from flashtrace_lib import store as store_module
from flashtrace_lib.store import FROZEN, Store, StoreError, names_in


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results" / "ruler")


def test_compacting_where_nothing_can_be_written_leaves_the_parts(store, monkeypatch):
    store.put("a", {"x": 1})

    def refuse_with(number):
        def refused(table, path):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(store_module, "write_table", refused)

    refuse_with(errno.EROFS)
    with pytest.warns(UserWarning, match="is not merged"):
        store.compact()
    assert store.records()["x"].tolist() == [1] and list(store.parts.glob("*.parquet"))
    refuse_with(errno.ENOSPC)  # no space left is no such folder
    with pytest.raises(OSError):
        store.compact()


def test_a_full_file_is_left_as_it_is(store, monkeypatch):
    monkeypatch.setattr(store_module, "FULL", 1)
    for x in range(4):  # each merge finds the file before it full
        store.put("a", {"x": x})
        store.put(f"b{x}", {"x": 10 + x})
        before = {path: path.read_bytes() for path in (store.path, *store.more.glob("*.parquet")) if path.exists()}
        store.compact()
        assert all(path.read_bytes() == data for path, data in before.items())
    assert [path.name for path in sorted(store.more.iterdir())] == ["0001.parquet", "0002.parquet", "0003.parquet"]
    again = Store(store.path)
    assert again.get("a")["x"] == 3 and again.get("b0")["x"] == 10 and "b2" in again and len(again) == 5
    assert again.records()["x"].tolist() == [3, 10, 11, 12, 13]
    again.drop(["a", "b1"])  # of every file: no earlier record comes back
    assert Store(store.path).records()["key"].tolist() == ["b0", "b2", "b3"] and again.get("a") is None


def test_a_later_file_takes_new_records_until_it_is_full(store, monkeypatch):
    store.put("a", {"x": 1, "note": "first"})
    store.compact()
    monkeypatch.setattr(store_module, "FULL", store.path.stat().st_size)
    for x in (2, 3):
        store.put("a" if x == 3 else "b", {"x": x, "extra": [0.5]})
        monkeypatch.setattr(store_module, "FULL", 2**20 if list(store.more.glob("*")) else store.path.stat().st_size)
        store.compact()
    assert [path.name for path in store.more.iterdir()] == ["0001.parquet"]
    assert store.records()[["key", "x"]].values.tolist() == [["a", 3], ["b", 2]]
    (store.more / "0001.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(StoreError, match="0001.parquet is damaged"):
        Store(store.path).get("a")


def test_crash_between_merging_and_removing_leaves_no_duplicate(store, monkeypatch):
    store.put("a", {"x": 1})
    store.put("b", {"x": 2})
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.compact()
    monkeypatch.undo()
    assert store.path.exists() and len(list(store.parts.glob("*.parquet"))) == 2
    assert store.records()["x"].tolist() == [1, 2]
    store.compact()
    assert store.records()["x"].tolist() == [1, 2] and not list(store.parts.glob("*.parquet"))


def test_a_part_that_is_being_written_is_neither_read_nor_kept_by_compaction(store, recwarn):
    store.put("a", {"x": 1})
    half = store.parts / ".b.1.ab.tmp.parquet"  # as paths.atomic_path names it
    half.write_bytes(b"PAR1")
    assert store.records()["key"].tolist() == ["a"] and not recwarn.list
    store.compact()
    assert not half.exists()


@pytest.mark.parametrize("files", [2, 3])
def test_a_new_file_never_takes_the_name_of_another(store, monkeypatch, files):
    monkeypatch.setattr("flashtrace_lib.store.FULL", 0)  # every file is full
    for i in range(files):
        store.put(f"k{i}", {"x": i})
        store.compact()
    store.path.unlink()  # as a damaged file would be
    for i in range(files, files + 2):  # the first new record goes into a file beside those that are left
        store.put(f"k{i}", {"x": i})
        store.compact()
    assert store.records()["key"].tolist() == [f"k{i}" for i in range(1, files + 2)]


def test_what_a_killed_compaction_left_is_no_store_and_goes_with_the_next(store):
    store.put("a", {"x": 1})
    store.compact()
    left = store.path.with_name(f".{store.path.stem}.1.abc.tmp.parquet")
    left.write_bytes(b"half a file")
    assert names_in(store.path.parent) == [store.path.stem]
    store.put("b", {"x": 2})
    assert names_in(store.path.parent) == [store.path.stem]
    store.compact()
    assert not left.exists() and store.records()["key"].tolist() == ["a", "b"]


def test_a_frozen_store_is_only_read(store, monkeypatch):
    store.put("a", {"x": 1})
    monkeypatch.setenv(FROZEN, str(store.path.parent))
    store.compact()
    assert not store.path.exists() and store.get("a")["x"] == 1
    with pytest.raises(StoreError, match="only read"):
        store.drop(["a"])
