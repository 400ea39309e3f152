"""The random baseline as the mean of its draws, and RISE calibrated by it."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from flashtrace_book import statistics
from flashtrace_lib.evaluation import evaluate, summarise
from flashtrace_lib.evaluation.draws import add_calibrated, mean_over_draws, random_draws
from flashtrace_lib.evaluation.recorder import record_key
from flashtrace_lib.methods import METHODS
from flashtrace_lib.metrics.deletion import Scorer
from flashtrace_lib.store import Store
from tests.oracles.embedding import Embedding
from tests.oracles.tiny import tiny_sample


def with_sentences(sample):
    first, stop = sample.segments.prompt
    sample.sentences = [(first, first + 2), (first + 2, first + 5), (first + 5, stop)]
    return sample


# --- the draws


def test_draws_differ_in_their_seed_and_the_first_is_the_plain_baseline():
    for sentences, name in [(False, "random"), (True, "random_sentences")]:
        drawn = random_draws(20, sentences)
        assert list(drawn) == [f"{name}/{i}" for i in range(20)]
        shaped_by = [record_key("model", "sample", method, 20, "auto") for method in drawn.values()]
        assert shaped_by[0] == record_key("model", "sample", METHODS[name](), 20, "auto") and len(set(shaped_by)) == 20
    with pytest.raises(ValueError, match="at least one draw"):
        random_draws(0)


def test_a_random_score_a_sentence_is_what_by_sentence_gives_back(model):
    sample = with_sentences(tiny_sample())
    results = [METHODS["random_sentences"](seed).attribute(model, sample) for seed in range(300)]
    for result in results[:20]:
        by_sentence = result.by_sentence()
        assert result.scores.tolist() == pytest.approx(by_sentence.repeat_interleave(torch.tensor([2, 3, 2])).tolist())
        assert len(result.scores.unique()) == 3 and result.scores.sum().item() == pytest.approx(1)
    firsts = np.bincount([int(result.by_sentence().argmax()) for result in results])
    assert (abs(firsts - 100) < 4 * math.sqrt(300 * 2 / 9)).all()  # every sentence leads a third of the time
    tokens = METHODS["random"]().attribute(model, sample).scores[:3]
    assert not torch.allclose(tokens / tokens[0], results[0].by_sentence() / results[0].by_sentence()[0])
    with pytest.raises(ValueError, match="needs Sample.sentences"):
        METHODS["random_sentences"]().attribute(model, tiny_sample())


def test_stored_draw_zero_serves(model, samples, tmp_path):
    store, options = Store(tmp_path / "x"), dict(scorer=Scorer(model), progress=False)
    plain = evaluate([METHODS["random"]()], samples, model, store=store, **options)
    assert len(store) == 3
    drawn = evaluate(random_draws(3), samples, model, store=store, **options)
    assert len(store) == 9
    first = drawn[drawn["method"] == "random/0"].reset_index(drop=True)
    pd.testing.assert_frame_equal(first.drop(columns="method"), plain.drop(columns="method"))


# --- their mean


def table(n_samples=12, n_draws=20, seed=0, metric="rise"):
    """A good method at 0.3 and random draws around 0.5, with noise of their own; samples differ in level."""
    random, rows = np.random.default_rng(seed), []
    for i in range(n_samples):
        shared = {"sample": f"s{i}", "task": "t", "cell": f"c{i % 2}", "metric": metric, "n_input": 100 + i,
                  "cluster": None, "curve_dtype": "float32"}  # fmt: skip
        level = random.normal(0, 0.02)
        rows.append(shared | {"method": "good", "value": 0.3 + level, "flagged": False, "seconds": 1.0, "key": f"g{i}"})
        for draw, value in enumerate(random.normal(0.5 + level, 0.1, n_draws)):
            rows.append(shared | {"method": f"random/{draw}", "value": value, "flagged": draw == 3 and i == 0,
                                  "seconds": float(draw), "key": f"r{i}/{draw}"})  # fmt: skip
    return pd.DataFrame(rows)


def test_draws_become_one_row_a_sample_and_metric():
    frame = pd.concat([table(4, 3), table(4, 3, 1, "mas")])  # an index with repeats
    merged = mean_over_draws(frame)
    assert list(merged.columns) == list(frame.columns) and len(merged) == 4 * 2 * 2
    assert merged["method"].tolist() == ["good", "random"] * 8
    for (sample, metric), part in frame[frame["method"] != "good"].groupby(["sample", "metric"]):
        row = merged[merged["method"] == "random"].set_index(["sample", "metric"]).loc[(sample, metric)]
        assert row["value"] == pytest.approx(np.mean(part["value"].tolist())) and row["seconds"] == 1
        assert row["key"] == part["key"].iloc[0] and row["n_input"] == part["n_input"].iloc[0]
    flagged = mean_over_draws(table(4, 5)).query("flagged")
    assert flagged[["sample", "method"]].to_numpy().tolist() == [["s0", "random"]]
    pd.testing.assert_frame_equal(mean_over_draws(merged), merged)
    untouched = frame[frame["method"] == "good"].reset_index(drop=True)
    pd.testing.assert_frame_equal(merged[merged["method"] == "good"].reset_index(drop=True), untouched)


def test_both_baselines_and_added_columns_stay_apart():
    frame = table(3, 4)
    sentences = frame.assign(method=frame["method"].str.replace("random", "random_sentences"), value=frame["value"] + 1)
    both = pd.concat([frame, sentences[sentences["method"] != "good"]])
    models = pd.concat([both.assign(model="a"), both.assign(model="b", value=both["value"] + 10)])
    merged = mean_over_draws(models)
    means = merged.groupby(["model", "method"])["value"].mean()
    assert len(merged) == 2 * 3 * 3 and means["b", "random"] == pytest.approx(means["a", "random"] + 10)
    assert means["a", "random_sentences"] == pytest.approx(means["a", "random"] + 1)


def test_a_plain_random_row_is_one_of_the_draws():
    frame = table(3, 4)
    renamed = frame.replace({"method": {"random/0": "random"}})  # stored before there were draws
    pd.testing.assert_frame_equal(mean_over_draws(renamed), mean_over_draws(frame))
    twice = pd.concat([frame, renamed[renamed["method"] == "random"]])
    pd.testing.assert_frame_equal(mean_over_draws(twice), mean_over_draws(frame))
    alone = frame[frame["method"].isin(["good", "random/0"])].replace({"method": {"random/0": "random"}})
    pd.testing.assert_frame_equal(mean_over_draws(alone), alone.reset_index(drop=True))


def test_the_interval_narrows_with_the_draws():
    widths = {}
    for n_draws in (1, 20):
        frame = mean_over_draws(table(12, n_draws))
        row = statistics.against(frame, "random").iloc[0]
        assert row["method"] == row["better"] == "good" and row["n"] == 12
        assert row["low"] < -0.2 < row["high"]
        widths[n_draws] = row["high"] - row["low"]
    assert widths[20] == pytest.approx(widths[1] / math.sqrt(20), rel=0.5)
    summary = summarise(mean_over_draws(table(12, 20)), ("method", "metric")).set_index("method")
    assert summary.loc["random", "n"] == 12 and summary.loc["random", "flagged"] == 1


def test_the_spread_of_the_mean_over_draws_is_that_of_a_mean():
    draws = {n: [mean_over_draws(table(1, n, seed)).iloc[1]["value"] - 0.5 for seed in range(200)] for n in (1, 20)}
    assert np.std(draws[20]) == pytest.approx(math.sqrt(0.02**2 + 0.1**2 / 20), rel=0.2)
    assert np.std(draws[1]) == pytest.approx(math.sqrt(0.02**2 + 0.1**2), rel=0.2)


# --- calibrated RISE


def test_calibrated_rows_by_hand_before_and_after_the_mean():
    frame = pd.concat([table(4, 5).assign(flagged=False), table(4, 5, 1, "mas")], ignore_index=True)
    merged = mean_over_draws(frame)
    after = add_calibrated(merged)
    pd.testing.assert_frame_equal(after.head(len(merged)), merged)
    added = after.iloc[len(merged) :].set_index(["sample", "method"])
    assert set(added["metric"]) == {"rise_calibrated"} and len(added) == 8 and not added["flagged"].any()
    rise = merged[merged["metric"] == "rise"].set_index(["sample", "method"])["value"]
    for sample in ("s0", "s3"):
        good, random = rise[sample, "good"], rise[sample, "random"]
        assert added.loc[(sample, "good"), "value"] == pytest.approx((random - good) / (random - 0.025))
        assert added.loc[(sample, "random"), "value"] == 0
    draws_first = mean_over_draws(add_calibrated(frame)).set_index(["sample", "method", "metric"])["value"]
    means_first = after.set_index(["sample", "method", "metric"])["value"]
    assert draws_first.sort_index().to_numpy() == pytest.approx(means_first.sort_index().to_numpy(), abs=1e-12)


def test_the_best_may_be_one_number_or_one_for_each_sample():
    merged = mean_over_draws(table(2, 5).assign(flagged=False))
    rise = merged.set_index(["sample", "method"])["value"]

    def good(**options):
        found = add_calibrated(merged, **options).query("metric == 'rise_calibrated' and method == 'good'")
        return dict(zip(found["sample"], found["value"], strict=True))

    assert good(best={s: rise[s, "good"] for s in ("s0", "s1")}) == {"s0": 1, "s1": 1}
    by_hand = {s: (rise[s, "random"] - rise[s, "good"]) / (rise[s, "random"] - 0.1) for s in ("s0", "s1")}
    assert good(best=0.1) == pytest.approx(by_hand) == good(steps=5)
    with pytest.raises(ValueError, match=r"best has no value for the samples \['s1'\]"):
        good(best={"s0": 0.1})


def test_flagged_samples_are_counted_and_left_out():
    merged = mean_over_draws(table(8, 5).assign(flagged=False))
    flagged = merged["sample"] == "s2"
    worst = merged.assign(value=merged["value"].mask(flagged, 1.0), flagged=flagged)
    found = add_calibrated(worst)
    kept = found.query("metric == 'rise_calibrated' and method == 'good'")
    assert kept["value"].isna().tolist() == kept["flagged"].tolist() == [i == 2 for i in range(8)]
    row = summarise(found, ("method", "metric")).set_index(["method", "metric"]).loc[("good", "rise_calibrated")]
    assert row["n"] == 7 and row["flagged"] == 1 and row["mean"] == pytest.approx(kept["value"].mean())
    paired = statistics.against(found, "random").set_index("metric")
    assert paired.loc["rise_calibrated", "n"] == 7 and paired.loc["rise_calibrated", "better"] == "good"
    nothing_to_gain = add_calibrated(merged, best=0.9).query("metric == 'rise_calibrated'")
    assert nothing_to_gain["value"].isna().all() and nothing_to_gain["flagged"].all()


def test_a_frame_without_the_baseline_is_refused():
    frame = table(2, 3)
    with pytest.raises(ValueError, match=r"no RISE of random on the samples \['s0', 's1'\].*random_draws"):
        add_calibrated(frame[frame["method"] == "good"])
    with pytest.raises(ValueError, match="no RISE of random_sentences"):
        add_calibrated(frame, baseline="random_sentences")
    with pytest.raises(ValueError, match="baseline is one of"):
        add_calibrated(frame, baseline="position")


def test_an_evaluation_with_draws_end_to_end(model, samples):
    frame = evaluate({"a": Embedding(), **random_draws(4)}, samples, model, scorer=Scorer(model), progress=False)
    found = add_calibrated(mean_over_draws(frame))
    assert set(found["method"]) == {"a", "random"} and len(found) == 2 * (3 + 3 + 2 + 3)
    assert (found["flagged"] | found["value"].notna()).all()
