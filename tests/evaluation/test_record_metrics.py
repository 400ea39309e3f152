"""Ranking metrics of stored records: which units they rank, what they leave out, when they are flagged."""

import json

import numpy as np
import pandas as pd
import pytest

from flashtrace_lib import metrics as m
from flashtrace_lib.attribution import sentences_of_input
from flashtrace_lib.evaluation import audit, evaluate, frame_from_records
from flashtrace_lib.evaluation.record_metrics import ON_GOLD
from flashtrace_lib.evaluation.results_table import METRICS, OF_RANKING
from flashtrace_lib.methods import METHODS
from flashtrace_lib.metrics import HIGHER_IS_BETTER
from flashtrace_lib.metrics.deletion import Scorer
from flashtrace_lib.store import Store
from tests.oracles.embedding import METHODS as EMBEDDINGS

COPIES = json.dumps({"units": "sentence", "options": {"spread": "copy"}})
# Twelve tokens in five sentences, the question in the last two of them; the haystack cuts the fourth in two.
RECORD = {
    "sample": "s", "task": "t", "cell": "c", "method": "m", "seconds": 1.0, "method_metadata": "{}",
    "scores": [3.0, 0.0, 1.0, 1.0, 1.0, 5.0, 0.0, 0.0, 9.0, 9.0, 8.0, 7.0],
    "gold": [False] * 2 + [True] + [False] * 4 + [True] + [False] * 4,
    "sentences": [[0, 2], [2, 5], [5, 6], [6, 9], [9, 12]], "haystack": [0, 8],
}  # fmt: skip


def values(record, names=tuple(ON_GOLD)):
    frame = frame_from_records([record], names)
    return dict(zip(frame["metric"], frame["value"], strict=True))


def test_metrics_of_a_record_by_hand():
    found = values(RECORD)
    of_tokens = {
        "recovery": m.recovery_rate, "r_precision": m.r_precision, "auroc": m.auroc, "ap": m.average_precision,
        "pointing": m.pointing, "recovery_cap": lambda scores, gold: m.recovery_cap(gold),
    }  # fmt: skip
    for name, metric in of_tokens.items():
        assert found[name] == metric(RECORD["scores"], RECORD["gold"])
        assert found[f"{name}_haystack"] == metric(RECORD["scores"][:8], RECORD["gold"][:8])
    # Sentences sum to 3, 3 (gold), 5, 9 (gold), 24; without the question the fourth is [6, 8), gold, with a sum of 0.
    assert found["mrr"] == 1 / 2 and found["sentence_hit"] == 1 / 2
    # 5, then 3 and 3 in either order, then 0: the first gold one is second or third; two of four are gold
    assert found["mrr_haystack"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert found["sentence_hit_haystack"] == pytest.approx((1 / 2) / 2)
    assert set(found) == set(ON_GOLD)


def test_copies_of_a_sentences_score_are_not_added_up():
    record = RECORD | {"scores": [3.0] * 2 + [2.0] * 3 + [4.0] + [1.0] * 3 + [0.5] * 3}
    summed = values(record)  # 6, 6 (gold), 4, 3 (gold), 1.5
    copied = values(record | {"method_metadata": COPIES})  # 3, 2 (gold), 4, 1 (gold), 0.5
    assert summed["mrr"] == pytest.approx((1 + 1 / 2) / 2) and copied["mrr"] == pytest.approx(1 / 3)
    assert summed["sentence_hit"] == pytest.approx(1 / 2) and copied["sentence_hit"] == 0


def test_a_record_without_gold_or_columns_has_no_such_metric():
    assert values(RECORD | {"gold": None}) == values(RECORD | {"gold": [False] * 12}) == {}
    old = {name: value for name, value in RECORD.items() if name not in ("sentences", "haystack")}
    assert set(values(old)) == {name for name in ON_GOLD if name in ("recovery_ceil", "recovery_cap")} | {
        "recovery", "r_precision", "auroc", "ap", "pointing",
    }  # fmt: skip
    mixed = frame_from_records(pd.DataFrame([RECORD, old | {"sample": "old"}]), tuple(ON_GOLD))
    assert dict(mixed.groupby("sample").size()) == {"s": len(ON_GOLD), "old": 7}
    no_sentences = values(RECORD | {"sentences": []})
    assert "mrr" not in no_sentences and "auroc_haystack" in no_sentences
    in_question = values(RECORD | {"gold": [False] * 9 + [True] * 3})
    assert "auroc" in in_question and not any(name.endswith("_haystack") for name in in_question)
    assert "auroc" not in values(RECORD | {"gold": [True] * 12})  # nothing to compare with
    assert "auroc_haystack" not in values(RECORD | {"gold": [True] * 8 + [False] * 4})


def test_what_ranks_nothing_in_its_part_is_flagged_there():
    record = RECORD | {"scores": [0.0] * 8 + [1.0, 2.0, 3.0, 4.0]}
    flagged = frame_from_records([record], tuple(ON_GOLD)).set_index("metric")["flagged"]
    assert flagged[flagged].index.tolist() == [f"{name}_haystack" for name in m.OVER_HAYSTACK]
    found = values(record)
    assert found["auroc_haystack"] == 0.5 and found["pointing_haystack"] == found["r_precision_haystack"] == 2 / 8


def test_every_ranking_metric_has_a_better_side():
    assert set(OF_RANKING) <= set(HIGHER_IS_BETTER) and set(METRICS) - set(OF_RANKING) == {
        "recovery_cap", "recovery_cap_haystack",
    }  # fmt: skip


@pytest.fixture
def told(samples):
    """Samples whose sentences and question are known."""
    for sample in samples:
        sample.sentences = [*((i, i + 5) for i in range(2, 42, 5)), (44, 50), (52, 58)]
        sample.metadata["question_start"] = 32
    return samples


def test_an_evaluation_measures_them_on_what_the_sample_knows(model, told):
    methods = {"a": EMBEDDINGS["a"], "sentences": METHODS["random_sentences"]()}
    frame = evaluate(methods, told[:1], model, metrics=("ap_haystack", "mrr", "mrr_haystack"), progress=False)
    found = frame.set_index(["method", "metric"])["value"]
    spans, gold = sentences_of_input(told[0]), told[0].gold_in_prompt
    marks = [bool(gold[slice(*span)].any()) for span in spans]
    for label, method in methods.items():
        result = method.attribute(model, told[0])
        expected = result.by_sentence()
        assert found[label, "mrr"] == m.mrr(expected, marks)
        assert found[label, "mrr_haystack"] == m.mrr(expected[:6], marks[:6])
        assert found[label, "ap_haystack"] == m.average_precision(result.scores[:30], gold[:30])


def test_an_audit_of_records_from_before_the_columns_agrees(model, told, tmp_path):
    store, scorer = Store(tmp_path / "x"), Scorer(model)
    evaluate(EMBEDDINGS, told, model, store=store, scorer=scorer, progress=False)
    for record in store.records().to_dict("records"):
        old = {name: value for name, value in record.items() if name not in ("sentences", "haystack")}
        store.put(record["key"], old)
    report = audit(EMBEDDINGS, told, model, store, k=6, scorer=scorer)
    assert report["agrees"].all() and {"mrr_haystack", "ap_haystack"} <= set(report["quantity"])


def test_random_rankings_have_half_an_auroc(model, told):
    frame = evaluate(
        {str(seed): METHODS["random"](seed=seed) for seed in range(400)}, told[:1], model,
        metrics=("auroc", "auroc_haystack"), progress=False,
    )  # fmt: skip
    for _, part in frame.groupby("metric"):
        assert part["value"].mean() == pytest.approx(0.5, abs=4 * part["value"].std() / np.sqrt(400))
