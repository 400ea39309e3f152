"""What the notebooks print: counts, paired differences, rebuilt attributions, recovery by hops."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from flashtrace_book import methods, profiles, statistics
from flashtrace_book.experiments import recursion
from flashtrace_book.experiments.naive_layer import naive_layer_scores
from flashtrace_book.run import Run, start
from flashtrace_book.samples import count_table, held_out, mark_cells, ruler_setting, stored_attributions
from flashtrace_lib import FlashTrace
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.kernel.proximity import layer_scores
from flashtrace_lib.metrics import mean_interval, recovery_rate
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import FORCED, UNFILTERED, Collection
from flashtrace_lib.tasks.synthetic.splits import in_split
from tests.oracles.tiny import tiny_model, tiny_sample


def test_captions_say_what_the_profile_makes_of_the_benchmark():
    said = {name: ruler_setting(profiles.load_profile(name)) for name in ("laptop", "full", "paper")}
    for name, shot, gold in (("laptop", "without RULER's", "sentences"), ("full", "without RULER's", "sentences"),
                             ("paper", "where the length leaves room", "paragraphs")):  # fmt: skip
        assert shot in said[name] and said[name].endswith(f"the supporting {gold}.")


@pytest.mark.parametrize(("model", "ours"), [("embedded", True), ("embedded-shallow", True), ("embedded-base", False)])
def test_models_of_our_training_get_the_problems_that_it_left_out(model, ours):
    keep = held_out(Run(replace(profiles.load_profile("smoke"), model=model)))
    assert (keep is not None) == ours
    if ours:
        verdicts = {
            word: keep(word) for word in ("amber-otter", "brisk-heron", "calm-lynx", "dusty-raven", "eager-moth")
        }
        assert verdicts == {word: in_split(word, "eval") for word in verdicts}


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "gemma2"])
def test_the_reference_loop_equals_the_kernel(family):
    model, sample = tiny_model(family), tiny_sample()
    activations = capture(model, sample.input_ids, (9, 15), keep_mid=True)
    weights = torch.tensor([0.5, 1.0, 0.25])
    for layer in activations.layers:
        slow = naive_layer_scores(layer, weights, (12, 15), 9, layer.x_mid[3:])
        fast = layer_scores(layer, weights[None], (12, 15), 9)[0]
        torch.testing.assert_close(slow, fast, atol=1e-5, rtol=0)


def test_stored_attributions_are_those_that_were_computed(tmp_path):
    model, samples = tiny_model(), [tiny_sample(seed=i) for i in range(3)]
    store, method = Store(tmp_path / "s"), FlashTrace(hops=2)
    evaluate({"k2": method}, samples, model, store=store, metrics=("recovery",), progress=False)
    rebuilt = stored_attributions(store, samples, FlashTrace(hops=2))
    for sample, attribution in zip(samples, rebuilt, strict=True):
        fresh = method.attribute(model, sample)
        torch.testing.assert_close(attribution.scores, fresh.scores)
        assert attribution.flow == pytest.approx(fresh.flow, abs=1e-6)
        for a, b in zip(attribution.hops, fresh.hops, strict=True):
            torch.testing.assert_close(a.scores, b.scores)
            assert a.target == b.target
    with pytest.raises(ValueError, match=r"no stored record of FlashTrace\(hops=2.* for sample tiny-9"):
        stored_attributions(store, [tiny_sample(seed=9)], method)
    with pytest.raises(ValueError, match=r"no stored record of FlashTrace\(hops=1"):
        stored_attributions(store, samples, FlashTrace(hops=1))


def test_recovery_by_hops_equals_runs_with_fewer_hops():
    model, samples = tiny_model(), [tiny_sample(seed=i) for i in range(4)]
    table = recursion.recovery_by_hops(samples, [FlashTrace(hops=3).attribute(model, s) for s in samples])
    assert list(table["K"]) == [0, 1, 2, 3] and set(table["n"]) == {4} and table["gain"].iloc[0] == 0
    for k in range(4):
        each = [recovery_rate(FlashTrace(hops=k).attribute(model, s).scores, s.gold_in_prompt) for s in samples]
        assert table["recovery"].iloc[k] == pytest.approx(np.mean(each))


def test_paired_difference_sees_what_the_means_hide():
    rng = np.random.default_rng(0)
    level = rng.uniform(0, 1, 20)  # samples differ widely, the methods by a little on every one of them
    rows = [
        {"sample": f"s{i}", "cell": "c", "metric": metric, "method": method, "value": level[i] + shift}
        for i in range(20) for metric in ("recovery", "rise") for method, shift in (("a", 0.02), ("b", 0.0))
    ]  # fmt: skip
    paired = statistics.paired_difference(pd.DataFrame(rows), "a", "b").set_index("metric")
    assert paired["difference"].tolist() == pytest.approx([0.02, 0.02]) and set(paired["n"]) == {20}
    assert paired.loc["recovery", "better"] == "a" and paired.loc["rise", "better"] == "b"  # lower RISE is better
    flip = [{**row, "value": 0.1 * (-1) ** (int(row["sample"][1:]) + (row["method"] == "a"))} for row in rows]
    assert set(statistics.paired_difference(pd.DataFrame(flip), "a", "b")["better"]) == {"neither"}
    few = statistics.paired_difference(pd.DataFrame(rows[: 5 * 4]), "a", "b")  # five samples
    assert set(few["n"]) == {5} and set(few["better"]) == {statistics.TOO_FEW}
    assert few[["low", "high"]].isna().all(axis=None)


def test_a_record_at_two_lengths_counts_once():
    gaps = np.random.default_rng(0).normal(0.1, 0.2, size=(8, 2))
    rows = [{"sample": f"s{i}", "cell": f"length-{k}", "metric": "recovery", "method": method, "value": value}
            for i in range(8) for k in range(2) for method, value in (("a", gaps[i, k]), ("b", 0.0))]  # fmt: skip
    row = statistics.paired_difference(pd.DataFrame(rows), "a", "b").iloc[0]
    assert row["n"] == 8 and row["difference"] == pytest.approx(gaps.mean())
    assert (row["low"], row["high"]) == pytest.approx(mean_interval(gaps.mean(1)))
    under_one_name = pd.DataFrame(rows).assign(cell="all")  # as `samples.in_groups` gives them
    pd.testing.assert_series_equal(statistics.paired_difference(under_one_name, "a", "b").iloc[0], row)
    question = {f"s{i}": f"{i // 2:024x}_{i}" for i in range(8)}  # two questions of each of four records
    asked = statistics.paired_difference(pd.DataFrame(rows).replace({"sample": question}), "a", "b").iloc[0]
    assert asked["n"] == 4 and asked["difference"] == pytest.approx(gaps.mean())
    half = statistics.paired_difference(pd.DataFrame(rows[: 5 * 4]), "a", "b").iloc[0]  # ten values of five records
    assert half["n"] == 5 and half["better"] == statistics.TOO_FEW


def test_counts_and_marks_say_which_cells_are_forced():
    cells = {
        "x": Collection([tiny_sample()], {"tried": 3, "correct": 1}),
        "y": Collection([tiny_sample(seed=1)], {"tried": 2, "correct": 0}, FORCED),
        "z": Collection([tiny_sample(seed=2)], {"tried": 2, "correct": 0}, UNFILTERED),
    }
    table = count_table(cells).set_index("cell")
    assert table.loc["x", "responses"] == "the model's own" and "‡" in table.loc["y", "responses"]
    assert table.loc["x", "|I|"] == 7 and table.loc["x", "gold share"] == round(2 / 7, 3)
    bare = tiny_sample()
    bare.gold = None
    assert count_table({"x": Collection([bare], {"tried": 1})})["gold share"].isna().all()
    marked = mark_cells(pd.DataFrame({"cell": ["x", "y", "z"]}), cells)
    assert marked["cell"].tolist() == ["x", "y ‡", "z §"] and table.loc["z", "responses"] == "unfiltered §"


def changed_profile(tmp_path, **changes):
    """A run whose profile is smoke with changes."""
    data = yaml.safe_load((profiles._FOLDER / "smoke.yaml").read_text()) | {"name": "mine"} | changes
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(data))
    return start(str(tmp_path / "mine.yaml"))


def test_unknown_methods_and_options_are_named(tmp_path):
    with pytest.raises(ValueError, match="unknown methods .'magic'"):
        methods.profile_methods(changed_profile(tmp_path, methods=["flashtrace", "magic"]))
    with pytest.raises(ValueError, match="unknown methods .'magic'"):
        methods.profile_methods(changed_profile(tmp_path, method_options={"magic": {}}))
    run = changed_profile(tmp_path, methods=["clp"], method_options={"clp": {"unit": "sentence"}})
    with pytest.raises(ValueError, match="method clp has no option unit; it has units, spread"):
        methods.profile_methods(run)
    run = changed_profile(tmp_path, methods=["clp"], method_options={"clp": {"units": "page"}})
    with pytest.raises(ValueError, match="method clp: units must be one of auto, token, sentence"):
        methods.profile_methods(run)


def test_options_of_a_profile_reach_the_methods(tmp_path):
    options = {"clp": {"units": "token"}, "reagent": {"runs": 1}, "mean_pooling": {"hops": 3}}
    names = ["perturbation", "flashtrace", "last_token"]
    run = changed_profile(tmp_path, methods=names, method_options=options, hops=2)
    made = methods.profile_methods(run)
    assert [(m.name, getattr(m, "units", None), getattr(m, "hops", None)) for m in made] == [
        ("perturbation", "auto", None), ("flashtrace", None, 2), ("last_token", None, 2)
    ]  # fmt: skip
    reagent, mean = methods.profile_methods(run, ["reagent", "mean_pooling"])
    assert (reagent.runs, reagent.units) == (1, "auto") and mean.hops == 3
    assert methods.profile_methods(run, ["clp"])[0].units == "token"
    assert methods.sweep_options(run.profile, "perturbation") == {"units": "sentence"}
    assert methods.sweep_options(run.profile, "clp") == {"units": "token"}  # the profile's word comes first


def test_every_method_is_held_against_the_reference():
    rows = [
        {"sample": f"s{i}", "cell": "c", "metric": "rise", "method": method, "value": value + 0.001 * i}
        for i in range(6) for method, value in (("good", 0.1), ("random", 0.5), ("bad", 0.9))
    ]  # fmt: skip
    table = statistics.against(pd.DataFrame(rows), "random").set_index("method")
    assert table["better"].to_dict() == {"good": "good", "bad": "random"}
    assert table["difference"].to_dict() == pytest.approx({"good": -0.4, "bad": 0.4})
    (told,) = statistics.not_better(table.reset_index(), "a random ranking")
    assert told == "bad is not shown to beat a random ranking in rise: +0.400 [+0.400, +0.400], n = 6"
