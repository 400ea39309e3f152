"""The reasoning tasks: samples of a profile, means by length, agreement of two methods."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from flashtrace_book import statistics
from flashtrace_book.experiments import reasoning_tasks
from flashtrace_book.figures import method_plots
from flashtrace_book.profiles import HotpotProfile
from flashtrace_book.run import start
from flashtrace_book.samples import cell_group, in_groups, pooled_cells
from flashtrace_lib import FlashTrace
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.methods import Random, Rollout
from flashtrace_lib.metrics import mean_interval
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import UNFILTERED, Collection
from tests.oracles.tiny import tiny_model, tiny_sample
from tests.oracles.tiny_reasoner import load_tokenizer
from tests.support.record_folders import write_records
from tests.support.whiskers import drawn


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path))
    return start("smoke")


def with_reasoning(run, **changes):
    settings = dataclasses.replace(run.profile.reasoning, **changes)
    run.profile = dataclasses.replace(run.profile, reasoning=settings)
    return run


def frame_of(lengths, values):
    rows = [
        {"sample": f"s{i}", "method": method, "metric": "mas", "value": v + shift, "flagged": False, "n_reasoning": n}
        for i, (n, v) in enumerate(zip(lengths, values, strict=True)) for method, shift in (("a", 0.0), ("b", 0.1))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_the_profile_says_which_records_and_what_stands_in(run, monkeypatch, tmp_path):
    asked = {}

    def examples(kind, n, **settings):
        asked.update(kind=kind, n=n, **settings)
        return ["example"]

    def answered(examples, model, tokenizer, n, **settings):
        asked.update(samples=n, **settings)
        return Collection(["sample"])

    monkeypatch.setattr(reasoning_tasks, "task_examples", examples)
    monkeypatch.setattr("flashtrace_book.samples.collect", answered)
    monkeypatch.setenv("FLASHTRACE_DATA_DIR", str(tmp_path))
    with_reasoning(run, source="folder", samples=3, max_tries=7, max_new_tokens=9, fallback=UNFILTERED)
    assert reasoning_tasks.task_collection(run, None, None, "gsm8k").samples == ["sample"]
    assert (asked["kind"], asked["n"], asked["source"], asked["folder"]) == ("gsm8k", 7, "folder", tmp_path)
    assert (asked["samples"], asked["max_new_tokens"], asked["fallback"]) == (3, 9, UNFILTERED)
    assert asked["store"].path.name.startswith("gsm8k_responses")
    with_reasoning(run, source="standin")
    reasoning_tasks.task_collection(run, None, None, "math500")
    assert (asked["mode"], asked["filtered"], asked["seed"]) == (None, True, run.profile.seed)
    assert asked["folder"] is None  # a folder that is set is not read by a profile of synthetic records


def test_methods_are_the_profiles_own_unless_the_section_names_some(run):
    with_reasoning(run, methods=None)
    assert [m.name for m in reasoning_tasks.reasoning_methods(run)] == list(run.profile.methods)
    with_reasoning(run, methods=("perturbation", "flashtrace"))
    perturbation, flashtrace = reasoning_tasks.reasoning_methods(run)
    assert perturbation.units == run.profile.method_options["perturbation"]["units"]
    assert flashtrace.hops == run.profile.hops


def test_samples_are_binned_by_the_length_of_their_reasoning():
    table = reasoning_tasks.by_length(frame_of([10, 20, 30, 40, 50, 60], [0.1, 0.3, 0.2, 0.4, 0.5, 0.7]), bins=3)
    of_a = table[table["method"] == "a"]
    assert of_a["length"].tolist() == [15, 35, 55] and of_a["n"].tolist() == [2, 2, 2]
    assert of_a["mean"].tolist() == pytest.approx([0.2, 0.3, 0.6])
    assert of_a[["shortest", "longest"]].to_numpy().tolist() == [[10, 20], [30, 40], [50, 60]]
    same = reasoning_tasks.by_length(frame_of([8, 8, 8], [0.1, 0.2, 0.3]))
    assert len(same) == 2 and same["n"].tolist() == [3, 3]
    with pytest.raises(ValueError, match="bins must be at least 1"):
        reasoning_tasks.by_length(frame_of([1], [0.5]), bins=0)


def test_the_slope_over_the_length_is_per_hundred_tokens_and_leaves_out_what_has_no_value():
    frame = frame_of([100, 200, 300, 400], [0.1, 0.2, 0.3, np.nan])
    slopes = reasoning_tasks.length_slopes(frame).set_index("method")
    assert slopes.loc["a", "slope"] == pytest.approx(0.1) and slopes["n"].tolist() == [3, 3]
    assert reasoning_tasks.length_slopes(frame, per=10).set_index("method").loc["a", "slope"] == pytest.approx(0.01)


def test_the_figure_shows_every_method_with_its_interval():
    table = reasoning_tasks.by_length(frame_of([10, 20, 30, 40], [0.1, 0.3, 0.2, 0.4]), bins=2)
    figure = method_plots.metric_by_length(table, "mas", title="MAS by length")
    axes = figure.axes[0]
    assert len(axes.containers) == 2 and "tokens" in axes.get_xlabel()
    means = [np.sort(container.lines[0].get_ydata()) for container in axes.containers]
    assert sorted(float(m[0]) for m in means) == pytest.approx([0.2, 0.3])
    assert any("n = 2 samples a bin; lower is better" in text.get_text() for text in axes.texts)
    assert not drawn(figure)  # two samples a bin have no interval
    wide = reasoning_tasks.by_length(frame_of([10, 11, 12, 13, 14, 15] * 2, np.linspace(0, 1, 12)), bins=1)
    assert len(drawn(method_plots.metric_by_length(wide, "mas"))) == 2  # one of each method
    with pytest.raises(ValueError, match="no rows of metric 'rise'"):
        method_plots.metric_by_length(table, "rise")


def test_two_methods_agree_with_themselves(tmp_path):
    model, samples, store = tiny_model(), [tiny_sample(seed=i) for i in range(3)], Store(tmp_path / "records")
    methods = {"one": FlashTrace(hops=1), "rollout": Rollout()}
    frame = evaluate(methods, samples, model, store=store, metrics=("recovery",), steps=2)
    table = reasoning_tasks.score_agreement(store, samples, methods["one"], methods["one"])
    assert table["rho"].tolist() == pytest.approx([1, 1, 1])
    other = reasoning_tasks.score_agreement(store, samples, Rollout(), methods["one"])
    assert (other["rho"] < 1.0001).all() and len(other) == 3
    seconds = reasoning_tasks.median_seconds(frame).set_index("method")
    assert set(seconds.index) == set(methods) and (seconds["n"] == 3).all()
    assert (seconds["low"] <= seconds["median"]).all() and (seconds["median"] <= seconds["high"]).all()


def test_mean_with_interval():
    values = pd.Series([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    low, high = mean_interval(values)
    assert reasoning_tasks.mean_row(values) == {"mean": 3.5, "low": low, "high": high, "n": 6}
    few = reasoning_tasks.mean_row(values[:5])
    assert few["mean"] == 3.0 and few["n"] == 5 and np.isnan(few["low"]) and np.isnan(few["high"])
    gain = statistics.mean_row(values, "gain", "gain_")
    assert gain == {"gain": 3.5, "gain_low": low, "gain_high": high, "n": 6}
    empty = statistics.mean_row([])
    assert empty["n"] == 0 and np.isnan(empty["mean"]) and np.isnan(empty["low"])


def test_a_task_is_put_as_the_profile_says(run, monkeypatch, tmp_path):
    asked = {}
    monkeypatch.setattr(reasoning_tasks, "task_examples", lambda kind, n, **settings: asked.update(n=n, **settings))
    monkeypatch.setattr(reasoning_tasks, "collect_stored", lambda *given, **how: asked.update(how) or Collection(["s"]))
    monkeypatch.setenv("FLASHTRACE_DATA_DIR", str(tmp_path))
    how = {"modes": {"gsm8k": "own_steps"}, "unfiltered": ("morehopqa",), "tries": {"gsm8k": 9}, "shuffle": False}
    with_reasoning(run, source="folder", samples=3, max_tries=7, **how)
    reasoning_tasks.task_collection(run, None, None, "gsm8k")
    assert (asked["n"], asked["mode"], asked["filtered"], asked["seed"]) == (9, "own_steps", True, None)
    reasoning_tasks.task_collection(run, None, None, "morehopqa")
    assert (asked["n"], asked["mode"], asked["filtered"]) == (7, None, False)
    with_reasoning(run, source="folder", samples=3, max_tries=7, fallback=UNFILTERED, fallbacks={"math500": "none"})
    for task, expected in (("gsm8k", (UNFILTERED, False)), ("math500", ("none", True))):
        reasoning_tasks.task_collection(run, None, None, task)  # with nothing in their place, all are tried
        assert (asked["fallback"], not asked["give_up"]) == expected
    with_reasoning(run, source="standin", shuffle=False)
    reasoning_tasks.task_collection(run, None, None, "gsm8k")
    assert asked["seed"] == run.profile.seed  # synthetic ones are drawn with it in any case
    for wrong, said in (
        ({"modes": {"gsm8k": "slowly"}}, "modes.gsm8k must be one of"),
        ({"tries": {"x": 3}}, "no task"),
        ({"fallbacks": {"x": "none"}}, "no task"),
        ({"fallbacks": {"gsm8k": "some"}}, "fallbacks.gsm8k must be one of teacher-forced, unfiltered"),
    ):
        with pytest.raises(ValueError, match=said):
            with_reasoning(run, **wrong)


def test_hotpotqa_at_the_profiles_length_and_at_others(run, monkeypatch):
    asked = {}

    def answered(examples, model, tokenizer, n, **settings):
        asked.update(settings, n=n, cells={e.cell for e in examples}, tokens=[e.metadata["tokens"] for e in examples])
        return Collection(["sample"], {"tried": len(examples)})

    monkeypatch.setattr("flashtrace_book.samples.collect", answered)
    tokenizer = load_tokenizer()
    run.profile = dataclasses.replace(run.profile, hotpotqa=HotpotProfile(length=300, samples=2, max_tries=3,
                                                                          long_samples=1))  # fmt: skip
    found = reasoning_tasks.hotpotqa_collection(run, None, tokenizer)
    assert found.counts == {"tried": 3, "too long": 0}
    assert asked["cells"] == {"hotpotqa"} and asked["n"] == 2 and asked["filtered"]
    assert all(200 < n <= 300 for n in asked["tokens"])
    reasoning_tasks.hotpotqa_collection(run, None, tokenizer, 500, filtered=False)
    assert asked["cells"] == {"hotpotqa_500"} and asked["n"] == 1 and not asked["filtered"]
    assert all(400 < n <= 500 for n in asked["tokens"])
    with pytest.raises(ValueError, match=r"no record of HotpotQA fits into 20 tokens \(3 too long\)"):
        reasoning_tasks.hotpotqa_collection(run, None, tokenizer, 20)


def test_exercises_come_from_a_folder_where_the_rest_comes_from_the_hub(run, tmp_path, monkeypatch):
    write_records(tmp_path, 2)
    monkeypatch.setenv("FLASHTRACE_DATA_DIR", str(tmp_path))
    with_reasoning(run, source="hub", max_tries=2, samples=1)
    monkeypatch.setattr("flashtrace_book.samples.collect", lambda examples, *_, **__: Collection(examples))
    found = reasoning_tasks.task_collection(run, None, None, "exercism")
    assert [e.scorer for e in found.samples] == ["unit_tests"] * 2


def test_no_sample_is_an_error_that_says_what_to_do(run, monkeypatch):
    monkeypatch.setattr(
        "flashtrace_book.samples.collect", lambda *_, **__: Collection([], {"tried": 4, "unfinished": 4})
    )
    with pytest.raises(ValueError, match=r"no sample of gsm8k \(4 tried, 4 unfinished\): raise max_tries"):
        reasoning_tasks.task_collection(run, None, None, "gsm8k")


def test_cells_are_grouped_and_groups_of_one_left_out():
    frame = pd.DataFrame({"cell": ["mq_q2", "mv_v2", "h4_c1", "hotpotqa"], "value": [1.0, 2.0, 3.0, 4.0]})
    assert [cell_group(cell) for cell in frame["cell"]] == ["needles", "needles", "chains", "documents"]
    grouped = in_groups(frame)
    assert grouped[grouped["cell"] == "needles"]["value"].tolist() == [1.0, 2.0]
    assert grouped[grouped["cell"] == "all cells"]["value"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert set(grouped["cell"]) == {"needles", "all cells"}
    assert pooled_cells(frame["cell"]) == {"needles": ["mq_q2", "mv_v2"], "all cells": frame["cell"].tolist()}


def test_mass_on_the_last_sentence_by_hand(tmp_path):
    sample = tiny_sample()  # I is [1, 8)
    sample.sentences = [(1, 6), (6, 8), (9, 12), (12, 15)]
    sample.metadata = {"id": "s"}
    model, store = tiny_model(), Store(tmp_path / "s")
    evaluate([FlashTrace(hops=0), Random()], [sample], model, store=store, metrics=("recovery_cap",))
    table = reasoning_tasks.question_share(store, [sample], [FlashTrace(hops=0), Random()]).set_index("method")
    scores = FlashTrace(hops=0).attribute(model, sample).scores
    assert table.loc["flashtrace", "mass"] == pytest.approx(float(scores[5:].sum() / scores.sum()), abs=1e-6)
    assert table["tokens"].tolist() == pytest.approx([2 / 7] * 2) and set(table["n"]) == {1}
    sample.sentences = None
    with pytest.raises(ValueError, match="no sentences in its prompt"):
        reasoning_tasks.question_share(store, [sample], [FlashTrace(hops=0)])
