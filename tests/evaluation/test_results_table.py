"""Stored records become tables: metrics of a record, what is flagged, and summaries with the intervals of clusters."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from flashtrace_lib import metrics
from flashtrace_lib.evaluation import METRICS, frame_from_records, summarise
from flashtrace_lib.evaluation.results_table import record_of
from flashtrace_lib.metrics import mean_interval


def test_an_attribution_that_ranks_nothing_is_flagged_on_every_metric_of_a_ranking():
    curve = {"log_probs": [0.0, -1.0, -2.0], "cumulative": [0.0, 0.5, 1.0]}
    record = {"sample": "s", "method": "a", "gold": [True, False, False, False], "scores": [0.0] * 4, **curve}
    names = ("recovery", "r_precision", "rise", "mas")
    nothing, ranked = (
        frame_from_records([record | {"scores": scores}], names).set_index("metric")
        for scores in ([0.0] * 4, [1.0, 0.0, 0.0, 0.0])
    )
    assert nothing["flagged"].all() and not ranked["flagged"].any()
    assert nothing.loc["recovery", "value"] == 0.25 and ranked.loc["recovery", "value"] == 1
    assert summarise(nothing.reset_index().assign(cell="c")).set_index("metric").loc["recovery", "flagged"] == 1


def test_flagged_samples_are_marked_and_counted():
    shared = dict(sample="s", task="t", cell="c", method="m", seconds=1.0, scores=[1.0, 0.0], gold=None)
    curves = ([0.0, -1.0, -10.0], [0.0, -9.0, -10.0], [-10.0, -1.0, -2.0])
    records = [shared | {"log_probs": curve, "cumulative": [0.0, 0.5, 1.0]} for curve in curves]
    frame = frame_from_records(records, metrics=("rise",))
    assert frame["value"].tolist() == pytest.approx([0.7, 0.3, 1.0])
    assert frame["flagged"].tolist() == [False, False, True]
    row = summarise(frame).iloc[0]
    assert row["mean"] == pytest.approx(2 / 3) and row["n"] == 3 and row["flagged"] == 1
    trap = frame_from_records(records, metrics=("rise",), denominator="absolute")
    assert trap["value"].tolist() == pytest.approx([0.7, 0.3, 0.0]) and trap["flagged"].tolist()[2]


def test_the_interval_of_a_summary_is_of_its_records():
    values = np.random.default_rng(0).normal(size=(7, 2))
    rows = [{"sample": f"s{i}", "method": "m", "cell": f"c{k}", "metric": "rise", "value": values[i, k],
             "flagged": False} for i in range(7) for k in range(2)]  # fmt: skip
    for k, row in enumerate(summarise(pd.DataFrame(rows)).itertuples()):
        assert (row.low, row.high) == pytest.approx(mean_interval(values[:, k])) and row.n == 7
    pooled = summarise(pd.DataFrame(rows), ("method", "metric")).iloc[0]
    assert (pooled["low"], pooled["high"]) == pytest.approx(mean_interval(values.mean(1))) and pooled["n"] == 14
    ids = pd.Series(["5ae26cb15542994d89d5b421_5", "5ae26cb15542994d89d5b421_12", "mq_q2-256-essay-s0-1", "gsm8k-3"])
    assert record_of(ids).tolist() == ["5ae26cb15542994d89d5b421"] * 2 + ids[2:].tolist()
    few = summarise(pd.DataFrame(rows[:10]), ("method", "metric")).iloc[0]  # ten values of five records
    assert few["n"] == 10 and math.isnan(few["low"]) and math.isnan(few["high"])


def test_samples_of_one_template_are_one_cluster():
    """Ten problems from six templates are six independent ones; from five they have no interval."""
    values = 1.0 * (np.random.default_rng(1).uniform(size=10) > 0.2)

    def records(n_templates):
        return [
            {"sample": f"p{i}", "task": "math", "cell": "gsm8k", "method": "m", "scores": [1.0, value],
             "gold": [True, False], "seconds": 0.0,
             "sample_metadata": json.dumps({"template": f"apples/{i % n_templates}"})}
            for i, value in enumerate(values)
        ]  # fmt: skip

    frame = frame_from_records(records(6), ("recovery",)).assign(value=values)
    row, labels = summarise(frame).iloc[0], [f"math/apples/{i % 6}" for i in range(10)]
    assert frame["cluster"].tolist() == labels
    assert (row["low"], row["high"]) == pytest.approx(mean_interval(values, clusters=labels, within=(0, 1)))
    assert (row["n"], row["n_effective"], row["high"]) == (10, 6, 1)
    few = summarise(frame_from_records(records(5), ("recovery",)).assign(value=values)).iloc[0]
    assert math.isnan(few["low"]) and few["n"] == 10


def test_averaged_draws_have_their_values_in_place_of_scores():
    record = {"sample": "s", "method": "random", "values": json.dumps({"rise": 0.5, "recovery": 0.1}), "scores": None}
    frame = frame_from_records([record], ("recovery", "lds", "rise"))
    assert dict(zip(frame["metric"], frame["value"], strict=True)) == {"recovery": 0.1, "rise": 0.5}
    assert not frame["flagged"].any()


# --- metrics of a record


RECORD = {
    "sample": "s", "task": "t", "cell": "c", "method": "m", "seconds": 1.0, "method_metadata": "{}",
    "scores": [3.0, 0.0, 1.0, 1.0, 1.0, 5.0, 0.0, 0.0, 9.0, 9.0, 8.0, 7.0],
    "gold": [False] * 2 + [True] + [False] * 4 + [True] + [False] * 4, "haystack": [0, 8],
}  # fmt: skip
ON_GOLD = ("recovery", "r_precision", "recovery_haystack", "r_precision_haystack", "auroc_haystack")


def on_gold(record):
    frame = frame_from_records([record], ON_GOLD)
    return dict(zip(frame["metric"], frame["value"], strict=True))


def test_metrics_of_a_record_by_hand():
    found, scores, gold = on_gold(RECORD), RECORD["scores"], RECORD["gold"]
    assert found == {
        "recovery": metrics.recovery_rate(scores, gold), "r_precision": metrics.r_precision(scores, gold),
        "recovery_haystack": metrics.recovery_rate(scores[:8], gold[:8]),
        "r_precision_haystack": metrics.r_precision(scores[:8], gold[:8]),
        "auroc_haystack": metrics.auroc(scores[:8], gold[:8]),
    }  # fmt: skip
    assert set(metrics.HIGHER_IS_BETTER) == set(METRICS) == {*ON_GOLD, "rank", "first", "lds", "rise", "mas"}


def test_the_place_of_the_sentence_that_holds_the_evidence():
    places = RECORD | {"sentences": [[0, 2], [2, 4], [4, 9], [9, 12]], "gold": [False] * 2 + [True] + [False] * 9}

    def found(scores, first=0, words=None):
        record = places | {"scores": [*scores, 9.0, 9.0, 9.0, 9.0], "haystack": [first, 8], "words": words}
        return frame_from_records([record], ("rank", "first"))["value"].tolist()

    assert found([3.0, 0, 1, 1, 1, 5, 0, 0]) == [3, 0]  # of sums 3, 2, 6; what lies behind the haystack does not count
    assert found([0.0, 0, 1, 1, 1, 0, 0, 0]) == [1, 1]
    assert found([2.0, 0, 1, 1, 1, 0, 0, 0]) == [1.5, 0.5]  # by expectation over the orders of a tie
    copied = {"method_metadata": '{"units": "sentence", "options": {"spread": "copy"}}', "haystack": [0, 8]}
    copied |= {"scores": [-1.0] * 2 + [-3.0] * 2 + [-2.0] * 8, "words": [True] * 3 + [False] + [True] * 8}
    assert frame_from_records([places | copied], ("rank",))["value"].tolist() == [3]  # on white space, too
    assert found([3.0, 0, 1, 1, 1, 5, 0, 0], words=[True] * 5 + [False] * 7) == [2, 0]  # of sums 3, 2, 1
    assert frame_from_records([places | {"scores": [0.0] * 8 + [9.0] * 4}], ("rank", "first"))["flagged"].all()
    assert found([9.0, 3, 1, 1, 1, 0, 0, 0], first=1) == [2, 0]  # of a sentence that begins before it, the part within


def test_samples_without_an_id_are_independent():
    records = [RECORD | {"sample": "sample", "sample_key": str(i), "scores": [float(i)] * 12} for i in range(4)]
    assert frame_from_records(records, ("recovery",))["cluster"].tolist() == ["0", "1", "2", "3"]


def test_a_record_without_gold_or_haystack_has_no_such_metric():
    assert on_gold(RECORD | {"gold": None}) == on_gold(RECORD | {"gold": [False] * 12}) == {}
    assert set(on_gold(RECORD | {"haystack": None})) == {"recovery", "r_precision"}
    mixed = frame_from_records(pd.DataFrame([RECORD, {k: v for k, v in RECORD.items() if k != "haystack"}]), ON_GOLD)
    assert len(mixed) == 7
    assert set(on_gold(RECORD | {"gold": [False] * 9 + [True] * 3})) == {"recovery", "r_precision"}
    assert "auroc_haystack" not in on_gold(RECORD | {"gold": [True] * 8 + [False] * 4})  # nothing to compare with


def test_what_ranks_nothing_in_its_part_is_flagged_there():
    record = RECORD | {"scores": [0.0] * 8 + [1.0, 2.0, 3.0, 4.0]}
    flagged = frame_from_records([record], ON_GOLD).set_index("metric")["flagged"]
    assert flagged[flagged].index.tolist() == [name for name in ON_GOLD if name.endswith("_haystack")]
    assert on_gold(record)["auroc_haystack"] == 0.5 and on_gold(record)["r_precision_haystack"] == 2 / 8
