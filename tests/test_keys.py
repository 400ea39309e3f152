"""Committed records are found by the keys that this code computes: what a move or a renaming must not change."""

import json
from dataclasses import fields

import pyarrow.parquet as pq
import pytest

from flashtrace_book.experiments import code_targets
from flashtrace_lib import files
from flashtrace_lib.attribution import Method
from flashtrace_lib.evaluation.recorder import record_key
from flashtrace_lib.methods import METHODS
from flashtrace_lib.store import FROZEN, Store, StoreError

RESULTS = files.root() / "data" / "results"
# Stores of attributions; the keys of the others (responses, times, answers) are computed by the notebooks, which the
# tests run with stores that are only read.
STORES = [path for path in sorted(RESULTS.glob("*/*.parquet")) if "method_name" in pq.read_schema(path).names]


def rebuilt(name: str, options: dict) -> Method:
    """The method of a record, from the name and the options that are stored."""
    if name == code_targets.OnCode.name:
        return code_targets.OnCode(rebuilt(options["method"], options["options"]), options["target"])
    settable = {field.name for field in fields(METHODS[name]) if field.init}
    return METHODS[name](**{option: value for option, value in options.items() if option in settable})


@pytest.mark.parametrize("path", STORES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_stored_attribution_is_under_its_key(path):
    for record in Store(path).records().to_dict("records"):
        method = rebuilt(record["method_name"], json.loads(record["options"]))
        shaped_by = (record["model_key"], record["sample_key"], method, int(record["steps"]))
        assert record["key"] in [record_key(*shaped_by, precision) for precision in ("auto", "model")], record["method"]


def test_a_record_under_another_option_is_not_found():
    record = Store(RESULTS / "laptop" / "ruler").records().iloc[0]
    method = rebuilt("flashtrace", {"hops": 2})
    assert record["key"] != record_key(record["model_key"], record["sample_key"], method, int(record["steps"]), "auto")


def test_a_frozen_store_computes_nothing(tmp_path, monkeypatch):
    store = Store(tmp_path / "results" / "ruler")
    store.put("a", {"x": 1})
    monkeypatch.setenv(FROZEN, str(tmp_path / "results"))
    assert Store(store.path).get("a") == {"x": 1, "key": "a"}
    with pytest.raises(StoreError, match="ruler.parquet has no record b, .* a key has changed"):
        store.put("b", {"x": 2})
    Store(tmp_path / "elsewhere").put("b", {"x": 2})


def test_committed_stores_are_frozen_while_the_tests_run():
    with pytest.raises(StoreError, match="has no record nothing"):
        Store(RESULTS / "laptop" / "ruler").put("nothing", {})
