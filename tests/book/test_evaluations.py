"""Each kind of metric on its own number of samples, and random baselines as means of their draws."""

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from flashtrace_book import evaluations
from flashtrace_book.evaluations import CURVE, DROP, LDS, RANKING, evaluate_all, first_of_cells, measurable
from flashtrace_book.profiles import EvaluationProfile, load_profile
from flashtrace_lib.evaluation import METRICS
from flashtrace_lib.sample import Sample, Segments


def samples():
    segments = Segments((0, 4), (4, 4), (4, 6))
    return [
        Sample(torch.arange(6), segments, metadata={"id": f"{cell}{i}", "cell": cell})
        for i in range(3)
        for cell in "ab"
    ]


@pytest.fixture
def asked(monkeypatch):
    """What `evaluate` was asked for: labels of methods, ids of samples, metrics."""
    calls = []

    def evaluate(methods, part, model, *, metrics, **how):
        calls.append((list(methods), [sample.id for sample in part], metrics, how))
        rows = [
            {"sample": s.id, "task": "", "cell": s.metadata["cell"], "method": label, "metric": metric,
             "value": float(label.rpartition("/")[2]) if "/" in label else 9.0, "flagged": False, "seconds": 0.0}
            for label in methods for s in part for metric in metrics
        ]  # fmt: skip
        return pd.DataFrame(rows)

    monkeypatch.setattr(evaluations, "evaluate", evaluate)
    return calls


def run_with(**settings):
    profile = replace(load_profile("smoke"), methods=("ifr", "random"), evaluation=EvaluationProfile(**settings))
    return SimpleNamespace(profile=profile)


def test_the_first_samples_of_each_cell():
    assert [s.id for s in first_of_cells(samples(), 2)] == ["a0", "b0", "a1", "b1"]
    assert first_of_cells(samples(), 0) == []
    assert first_of_cells(samples(), EvaluationProfile(curves={"a": 0, "b": 0}).curves_of) == []
    with pytest.raises(ValueError, match=r"evaluation.curves.a must be a whole number of at least 0"):
        EvaluationProfile(curves={"a": -1})
    settings = EvaluationProfile(curve_samples=1, curves={"b": 2})
    assert [s.id for s in first_of_cells(samples(), settings.curves_of)] == ["a0", "b0", "b1"]
    assert [s.id for s in first_of_cells(samples(), {"a": 1, "b": 0}.get)] == ["a0"]


def test_where_nothing_is_marked_only_samples_with_a_curve_are_measured():
    unmarked, one_curve = samples(), run_with(curve_samples=1)
    assert [s.id for s in measurable(one_curve, unmarked)] == ["a0", "b0"]
    marked = [*unmarked[:-1], replace(unmarked[-1], gold=torch.arange(6) < 2)]
    assert measurable(one_curve, marked) is marked
    with pytest.raises(ValueError, match="nothing can be measured on a, b: .* profile 'smoke' gives no deletion curve"):
        measurable(run_with(curves={"a": 0, "b": 0}), unmarked)


def test_each_kind_of_metric_has_its_samples_and_draws(asked):
    settings = {"mask_samples": 2, "masks": 5, "curve_samples": 1, "draws": 4, "curve_draws": 2}
    frame = evaluate_all(run_with(few_methods=("clp",), few_samples=1, **settings), samples(), None, None)
    counts = {metrics: (len(labels), len(ids)) for labels, ids, metrics, _ in asked if "clp" not in labels}
    assert counts == {RANKING: (9, 6), LDS: (9, 4), DROP: (5, 4), CURVE: (5, 2)}
    assert all(ids == ["a0", "b0"] for labels, ids, _, _ in asked if "clp" in labels)
    assert {how["masks"] for *_, how in asked} == {5}
    assert set(frame["method"]) == {"ifr", "clp", "random", "random_sentences"}
    means = frame[frame["method"] == "random"].groupby("metric")["value"].mean()
    assert means["recovery"] == pytest.approx(1.5) and means["rise"] == pytest.approx(0.5)  # of 0..3, of 0..1
    assert set(frame.loc[frame["metric"] == "rise_calibrated", "sample"]) == {"a0", "b0"}


def test_methods_that_few_samples_get_may_go_without_curves(asked):
    few = {"few_methods": ("clp",), "few_samples": 2, "mask_samples": 0, "curve_samples": 3}
    for n, curved in ((None, 2), (1, 1), (0, 0)):
        asked.clear()
        evaluate_all(run_with(few_curve_samples=n, **few), samples(), None, None)
        counts = {metrics: len(ids) for labels, ids, metrics, _ in asked if "clp" in labels}
        assert counts == {RANKING: 4, CURVE: 2 * curved} if curved else {RANKING: 4}


def test_methods_without_curves_get_no_drop_of_their_own_either(asked):
    few = {"few_methods": ("clp",), "few_samples": 2, "mask_samples": 1}
    for n, dropped in ((None, 2), (2, 2), (0, 0)):
        asked.clear()
        evaluate_all(run_with(few_curve_samples=n, **few), samples(), None, None)
        counts = {metrics: len(ids) for labels, ids, metrics, _ in asked if "clp" in labels}
        assert counts[LDS] == 2 and counts.get(DROP, 0) == dropped


def test_rankings_on_all_samples_and_curves_on_the_first(asked):
    methods = {"ifr": SimpleNamespace(name="ifr")}
    run = run_with(curve_samples=1)
    frame = evaluations.evaluate_with_curves(run, methods, samples(), None, None, None)
    assert [(ids, metrics) for _, ids, metrics, _ in asked] == [
        (["a0", "b0"], ("recovery", "r_precision", *CURVE)),
        (["a1", "b1", "a2", "b2"], ("recovery", "r_precision")),
    ]
    assert {how["steps"] for *_, how in asked} == {run.profile.steps}
    assert frame.groupby("metric")["sample"].nunique().to_dict() == {
        "recovery": 6, "r_precision": 6, "rise": 2, "mas": 2,
    }  # fmt: skip
    evaluations.evaluate_with_curves(run_with(), methods, samples(), None, None, None)
    assert len(asked) == 3  # where every sample has a curve there is one call


def test_what_is_asked_for_no_sample_is_left_out(asked):
    frame = evaluate_all(run_with(mask_samples=0, draws=1, curve_draws=1), samples(), None, None)
    assert not set(frame["metric"]) & {*LDS, *DROP}


def test_every_metric_there_is_has_its_place():
    assert {*RANKING, *LDS, *DROP, *CURVE} == set(METRICS) - {"recovery_ceil", "recovery_cap_haystack"}


def test_more_draws_for_curves_than_there_are():
    with pytest.raises(ValueError, match="curve_draws 9 exceeds draws 3"):
        EvaluationProfile(draws=3, curve_draws=9)
