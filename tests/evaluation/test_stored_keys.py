"""Stored results are found under the keys that this code computes: no move, renaming or removed option changes one."""

import json
from dataclasses import fields

import numpy as np
import pyarrow.parquet as pq
import pytest

from flashtrace_lib import files
from flashtrace_lib.evaluation.ablations import masks_key
from flashtrace_lib.evaluation.recorder import record_key
from flashtrace_lib.methods import METHODS

COLUMNS = ["model_key", "sample_key", "method", "method_name", "options", "steps", "key"]
FILES = [
    path for path in sorted((files.root() / "data" / "results").glob("*.parquet"))
    if "method_name" in pq.read_schema(path).names
]  # fmt: skip
# Of the book's own method (08), and of a setting whose options went: heads added up, the first token left out.
ELSEWHERE = ("on_code", "best_before")


def rebuilt(name, options):
    """The method of a record, from the name and the options that are stored; a removed option is a constant."""
    settable = {field.name for field in fields(METHODS[name]) if field.init}
    return METHODS[name](**{k: tuple(v) if isinstance(v, list) else v for k, v in options.items() if k in settable})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_stored_result_is_under_its_key(path):
    named = ["part", *COLUMNS, *(["evaluated"] if "evaluated" in pq.read_schema(path).names else [])]
    rows = pq.read_table(path, columns=named, filters=[("part", "=", "method")]).to_pandas()
    rows, wrong = rows[~rows["method_name"].isin(ELSEWHERE) & ~rows["method"].isin(ELSEWHERE)], []
    for row in rows.to_dict("records"):
        method = rebuilt(row["method_name"], json.loads(row["options"]))
        bisected = isinstance(row.get("evaluated"), np.ndarray) and len(row["evaluated"]) <= row["steps"]
        shared = (int(row["steps"]), "auto", 0.01 if bisected else 0.0)
        key = record_key(row["model_key"], row["sample_key"], method, *shared)
        if key != row["key"] or json.loads(json.dumps(method.options())) != json.loads(row["options"]):
            wrong.append((row["method"], row["options"]))
    assert not wrong and len(rows)


def test_another_option_is_another_key():
    methods = [METHODS["flashtrace"](**how) for how in ({}, {"hops": 2}, {"smoothing": 3})]
    assert len({record_key("m", "s", method, 20, "auto") for method in methods}) == 3


def test_every_stored_set_of_masks_is_under_its_key():
    names, found = [*COLUMNS[:2], "key", "n_masks", "mask_sources"], 0
    for path in FILES:
        if "mask_sources" in pq.read_schema(path).names:
            for row in pq.read_table(path, columns=["part", *names], filters=[("part", "=", "masks")]).to_pylist():
                # the model is that of the methods that share the masks
                models = {r["model_key"] for r in _naming(path, row["key"])}
                keys = [masks_key(m, row["sample_key"], row["mask_sources"], row["n_masks"], "auto") for m in models]
                assert keys == [row["key"]]
                found += 1
    assert found > 20


def _naming(path, key):
    return pq.read_table(path, columns=["model_key"], filters=[("masks_key", "=", key)]).to_pylist()
