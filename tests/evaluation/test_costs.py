"""Processor seconds of stored results: a record holds those of all its parts, the manifest adds them up."""

import pandas as pd
import pytest

from flashtrace_book.manifest import cost
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.evaluation.ablations import masks_beside
from flashtrace_lib.evaluation.job import time as clock
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.store import Store
from flashtrace_lib.tasks import collect, task_examples
from tests.metrics.test_ablation import haystack_sample
from tests.oracles.embedding import Embedding
from tests.oracles.tiny_chat import make_chat_model, make_tokenizer


@pytest.fixture
def ticks(monkeypatch):
    """A clock that moves by one second whenever it is read."""
    seconds = iter(range(10**6))
    monkeypatch.setattr(clock, "process_time", lambda: float(next(seconds)))


def test_a_record_holds_what_all_its_parts_took(model, tmp_path, ticks):
    store, scorer, samples = Store(tmp_path / "x"), Scorer(model), [haystack_sample(seed=0)]

    def spent(**needs):
        evaluate([Embedding()], samples, model, store=store, scorer=scorer, masks=4, progress=False, **needs)
        return store.column("cpu_seconds") + masks_beside(store).column("cpu_seconds")

    assert spent(metrics=("recovery",)) == [1]
    assert spent(metrics=("rise",)) == [2]  # the curve, on top of the attribution
    assert spent(metrics=("rise", "recovery")) == [2]
    both = spent(metrics=("lds", "rise"))
    assert len(both) == 2 and both[1] == 1  # the masks of the sample, once


def test_a_record_from_before_costs_were_kept_counts_what_came_after(model, samples, tmp_path, ticks):
    store, scorer = Store(tmp_path / "x"), Scorer(model)
    how = {"store": store, "scorer": scorer, "progress": False}
    evaluate([Embedding()], samples[:1], model, metrics=("recovery",), **how)
    (record,) = store.records().to_dict("records")
    store.put(record["key"], {name: value for name, value in record.items() if name != "cpu_seconds"})
    evaluate([Embedding()], samples[:1], model, metrics=("recovery",), **how)
    assert store.column("cpu_seconds") == [None]
    evaluate([Embedding()], samples[:1], model, metrics=("rise",), **how)
    assert store.column("cpu_seconds") == [1]


def test_the_manifest_adds_up(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path))
    for key, seconds in {"a": 1800.0, "b": 3600.0, "c": None}.items():
        Store(tmp_path / "p" / "ruler").put(key, {"x": 1, "cpu_seconds": seconds})
    Store(tmp_path / "p" / "old").put("a", {"x": 1})
    for name in ("ruler", "old"):
        Store(tmp_path / "p" / name).compact()
    assert cost("p") == {
        "old": {"records": 1, "measured": 0, "core_hours": 0},
        "ruler": {"records": 3, "measured": 2, "core_hours": 1.5},
    }


def test_responses_hold_their_share_of_the_block(tmp_path, ticks):
    tokenizer = make_tokenizer()
    model = make_chat_model(tokenizer, max_position_embeddings=2048)
    store = Store(tmp_path / "r")
    options = {"max_new_tokens": 2, "batch_size": 2, "filtered": False, "progress": False}
    collect(task_examples("gsm8k", 2), model, tokenizer, 2, store=store, **options)
    assert store.column("cpu_seconds") == [0.5, 0.5]
    assert isinstance(store.records(), pd.DataFrame) and Store(tmp_path / "none").column("x") == []
