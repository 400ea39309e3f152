"""Which metric agrees with swaps: on frames where the answer is known."""

import importlib
import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import spearmanr

from flashtrace_book.experiments.counterfactual import (
    agreement,
    compare,
    ruler_swap_effects,
    stored_record,
    swap_frame,
    swap_table,
)
from flashtrace_book.figures.metric_audit_plots import swap_agreement
from flashtrace_book.profiles import load_profile
from flashtrace_book.run import Run
from flashtrace_book.samples import ruler_cell_examples
from flashtrace_lib import Sample, Segments
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import collect
from tests.oracles.tiny_reasoner import load_tokenizer, tiny
from tests.support.whiskers import drawn


def long(values):
    """(method, sample, metric) -> value as a frame."""
    return pd.DataFrame([{"method": m, "sample": s, "metric": k, "value": v} for (m, s, k), v in values.items()])


def synthetic(samples=8, methods=5, seed=0):
    """A metric that follows the swaps within each sample, its mirror image, and one that follows the samples alone."""
    rng = np.random.default_rng(seed)
    values = {}
    for s in range(samples):
        for m in range(methods):
            swap = rng.random()
            pair = f"m{m}", f"s{s}"
            values[*pair, "swap_auroc"] = swap
            values[*pair, "recovery"] = swap**3
            values[*pair, "rise"] = -swap  # low is good
            values[*pair, "mas"] = swap  # low is good, so this one is always wrong
            values[*pair, "by_sample"] = float(s)
            values[*pair, "noise"] = rng.random()
    return values


def test_agreement_of_known_frames():
    values = synthetic()
    table = agreement(long(values)).set_index("metric")
    assert list(table.index) == ["recovery", "rise", "mas", "by_sample", "noise"]
    for metric, rho in (("recovery", 1), ("rise", 1), ("mas", -1)):
        row = table.loc[metric]
        assert [row[name] for name in ("rho", "within", "low", "high")] == pytest.approx([rho] * 4)
        assert row["pairs"] == 40 and row["n"] == 8
    assert table.loc["by_sample", "n"] == 0 and math.isnan(table.loc["by_sample", "within"])
    assert not math.isnan(table.loc["by_sample", "rho"])
    pairs = [key[:2] for key in values if key[2] == "noise"]
    expected = spearmanr([values[*p, "noise"] for p in pairs], [values[*p, "swap_auroc"] for p in pairs]).statistic
    assert table.loc["noise", "rho"] == pytest.approx(expected)
    assert table.loc["noise", "low"] < table.loc["noise", "within"] < table.loc["noise", "high"]


def test_the_difficulty_of_samples_shows_in_the_pooled_number_alone():
    values = {}
    for s in range(6):
        for m in range(4):
            values[f"m{m}", f"s{s}", "swap_auroc"] = 10 * s + m
            values[f"m{m}", f"s{s}", "recovery"] = 10 * s - m
    row = agreement(long(values)).iloc[0]
    assert row["rho"] > 0.8 and row["within"] == -1


def test_pairs_without_a_value_are_left_out():
    values = synthetic()
    del values["m0", "s0", "recovery"], values["m1", "s0", "swap_auroc"]
    table = agreement(long(values)).set_index("metric")
    assert table.loc["recovery", "pairs"] == 38 and table.loc["noise", "pairs"] == 39


def test_bad_frames_are_named():
    frame = long(synthetic())
    with pytest.raises(ValueError, match="holds no 'swap_spearman'"):
        agreement(frame, "swap_spearman")
    with pytest.raises(ValueError, match="two values of one metric"):
        agreement(pd.concat([frame, frame]))


def test_records_are_scored_by_sentence():
    effects = {
        "s0": pd.DataFrame({"sentence": [0, 1, 2], "drop": [3.0, 2.0, 1.0], "changes_answer": [True, False, False]})
    }
    record = {
        "method": "a",
        "cell": "c",
        "sample": "s0",
        "method_metadata": "{}",
    }
    scores = [1.0, 1.0, 1.5, 0.4, 0.4, 0.4]
    copied = json.dumps(
        {"units": "sentence", "options": {"spread": "copy"}}
    )  # each token has all of its sentence's score
    records = [
        {**record, "scores": scores},
        {**record, "method": "b", "scores": scores, "method_metadata": copied},
        {**record, "sample": "never swapped", "scores": scores},
    ]
    ids = torch.arange(10)
    sample = Sample(
        ids,
        Segments(prompt=(1, 7), reasoning=(7, 7), output=(7, 10)),
        sentences=((1, 3), (3, 4), (4, 7)),
        metadata={"id": "s0"},
    )
    frame = swap_frame(records, [sample], effects).pivot(index="method", columns="metric", values="value")
    assert frame.loc["a"].to_dict() == {"swap_auroc": 1.0, "swap_spearman": 1.0}  # sums 2, 1.5, 1.2
    assert frame.loc["b"].to_dict() == {"swap_auroc": 0.5, "swap_spearman": 0.5}  # means 1, 1.5, 0.4


def test_every_ruler_sample_is_swapped_once_and_its_effects_are_stored(tmp_path, monkeypatch):
    run, model, tokenizer = Run(load_profile("smoke")), tiny(), load_tokenizer()
    examples = {cell: ruler_cell_examples(run, cell, tokenizer)[:1] for cell in ("mq_q2", "h4_c1")}
    samples = [
        collect(found, model, tokenizer, 1, max_new_tokens=2, fallback="teacher-forced").samples[0]
        for found in examples.values()
    ]
    other = Sample(torch.arange(6), Segments((0, 3), (3, 4), (4, 6)), metadata={"id": "x", "task": "hotpotqa"})
    store = Store(tmp_path / "swaps")
    effects = ruler_swap_effects(run, model, tokenizer, [*samples, other], store)
    assert set(effects) == {sample.id for sample in samples} and len(store) == 2
    assert compare(run.profile, model, tokenizer, samples[0], stored_record(run.profile, model, store, samples[0]))[-1]
    assert stored_record(run.profile, model, store, other) is None
    wrong = stored_record(run.profile, model, store, samples[1])
    assert not compare(run.profile, model, tokenizer, samples[1], wrong | {"drop": wrong["drop"][::-1]})[-1]
    module = importlib.import_module("flashtrace_lib.tasks.swap_effects")  # `tasks.swap_effects` is its function
    monkeypatch.setattr(module, "_drops", lambda *_: pytest.fail("computed again"))
    again = ruler_swap_effects(run, model, tokenizer, samples, store)
    assert all(again[name].equals(effects[name]) for name in effects)
    table = swap_table(effects).set_index("kind")
    for kind, row in table.iterrows():
        drops = [frame[frame["kind"] == kind]["drop"] for frame in effects.values() if kind in set(frame["kind"])]
        assert row["swaps"] == sum(map(len, drops)) and row["n"] == len(drops)
        assert row["drop"] == pytest.approx(np.mean([part.mean() for part in drops]))


def test_the_figure_shows_every_metric_that_has_a_sample():
    table = agreement(long(synthetic()))
    axes = (figure := swap_agreement(table)).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "recovery rate",
        "RISE",
        "MAS",
    ]  # noise: no metric
    part = table[table["metric"].isin(["recovery", "rise", "mas"])]
    ends = sorted(float(x) for pair in drawn(figure) for x in pair[:, 0])
    assert ends == pytest.approx(sorted([*part["low"], *part["high"]]))
