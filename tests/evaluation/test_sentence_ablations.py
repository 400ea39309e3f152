"""Sentence ablations in an evaluation: once a sample, for all methods, found again, added later, audited."""

import json

import pandas as pd
import pytest
import torch

from flashtrace_lib.evaluation import audit, audit_masks, auditing, evaluate, frame_from_records
from flashtrace_lib.evaluation.ablations import MASK_COLUMNS, masks_beside, source_scores, with_masks
from flashtrace_lib.evaluation.recorder import Recorder
from flashtrace_lib.methods import Perturbation
from flashtrace_lib.metrics import HIGHER_IS_BETTER, Scorer, lds, sentence_effects
from flashtrace_lib.store import Store
from tests.metrics.test_ablation import haystack_sample, naive_effects
from tests.oracles.embedding import CALLS, METHODS, Embedding

NAMES = ("lds", "lds_log_prob", "lds_output", "drop1", "drop3", "drop5", "keep1", "keep3", "keep5")


@pytest.fixture
def samples():
    CALLS.clear()
    return [haystack_sample(seed=seed) for seed in range(2)]


def run(methods, samples, model, scorer=None, metrics=NAMES, **options):
    scorer = scorer or Scorer(model)
    return evaluate(methods, samples, model, scorer=scorer, metrics=metrics, progress=False, **options)


def values(frame):
    return frame.set_index(["sample", "method", "metric"])["value"]


def test_values_are_those_of_the_definitions(model, samples, tmp_path):
    store = Store(tmp_path / "x")
    frame = run(METHODS, samples, model, store=store, masks=20)
    assert len(frame) == 2 * 2 * len(NAMES) and all(HIGHER_IS_BETTER[name] for name in NAMES)
    assert (frame["curve_dtype"] == "float32").all() and not frame["flagged"].any()
    record = masks_beside(store).records().set_index("sample").loc["tiny-1"]
    masks = torch.tensor(record["masks"])
    assert masks.shape == (20, 5) and len(record["mask_log_probs"]) == 22 and record["mask_sources"][0] == [0, 6]
    effects = sentence_effects(model, samples[1], masks)
    scores = METHODS["b"].attribute(model, samples[1]).scores.double()
    sources = samples[1].sources
    tau = torch.tensor([scores[a - 3 : b - 3].sum() for a, b in sources])
    found = values(frame)["tiny-1", "b"]
    assert found["lds"] == pytest.approx(lds(tau, masks, effects.log_odds[:, :2].sum(1)))
    assert found["lds_log_prob"] == pytest.approx(lds(tau, masks, effects.log_prob[:, :2].sum(1)))
    assert found["lds_output"] == pytest.approx(lds(tau, masks, effects.log_prob[:, 1]))
    first = int(tau.argmax())
    rows = torch.tensor([[True] * 5, [u != first for u in range(5)], [u == first for u in range(5)], [False] * 5])
    every, off, only, none = naive_effects(model, samples[1], rows, sources, [(60, 75), (77, 88)])[0].sum(1).tolist()
    assert found["drop1"] == pytest.approx(every - off, abs=1e-3)
    assert found["keep1"] == pytest.approx(only - none, abs=1e-3)
    assert found["drop5"] == pytest.approx(every - none, abs=1e-3) == pytest.approx(found["keep5"], abs=1e-3)


def test_masks_serve_every_method_and_are_found_again(model, samples, tmp_path):
    store, scorer = Store(tmp_path / "x"), Scorer(model)
    frame = run(METHODS, samples, model, scorer, store=store, masks=20, metrics=("lds",))
    assert scorer.n_contexts <= 2 * 22 and len(masks_beside(store)) == 2 and len(CALLS) == 4
    assert not set(MASK_COLUMNS) & set(store.records().columns)  # stored once, not with every method
    done = scorer.n_contexts
    again = run(METHODS | {"c": Embedding(2.0)}, samples, model, scorer, store=store, masks=20, metrics=("lds",))
    assert scorer.n_contexts == done and len(CALLS) == 6
    pd.testing.assert_frame_equal(again[again["method"] != "c"].reset_index(drop=True), frame)
    run(METHODS, samples, model, scorer, store=store, masks=10, metrics=("lds",))
    assert len(masks_beside(store)) == 4 and len(CALLS) == 6 and len(store) == 6


def test_parts_are_added_later_without_attributing_again(model, samples, tmp_path):
    store, scorer = Store(tmp_path / "x"), Scorer(model)
    run(METHODS, samples, model, scorer, store=store, metrics=("recovery",))
    assert scorer.n_contexts == 0 and len(CALLS) == 4
    run(METHODS, samples, model, scorer, store=store, metrics=("drop1",))
    assert 0 < scorer.n_contexts <= 2 * (2 + 2 * 6) and not len(masks_beside(store))
    both = run(METHODS, samples, model, scorer, store=store, masks=20)
    assert len(CALLS) == 4 and len(store) == 4
    at_once = run(METHODS, samples, model, masks=20)
    pd.testing.assert_frame_equal(both.drop(columns="seconds"), at_once.drop(columns="seconds"))
    curves = run(METHODS, samples, model, scorer, store=store, metrics=("rise", *NAMES), masks=20)
    assert set(curves["metric"]) == {"rise", *NAMES} and len(CALLS) == 8
    records = store.records()
    assert records["masks_key"].notna().all() and records["drop_log_probs"].notna().all()


def test_a_stored_table_needs_no_model(model, samples, tmp_path):
    store = Store(tmp_path / "x")
    frame = run(METHODS, samples, model, store=store, masks=20)
    assert not masks_beside(store).parts.exists() or not list(masks_beside(store).parts.glob("*.parquet"))
    store.compact()
    read = frame_from_records(Store(store.path), NAMES)
    pd.testing.assert_series_equal(values(read).sort_index(), values(frame).sort_index())
    without = frame_from_records(store.records(), NAMES)  # the masks are not in it
    assert set(without["metric"]) == set(NAMES[3:])


def test_another_haystack_means_other_masks(model, samples, tmp_path):
    store, sample = Store(tmp_path / "x"), samples[0]
    run([Embedding()], [sample], model, store=store, masks=20)
    sample.metadata["question_start"] = 41
    frame = run([Embedding()], [sample], model, store=store, masks=20)
    fresh = run([Embedding()], [sample], model, masks=20)
    pd.testing.assert_series_equal(values(frame), values(fresh))
    assert len(masks_beside(store)) == 2 and len(store) == 1


def test_copied_scores_count_once(model, samples):
    metadata = {"units": "sentence", "options": {"spread": "copy"}}
    copied = {"scores": [0.5] * 6 + [0.2] * 5 + [0.0] * 43, "method_metadata": json.dumps(metadata)}
    sources = [[0, 6], [6, 11]]
    assert source_scores(copied, sources).tolist() == pytest.approx([0.5, 0.2])
    assert source_scores(copied | {"method_metadata": "{}"}, sources).tolist() == pytest.approx([3.0, 1.0])
    frame = run([Perturbation(units="sentence")], samples[:1], model, masks=20, metrics=("lds",))
    signed = Perturbation(units="sentence").attribute(model, samples[0]).by_sentence()[:5]
    record = run_record(model, samples[0])
    assert frame["value"].item() == pytest.approx(lds(signed, record["masks"], record["odds"]))


def run_record(model, sample):
    """Masks of the evaluation and the log-odds of T ∪ O under them."""
    masks = Recorder(model, Scorer(model), 20).masks(sample, 20)["masks"]
    return {"masks": masks, "odds": sentence_effects(model, sample, torch.tensor(masks)).log_odds[:, :2].sum(1)}


def test_a_method_that_ranks_no_sentence_is_flagged(model, samples):
    class Question(Embedding):
        """All on the question, which is no source."""

        def _attribute(self, model, sample):
            found = super()._attribute(model, sample)
            found.scores[: 50 - 3] = 0
            return found

    frame = run({"question": Question(), "a": Embedding()}, samples[:1], model, masks=20)
    flagged = frame.groupby("method")["flagged"]
    assert flagged.all()["question"] and not flagged.any()["a"]
    assert frame[(frame["method"] == "question") & frame["metric"].str.startswith("lds")]["value"].eq(0).all()


# --- arithmetic


def test_ablations_are_computed_in_the_chosen_arithmetic_and_go_on_in_it(model, samples, tmp_path, monkeypatch):
    monkeypatch.setattr("flashtrace_lib.metrics.arithmetic._native_bfloat16", lambda: True)
    monkeypatch.setattr("flashtrace_lib.metrics.deletion.is_flagged", lambda curve: False)
    store = Store(tmp_path / "x")
    for tolerance, chosen in ((9.0, samples[:1]), (-1.0, samples)):  # the second would choose float32
        scorer = Scorer(model, precision="auto", tolerance=tolerance)
        frame = run(METHODS, chosen, model, scorer, store=store, masks=20, metrics=("lds",))
        assert set(frame["curve_dtype"]) == {"bfloat16"}
    notes = masks_beside(store).records()["masks_note"]
    assert notes.nunique() == 1 and notes.iloc[0].startswith("bfloat16: bfloat16 changes RISE by")
    monkeypatch.setattr("flashtrace_lib.metrics.arithmetic._native_bfloat16", lambda: False)
    done = Scorer(model, precision="auto")
    frame = run(METHODS, samples, model, done, store=store, masks=20, metrics=("lds",))
    assert set(frame["curve_dtype"]) == {"bfloat16"} and done.n_contexts == 0  # what is stored serves any machine


# --- the audit


def test_the_audit_draws_and_scores_the_masks_again(model, samples, tmp_path):
    store = Store(tmp_path / "x")
    run(METHODS, samples, model, store=store, masks=20)
    report = audit(METHODS, samples, model, store, k=4, scorer=Scorer(model))
    assert report["agrees"].all() and {"masks", "mask_log_odds", "drop_log_probs", *NAMES} <= set(report["quantity"])
    for record in masks_beside(store).records().to_dict("records"):
        sample = next(s for s in samples if s.id == record["sample"])
        assert audit_masks(record, sample, model, Scorer(model))["agrees"].all()


@pytest.mark.parametrize("column", ["masks", "mask_log_probs", "mask_log_odds", "drop_log_probs", "keep_log_probs"])
def test_the_audit_finds_what_was_tampered_with(model, samples, tmp_path, column):
    store = Store(tmp_path / "x")
    run([Embedding()], samples[:1], model, store=store, masks=20)
    owner = masks_beside(store) if column.startswith("mask") else store
    record = owner.records().iloc[0].to_dict()
    owner.put(record["key"], record | {column: record[column][::-1]})
    report = audit([Embedding()], samples[:1], model, store, scorer=Scorer(model))
    assert column in set(report[~report["agrees"]]["quantity"])
    if owner is not store:
        assert not audit_masks(owner.records().iloc[0].to_dict(), samples[0], model, Scorer(model))["agrees"].all()


def test_a_near_tie_of_two_masks_is_no_false_alarm(model, samples, tmp_path):
    store = Store(tmp_path / "x")
    run([Embedding()], samples[:1], model, store=store, masks=4)
    stored = with_masks(store.records().iloc[0].to_dict(), masks_beside(store))
    stored |= {"scores": [float(i) for i in range(len(stored["scores"]))]}  # later sentences weigh more
    # Spans of T and O in the columns; the first two masks are nearly tied, all kept and none beside the four.
    stored["mask_log_probs"] = [[-5.0, -1.0], [-5.0001, -1.0], [-7.0, -1.0], [-9.0, -1.0], [-1.0, -1.0], [-11.0, -1.0]]
    other_machine = dict(stored)
    other_machine["mask_log_probs"] = [stored["mask_log_probs"][i] for i in (1, 0, 2, 3, 4, 5)]
    assert abs(auditing._metric("lds_log_prob", stored) - auditing._metric("lds_log_prob", other_machine)) > 0.1
    report = pd.DataFrame(auditing._compare(stored, other_machine)).set_index("quantity")
    assert report["agrees"].all()
    far = dict(stored, mask_log_probs=[stored["mask_log_probs"][i] for i in (2, 1, 0, 3, 4, 5)])
    report = pd.DataFrame(auditing._compare(stored, far)).set_index("quantity")
    assert not report.loc["mask_log_probs", "agrees"] and not report.loc["lds_log_prob", "agrees"]


# --- bad input


def test_bad_input_is_named(model, samples):
    with pytest.raises(ValueError, match="at least 2, got 1"):
        run(METHODS, samples, model, masks=1)
    samples[0].sentences = None
    with pytest.raises(ValueError, match="no sentences in its haystack") as caught:
        run(METHODS, samples, model)
    assert "sentence ablations on sample tiny-0" in caught.value.__notes__[0]


def test_another_target_of_the_same_context_is_scored_again(model, samples):
    """T and O have columns of their own: what was scored for other spans is not theirs."""
    first = samples[0]
    start, stop = first.segments.output
    other = first.with_output((stop - 1, stop))
    methods, metrics = list(METHODS.values())[:1], ("drop1", "lds_output")
    together = run(methods, [first, other], model, metrics=metrics)
    alone = run(methods, [other], model, metrics=metrics)
    found = together[len(together) // 2 :]["value"].tolist()
    assert start < stop - 1 and found == pytest.approx(alone["value"].tolist(), nan_ok=True)
    assert found != pytest.approx(together[: len(together) // 2]["value"].tolist())
