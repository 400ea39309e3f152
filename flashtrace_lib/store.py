"""Results on disk: parquet files that survive a crash."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from .files import locked, writing
from .parquet_files import StoreError, joined, one_row, read_table, unified, without, write_table

USED_LOG = "FLASHTRACE_USED_LOG"  # names the file into which a run of the book has its records' keys noted
FROZEN = "FLASHTRACE_FROZEN_DIR"  # names a folder whose stores are only read: a record that is missing is an error
FULL = 8 * 2**20  # bytes; a merged file of this size is left as it is, and newer records go into another
KEY_PATTERN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,119}")  # a key is a file name


def names_in(folder: Path) -> list[str]:
    """Names of the stores in a folder, sorted; what another process is just writing there is none."""
    merged = {path.stem for path in folder.glob("*.parquet") if _is_whole(path)}
    parts = {path.stem for path in folder.glob("*.parts") if any(map(_is_whole, path.glob("*.parquet")))}
    return sorted(merged | parts)


def _is_whole(path: Path) -> bool:
    """Whether the file has its name; a hidden one is still being written, or was left by a killed process."""
    return not path.name.startswith(".")


class Store:
    """Records under a key: one small parquet part per record, merged into few files on demand.

    A part is written to a temporary file, flushed to the disk and renamed, so that a killed process loses at
    most the record in flight. Any number of processes may write at once: writers hold a shared lock while they
    rename, `compact` an exclusive one. A newer part always wins over the merged files, a later one of these over an
    earlier one. Under version control a store that grows adds what is new, since full files stay as they are.

    Parameters
    ----------
    path : path-like
        ``dir/name`` or ``dir/name.parquet``: the merged file is ``dir/name.parquet``, those after it lie in
        ``dir/name.more/``, the parts in ``dir/name.parts/``. Nothing is created before the first ``put``.
    """

    def __init__(self, path: str | os.PathLike):
        path = Path(path)
        self.path = path if path.suffix == ".parquet" else path.with_name(path.name + ".parquet")
        self.parts = self.path.with_suffix(".parts")
        self.more = self.path.with_suffix(".more")
        self._merged: tuple[tuple | None, dict[str, int], pa.Table | None] = (None, {}, None)
        self._noted: set[str] = set()  # keys that are in the log of use already
        self._schema: pa.Schema | None = None  # of all records this object knows of; read before the first `put`

    def put(self, key: str, record: dict[str, Any]) -> None:
        """Write ``record`` under ``key``, replacing what was there.

        Parameters
        ----------
        key : str
            Letters, digits, ``.``, ``_`` and ``-``, at most 120.
        record : dict
            Columns: numbers, strings, bools, None, tensors, arrays and (nested) lists; dicts as JSON text.

        Raises
        ------
        ValueError
            If the key cannot be a file name, a value cannot be stored, or a column holds values of another type in the
            records that are there (whole numbers and floats go together, and so does anything with None).
        StoreError
            If the store lies in the folder that ``FLASHTRACE_FROZEN_DIR`` names.
        CannotWrite
            If the disk is full or the folder read-only (`files.writing`).
        """
        if not KEY_PATTERN.fullmatch(key):
            raise ValueError(f"key {key!r} cannot be a file name: use letters, digits, '.', '_', '-' (fingerprint())")
        self._check_not_frozen(key)
        table = pa.Table.from_pydict({name: one_row(name, value) for name, value in {**record, "key": key}.items()})
        self._check_types(table.schema)
        with writing(self.parts):
            self.parts.mkdir(parents=True, exist_ok=True)
        with self._lock(fcntl.LOCK_SH):
            write_table(table, self.parts / f"{key}.parquet")
        self.note_use(key)

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the record under ``key``, arrays as lists; None where there is none (or its part is corrupt)."""
        part = self._read_part(self.parts / f"{key}.parquet")  # before the merged file: compaction moves that way
        index, table = self._read_merged() if part is None else ({key: 0}, part)
        if key not in index:
            return None
        self.note_use(key)
        return table.slice(index[key], 1).to_pylist()[0]

    def cached(self, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the record under ``key``; where there is none, store the one that ``compute`` makes first.

        Either way the record comes from the disk, so that it is the same in the run that computes it and in later ones.
        """
        record = self.get(key)
        if record is None:
            self.put(key, compute())
            record = self.get(key)
        return record

    def __contains__(self, key: str) -> bool:
        return self._read_part(self.parts / f"{key}.parquet") is not None or key in self._read_merged()[0]

    def note_use(self, *keys: str) -> None:
        """Note records as used where the environment names a log for it (`stale`); `get` and `put` do so themselves."""
        log, fresh = os.environ.get(USED_LOG), set(keys) - self._noted
        if log and fresh:
            self._noted |= fresh
            with open(log, "a", encoding="utf-8") as file:  # one short write a call: processes do not tear its lines
                file.write("".join(f"{self.path.resolve()}\t{key}\n" for key in sorted(fresh)))

    def drop(self, keys: Iterable[str]) -> None:
        """Remove records; parts are merged on the way. Those that are not there are passed over.

        Raises
        ------
        StoreError
            See `put`.
        """
        gone = set(keys)
        if self._is_frozen():
            raise StoreError(f"{self.path} is only read, since {FROZEN} names its folder: set {FROZEN} empty")
        with writing(self.parts):
            self.parts.mkdir(parents=True, exist_ok=True)
        with self._lock(fcntl.LOCK_EX):
            self._merge_parts()
            for path in self._files():  # the earlier record of a key goes first: cut short, the later one still counts
                table = read_table(path)
                kept = without(table, gone)
                if kept is not table:
                    write_table(kept, path)
        self._schema = None

    def __len__(self) -> int:
        return self._merge(self._read_parts()).num_rows

    def records(self) -> pd.DataFrame:
        """All records, one row a key, sorted by key; array columns hold lists, missing columns None."""
        table = self._merge(self._read_parts())
        return pd.DataFrame(table.to_pylist(), columns=table.column_names)

    def column(self, name: str) -> list[Any]:
        """Values of one column, in the order of `records`; None in records without it."""
        table = self._merge(self._read_parts())
        return table[name].to_pylist() if name in table.column_names else [None] * table.num_rows

    def compact(self) -> None:
        """Merge all parts into the last file, atomically; the parts go only once it is safely in place.

        In a folder that cannot be written to the parts stay as they are, with a warning: they are read as well. So do
        those of a store that is only read (``FLASHTRACE_FROZEN_DIR``).
        """
        if not self.parts.is_dir() or self._is_frozen():
            return
        try:
            with self._lock(fcntl.LOCK_EX):
                self._merge_parts()
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            warnings.warn(f"{self.parts} is not merged, since nothing can be written there ({error})", stacklevel=2)

    def _merge_parts(self) -> None:
        """Put the parts into the last merged file, or into a new one where that is full; the lock must be held."""
        read, files = self._read_parts(), self._files()
        if read:
            self._merge(read)  # raises where they do not fit the records of all files
            last = files[-1] if files else self.path
            tables = list(read.values())
            if last.exists() and last.stat().st_size >= FULL:
                taken = [int(path.stem) for path in files if path != self.path]  # the first file may have been deleted
                last = self.more / f"{1 + max(taken, default=0):04d}.parquet"
                last.parent.mkdir(exist_ok=True)
            elif last.exists():
                tables.append(without(read_table(last), {path.stem for path in read}))
            write_table(joined(tables).sort_by("key"), last)
        left = [
            self.parts.glob(".*.tmp.*"),
            self.path.parent.glob(f".{self.path.stem}.*.tmp.*"),
            self.more.glob(".*.tmp.*"),
        ]
        for path in [*read, *chain.from_iterable(left)]:  # what killed writers left; none is alive in here
            path.unlink()

    def _files(self) -> list[Path]:
        """The merged files that exist, in their order."""
        more = sorted(filter(_is_whole, self.more.glob("*.parquet")))
        return [path for path in (self.path, *more) if path.exists()]

    def _is_frozen(self) -> bool:
        folder = os.environ.get(FROZEN)
        return bool(folder) and self.path.resolve().is_relative_to(Path(folder).resolve())

    def _check_not_frozen(self, key: str) -> None:
        """StoreError where the environment says that what is computed here should have been found."""
        if self._is_frozen():
            raise StoreError(
                f"{self.path} has no record {key}, and {FROZEN} says that nothing is to be computed for it: a key has "
                "changed, by other code or settings, or by a processor that rounds the model's merged weights "
                f"differently. Run `python -m flashtrace_lib book` first, or set {FROZEN} empty"
            )

    def _check_types(self, schema: pa.Schema) -> None:
        """Note the columns of a new record; ValueError where one has another type than in the records before it."""
        if self._schema is None:
            self._schema = self._merge(self._read_parts()).schema
        try:
            self._schema = unified([self._schema, schema])
        except StoreError as error:
            raise ValueError(f"the record does not fit {self.path}: {error}") from None

    def _merge(self, parts: dict[Path, pa.Table]) -> pa.Table:
        """Parts over the merged file, each key once, sorted by key."""
        index, merged = self._read_merged()  # after the parts: what compaction took from them is in here
        fresh = {path.stem for path in parts}
        tables = list(parts.values())
        if merged is not None:
            rows = [row for key, row in index.items() if key not in fresh]
            tables.append(merged.take(pa.array(rows, pa.int64())))
        if not tables:
            return pa.table({"key": pa.array([], pa.string())})
        try:
            return joined(tables).sort_by("key")
        except StoreError as error:  # two processes wrote at once, which neither could see
            raise StoreError(f"{self.path} cannot be merged: {error}") from None

    def _read_parts(self) -> dict[Path, pa.Table]:
        paths = sorted(filter(_is_whole, self.parts.glob("*.parquet")))
        tables = {path: self._read_part(path) for path in paths}
        return {path: table for path, table in tables.items() if table is not None}

    def _read_part(self, path: Path) -> pa.Table | None:
        """One part, or None where it is missing; a corrupt one counts as missing, since it can be recomputed."""
        try:
            table = read_table(path)
        except FileNotFoundError:
            return None
        except StoreError as error:
            warnings.warn(f"{error}; the record counts as missing and will be recomputed", stacklevel=3)
            return None
        if table.num_rows != 1 or table["key"][0].as_py() != path.stem:
            warnings.warn(f"{path} does not hold the one record its name says; it counts as missing", stacklevel=3)
            return None
        return table

    def _read_merged(self) -> tuple[dict[str, int], pa.Table | None]:
        """Last row of each key, and the merged files as one table; read again only when a file has changed."""
        files = self._files()
        if not files:
            return {}, None
        stats = [path.stat() for path in files]
        signature = tuple((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats)
        if self._merged[0] != signature:
            table = joined([read_table(path) for path in files])
            self._merged = (signature, {key: row for row, key in enumerate(table["key"].to_pylist())}, table)
        return self._merged[1], self._merged[2]

    def _lock(self, kind: int) -> AbstractContextManager[None]:
        return locked(self.parts / ".lock", kind)
