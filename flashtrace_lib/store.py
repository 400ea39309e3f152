"""Results on disk: parquet files that survive a crash."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from .files import atomic_path, locked, writing
from .fingerprints import fingerprint

_SCHEMA_KEY = b"flashtrace.columns"  # files from before it was written are read without that check
USED_LOG = "FLASHTRACE_USED_LOG"  # names the file into which a run of the book has its records' keys noted
FROZEN = "FLASHTRACE_FROZEN_DIR"  # names a folder whose stores are only read: a record that is missing is an error
KEY_PATTERN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,119}")  # a key is a file name


class StoreError(ValueError):
    """A stored file cannot be read; the message names it and says what to do."""


class Store:
    """Records under a key: one small parquet part per record, merged into one file on demand.

    A part is written to a temporary file, flushed to the disk and renamed, so that a killed process loses at
    most the record in flight. Any number of processes may write at once: writers hold a shared lock while they
    rename, `compact` an exclusive one. A newer part always wins over the merged file.

    Parameters
    ----------
    path : path-like
        ``dir/name`` or ``dir/name.parquet``: the merged file is ``dir/name.parquet``, the parts lie in
        ``dir/name.parts/``. Nothing is created before the first ``put``.
    """

    def __init__(self, path: str | os.PathLike):
        path = Path(path)
        self.path = path if path.suffix == ".parquet" else path.with_name(path.name + ".parquet")
        self.parts = self.path.with_suffix(".parts")
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
        table = pa.Table.from_pydict({name: _column(name, value) for name, value in {**record, "key": key}.items()})
        self._check_types(table.schema)
        with writing(self.parts):
            self.parts.mkdir(parents=True, exist_ok=True)
        with self._lock(fcntl.LOCK_SH):
            _write_atomic(table, self.parts / f"{key}.parquet")
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
        """Remove records; parts are merged on the way. Those that are not there are passed over."""
        gone = set(keys)
        with writing(self.parts):
            self.parts.mkdir(parents=True, exist_ok=True)
        with self._lock(fcntl.LOCK_EX):
            read = self._read_parts()
            table = self._merge(read)
            keep = [key not in gone for key in table["key"].to_pylist()]
            _write_atomic(table.filter(pa.array(keep, pa.bool_())), self.path)
            for path in read:
                path.unlink()
        self._schema = None

    def __len__(self) -> int:
        return self._merge(self._read_parts()).num_rows

    def records(self) -> pd.DataFrame:
        """All records, one row a key, sorted by key; array columns hold lists, missing columns None."""
        table = self._merge(self._read_parts())
        return pd.DataFrame(table.to_pylist(), columns=table.column_names)

    def compact(self) -> None:
        """Merge all parts into the one file, atomically; the parts go only once it is safely in place.

        In a folder that cannot be written to the parts stay as they are, with a warning: they are read as well.
        """
        if not self.parts.is_dir():
            return
        try:
            with self._lock(fcntl.LOCK_EX):
                read = self._read_parts()
                if read:
                    _write_atomic(self._merge(read), self.path)
                for path in [*read, *self.parts.glob(".*.tmp.*")]:  # what killed writers left; none is alive in here
                    path.unlink()
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            warnings.warn(f"{self.parts} is not merged, since nothing can be written there ({error})", stacklevel=2)

    def _check_not_frozen(self, key: str) -> None:
        """StoreError where the environment says that what is computed here should have been found."""
        folder = os.environ.get(FROZEN)
        if folder and self.path.resolve().is_relative_to(Path(folder).resolve()):
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
            self._schema = _unified([self._schema, schema])
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
            _unified([table.schema for table in tables])
        except StoreError as error:  # two processes wrote at once, which neither could see
            raise StoreError(f"{self.path} cannot be merged: {error}") from None
        # Permissive: a column that is empty or missing in one record takes its type from the others.
        return pa.concat_tables(tables, promote_options="permissive").sort_by("key")

    def _read_parts(self) -> dict[Path, pa.Table]:
        # A hidden file is one that somebody is still writing; glob shows it all the same.
        paths = [path for path in sorted(self.parts.glob("*.parquet")) if not path.name.startswith(".")]
        tables = {path: self._read_part(path) for path in paths}
        return {path: table for path, table in tables.items() if table is not None}

    def _read_part(self, path: Path) -> pa.Table | None:
        """One part, or None where it is missing; a corrupt one counts as missing, since it can be recomputed."""
        try:
            table = _read(path)
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
        """Row of each key, and the merged table; read again only when the file has changed."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return {}, None
        signature = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if self._merged[0] != signature:
            table = _read(self.path)
            self._merged = (signature, {key: row for row, key in enumerate(table["key"].to_pylist())}, table)
        return self._merged[1], self._merged[2]

    def _lock(self, kind: int) -> AbstractContextManager[None]:
        return locked(self.parts / ".lock", kind)


def _column(name: str, value: Any) -> pa.Array:
    """One-row column; float32 tensors and arrays stay float32."""
    if isinstance(value, dict):
        raise ValueError(f"column {name} holds a dict: store it as JSON text")
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (list, tuple)) and len(value) and isinstance(value[0], (torch.Tensor, np.ndarray)):
        rows = [_column(name, row) for row in value]
        return pa.ListArray.from_arrays([0, len(rows)], pa.concat_arrays(rows))
    if isinstance(value, np.ndarray) and value.ndim > 1:
        return _column(name, list(value))
    try:
        column = pa.array([value])
        if "struct<" in str(column.type):
            raise pa.ArrowInvalid("it holds dicts, which go in as JSON text")
        return column
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column {name} cannot be stored ({error}): use numbers, text or lists of them") from error


def _unified(schemas: list[pa.Schema]) -> pa.Schema:
    """Columns of all ``schemas``; StoreError naming a column that has two types."""
    try:
        return pa.unify_schemas([schema.remove_metadata() for schema in schemas], promote_options="permissive")
    except pa.ArrowTypeError:
        for name in dict.fromkeys(field.name for schema in schemas for field in schema):
            types = list(dict.fromkeys(schema.field(name).type for schema in schemas if name in schema.names))
            try:
                pa.unify_schemas([pa.schema([(name, kind)]) for kind in types], promote_options="permissive")
            except pa.ArrowTypeError:
                found = " and ".join(sorted({str(kind) for kind in types}))
                message = f"column {name} holds {found}: give values of one type, or another column name"
                raise StoreError(message) from None
        raise


def _write_atomic(table: pa.Table, path: Path) -> None:
    """Write with checksums of pages and columns; readers see the old file or the new one."""
    table = table.replace_schema_metadata({_SCHEMA_KEY: _schema_hash(table)})
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def _schema_hash(table: pa.Table) -> bytes:
    """Digest of the names and types of a table's columns; what arrow calls the values of a list changes on the way."""
    return fingerprint([[field.name, re.sub(r"\w+: ", "", str(field.type))] for field in table.schema]).encode()


def _read(path: Path) -> pa.Table:
    """Read one parquet file, checksums verified; StoreError where it is damaged or not ours."""
    try:
        with open(path, "rb") as file:
            table = pq.read_table(file, page_checksum_verification=True)
            stored = (table.schema.metadata or {}).get(_SCHEMA_KEY)
            if stored is not None and stored != _schema_hash(table):  # pages have checksums, the footer has none
                raise OSError("its columns are not those that were written")
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise StoreError(
            f"{path} is damaged or not a parquet file ({error}): restore it from version control, "
            "or delete it to have it computed again"
        ) from error
    if "key" not in table.column_names:
        raise StoreError(f"{path} has no key column: it was not written by this library; move it elsewhere")
    return table
