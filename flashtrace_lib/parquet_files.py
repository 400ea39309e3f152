"""Parquet files that a store is made of: one-row columns, tables that fit each other, damage that is noticed."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from .files import atomic_path
from .fingerprints import fingerprint

_SCHEMA_KEY = b"flashtrace.columns"  # files from before it was written are read without that check


class StoreError(ValueError):
    """A stored file cannot be read; the message names it and says what to do."""


def one_row(name: str, value: Any) -> pa.Array:
    """One-row column; float32 tensors and arrays stay float32."""
    if isinstance(value, dict):
        raise ValueError(f"column {name} holds a dict: store it as JSON text")
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (list, tuple)) and len(value) and isinstance(value[0], (torch.Tensor, np.ndarray)):
        rows = [one_row(name, row) for row in value]
        return pa.ListArray.from_arrays([0, len(rows)], pa.concat_arrays(rows))
    if isinstance(value, np.ndarray) and value.ndim > 1:
        return one_row(name, list(value))
    try:
        column = pa.array([value])
        if "struct<" in str(column.type):
            raise pa.ArrowInvalid("it holds dicts, which go in as JSON text")
        return column
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column {name} cannot be stored ({error}): use numbers, text or lists of them") from error


def without(table: pa.Table, keys: Collection[str]) -> pa.Table:
    """The rows under other keys than ``keys``; the table itself where that is all of them."""
    keep = [key not in keys for key in table["key"].to_pylist()]
    return table if all(keep) else table.filter(pa.array(keep, pa.bool_()))


def joined(tables: list[pa.Table]) -> pa.Table:
    """All rows in one table; a column that is empty or missing in one takes its type from the others."""
    unified([table.schema for table in tables])
    return pa.concat_tables(tables, promote_options="permissive")


def unified(schemas: list[pa.Schema]) -> pa.Schema:
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


def write_table(table: pa.Table, path: Path) -> None:
    """Write with checksums of pages and columns; readers see the old file or the new one."""
    table = table.replace_schema_metadata({_SCHEMA_KEY: _schema_hash(table)})
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def _schema_hash(table: pa.Table) -> bytes:
    """Digest of the names and types of a table's columns; what arrow calls the values of a list changes on the way."""
    return fingerprint([[field.name, re.sub(r"\w+: ", "", str(field.type))] for field in table.schema]).encode()


def read_table(path: Path) -> pa.Table:
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
        if getattr(error, "errno", None) is not None:  # of the system, such as too many open files: no damage
            raise
        raise StoreError(
            f"{path} is damaged or not a parquet file ({error}): restore it from version control, "
            "or delete it to have it computed again"
        ) from error
    if "key" not in table.column_names:
        raise StoreError(f"{path} has no key column: it was not written by this library; move it elsewhere")
    return table
