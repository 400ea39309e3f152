"""Sentence ablations in an evaluation: once a sample, for all methods, found again, added later."""

import json

import pandas as pd
import pytest
import torch

from flashtrace_lib.evaluation import evaluate, frame_from_records
from flashtrace_lib.evaluation.ablations import MASK_COLUMNS, masks_beside, source_scores
from flashtrace_lib.methods import Perturbation
from flashtrace_lib.metrics import Scorer, lds, sentence_effects
from flashtrace_lib.store import Store
from tests.metrics.test_ablation import haystack_sample
from tests.oracles.embedding import CALLS, METHODS, Embedding


@pytest.fixture
def samples():
    CALLS.clear()
    return [haystack_sample(seed=seed) for seed in range(2)]


def run(methods, samples, model, scorer=None, metrics=("lds",), masks=20, **options):
    scorer = scorer or Scorer(model)
    return evaluate(model, methods, samples, scorer=scorer, metrics=metrics, masks=masks, progress=False, **options)


def values(frame):
    return frame.set_index(["sample", "method", "metric"])["value"]


def test_values_are_those_of_the_definition(model, samples, tmp_path):
    store = Store(tmp_path / "x")
    frame = run(METHODS, samples, model, store=store)
    assert len(frame) == 4 and (frame["curve_dtype"] == "float32").all() and not frame["flagged"].any()
    record = masks_beside(store).records().set_index("sample").loc["tiny-1"]
    masks = torch.tensor(record["masks"])
    assert masks.shape == (20, 5) and len(record["mask_log_probs"]) == 22 and record["mask_sources"][0] == [0, 6]
    effects = sentence_effects(model, samples[1], masks)
    scores = METHODS["b"].attribute(model, samples[1]).scores.double()
    tau = torch.tensor([scores[a - 3 : b - 3].sum() for a, b in samples[1].sources])
    assert values(frame)["tiny-1", "b", "lds"] == pytest.approx(lds(tau, masks, effects.log_odds[:, :2].sum(1)))


def test_masks_serve_every_method_and_are_found_again(model, samples, tmp_path):
    store, scorer = Store(tmp_path / "x"), Scorer(model)
    frame = run(METHODS, samples, model, scorer, store=store)
    assert scorer.n_contexts == 2 * 22 and len(masks_beside(store)) == 2 and len(CALLS) == 4
    assert not set(MASK_COLUMNS) & set(store.records().columns)  # stored once, not with every method
    again = run(METHODS | {"c": Embedding(2.0)}, samples, model, scorer, store=store)
    assert scorer.n_contexts == 2 * 22 and len(CALLS) == 6
    pd.testing.assert_frame_equal(again[again["method"] != "c"].reset_index(drop=True), frame)
    run(METHODS, samples, model, scorer, store=store, masks=10)
    assert len(masks_beside(store)) == 4 and len(CALLS) == 6 and len(store) == 6


def test_parts_are_added_later_without_attributing_again(model, samples, tmp_path):
    store, scorer = Store(tmp_path / "x"), Scorer(model)
    run(METHODS, samples, model, scorer, store=store, metrics=("recovery",))
    assert scorer.n_contexts == 0 and len(CALLS) == 4
    run(METHODS, samples, model, scorer, store=store)
    frame = run(METHODS, samples, model, scorer, store=store, metrics=("rise", "lds"))
    assert len(CALLS) == 4 and len(store) == 4
    at_once = run(METHODS, samples, model, metrics=("rise", "lds"))
    assert values(frame).tolist() == pytest.approx(values(at_once).tolist(), abs=1e-5)
    records = store.records()
    assert records["masks_key"].notna().all() and records["log_probs"].notna().all()


def test_a_stored_table_needs_no_model(model, samples, tmp_path):
    store = Store(tmp_path / "x")
    frame, read = run(METHODS, samples, model, store=store), frame_from_records(Store(store.path), ("lds",))
    pd.testing.assert_series_equal(values(read).sort_index(), values(frame).sort_index())
    assert frame_from_records(store.records(), ("lds",)).empty  # the masks are not in it


def test_another_haystack_means_other_masks(model, samples, tmp_path):
    store, sample = Store(tmp_path / "x"), samples[0]
    run([Embedding()], [sample], model, store=store)
    sample.metadata["question_start"] = 41
    frame = run([Embedding()], [sample], model, store=store)
    pd.testing.assert_series_equal(values(frame), values(run([Embedding()], [sample], model)))
    assert len(masks_beside(store)) == 2 and len(store) == 1


def test_copied_scores_count_once(model, samples):
    metadata = {"units": "sentence", "options": {"spread": "copy"}}
    copied = {"scores": [0.5] * 6 + [0.2] * 5 + [0.0] * 43, "method_metadata": json.dumps(metadata)}
    sources = [[0, 6], [6, 11]]
    assert source_scores(copied, sources).tolist() == pytest.approx([0.5, 0.2])
    assert source_scores(copied | {"method_metadata": "{}"}, sources).tolist() == pytest.approx([3.0, 1.0])
    attribution = Perturbation(units="sentence").attribute(model, samples[0])
    first = samples[0].segments.prompt[0]
    of_input = [[a - first, b - first] for a, b in samples[0].sources]
    record = {"scores": attribution.scores.tolist(), "method_metadata": json.dumps(attribution.metadata)}
    torch.testing.assert_close(source_scores(record, of_input).float(), attribution.by_sentence()[:5])


def test_a_method_that_ranks_no_sentence_is_flagged(model, samples):
    class Question(Embedding):
        """All on the question, which is no source."""

        def _attribute(self, model, sample):
            found = super()._attribute(model, sample)
            found.scores[: 50 - 3] = 0
            return found

    frame = run({"question": Question(), "a": Embedding()}, samples[:1], model).set_index("method")
    assert frame["flagged"].to_dict() == {"question": True, "a": False} and frame.loc["question", "value"] == 0


def test_bad_input_is_named(model, samples):
    with pytest.raises(ValueError, match="at least 2, got 1"):
        run(METHODS, samples, model, masks=1)
    samples[0].sentences = None
    with pytest.raises(ValueError, match="no sentences in its haystack") as caught:
        run(METHODS, samples, model)
    assert "sentence ablations on sample tiny-0" in caught.value.__notes__[0]
