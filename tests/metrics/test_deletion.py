"""The deletion curve against a plain loop of full forward passes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from flashtrace_lib import metrics
from flashtrace_lib.metrics import deletion
from flashtrace_lib.metrics.curve import bisected
from flashtrace_lib.metrics.deletion import Scorer, deletion_curve
from flashtrace_lib.sample import seeded_generator
from tests.oracles.tiny import FAMILIES, tiny_model, tiny_sample

LONG = dict(n=90, prompt=(3, 57), reasoning=(60, 75), output=(77, 88))


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


def random_scores(sample, seed=1):
    return torch.randn(len(sample.prompt_ids), generator=torch.Generator().manual_seed(seed))


def naive_curve(model, sample, scores, steps):
    """One unbatched forward over the whole context a step, all logits, token by token."""
    start = sample.segments.prompt[0]
    order, values = sorted(range(len(scores)), key=lambda i: (-float(scores[i]), i)), []
    for k in range(steps + 1):
        ids = sample.input_ids.clone()
        for i in order[: k * len(order) // steps]:
            ids[start + i] = sample.mask_token_id
        with torch.no_grad():
            log_probs = model(input_ids=ids[None]).logits[0].double().log_softmax(-1)
        values.append(sum(log_probs[t - 1, ids[t]].item() for t in range(*sample.response)))
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("family", FAMILIES)
def test_curve_equals_the_plain_loop(family):
    model, sample = tiny_model(family), tiny_sample(**LONG)
    scores = random_scores(sample)
    curve = deletion_curve(model, sample, scores, steps=20)
    assert torch.allclose(curve.log_probs, naive_curve(model, sample, scores, 20), atol=1e-3, rtol=1e-6)
    assert curve.log_probs.dtype == torch.float64 and curve.log_probs.shape == (21,)
    assert curve.dtype == "float32" and curve.mask_token_id == 0
    assert torch.allclose(curve.cumulative, metrics.cumulative(scores, 20))
    assert curve.n_masked[[0, -1]].tolist() == [0, 54]


def test_response_that_ends_before_the_context(model):
    sample = tiny_sample(n=30, prompt=(1, 12), reasoning=(13, 18), output=(18, 22))
    sample.response = (13, 23)
    scores = random_scores(sample)
    found = deletion_curve(model, sample, scores, 5).log_probs
    assert torch.allclose(found, naive_curve(model, sample, scores, 5), atol=1e-4)


def test_fewer_tokens_than_steps(model):
    sample = tiny_sample()  # seven input tokens
    scores, scorer = random_scores(sample), Scorer(model)
    curve = scorer.curve(sample, scores, 20)
    assert torch.allclose(curve.log_probs, naive_curve(model, sample, scores, 20), atol=1e-4)
    assert scorer.n_contexts == 8  # equal contexts are scored once


def test_methods_share_both_ends_of_the_curve(model):
    sample, scorer = tiny_sample(**LONG), Scorer(model)
    first = scorer.curve(sample, random_scores(sample, 1))
    assert scorer.n_contexts == 21
    second = scorer.curve(sample, random_scores(sample, 2))
    assert scorer.n_contexts == 21 + 19
    assert first.log_probs[0] == second.log_probs[0] and first.log_probs[-1] == second.log_probs[-1]
    assert not torch.equal(first.log_probs, second.log_probs)
    scorer.curve(tiny_sample(**LONG, seed=5), random_scores(sample))  # another sample shares nothing
    assert scorer.n_contexts == 21 + 19 + 21


# --- reduced precision


@pytest.fixture
def native(monkeypatch):
    """A CPU that computes in bfloat16."""
    monkeypatch.setattr(deletion, "_native_bfloat16", lambda: True)


def test_bfloat16_is_used_only_where_it_agrees(model, native):
    samples = (tiny_sample(**LONG, seed=seed) for seed in range(20))
    sample = next(s for s in samples if not metrics.is_flagged(deletion_curve(model, s, random_scores(s)).log_probs))
    scores, other = random_scores(sample), tiny_sample(**LONG, seed=30)
    exact = deletion_curve(model, sample, scores).log_probs
    parameters = {name: p.clone() for name, p in model.named_parameters()}
    for tolerance, dtype in ((10.0, "bfloat16"), (0.0, "float32")):
        scorer = Scorer(model, precision="auto", tolerance=tolerance)
        assert scorer.is_open and scorer.arithmetic == "float32"
        curve = scorer.curve(sample, scores)
        assert curve.dtype == scorer.dtype == dtype and curve.note.startswith(f"{dtype}: bfloat16 changes RISE by")
        assert torch.allclose(curve.log_probs, exact, atol=1e-4) == (dtype == "float32")
        assert scorer.curve(other, random_scores(other)).note == curve.note  # the first curve decides for all
        again = Scorer(model, precision="auto", dtype=dtype)
        assert torch.equal(again.curve(sample, scores).log_probs, curve.log_probs)  # whatever was computed before
    assert all(torch.equal(parameters[name], p) for name, p in model.named_parameters())


def test_a_sample_that_masking_does_not_hurt_decides_nothing(model, native, monkeypatch):
    scorer, sample = Scorer(model, precision="auto", tolerance=10.0), tiny_sample(**LONG)
    monkeypatch.setattr(deletion, "is_flagged", lambda curve: True)
    curve = scorer.curve(sample, random_scores(sample))
    assert scorer.is_open and curve.dtype == "float32" and "not yet" in curve.note
    monkeypatch.setattr(deletion, "is_flagged", lambda curve: False)
    assert scorer.curve(sample, random_scores(sample)).dtype == "bfloat16"


def test_masks_of_sentences_settle_the_arithmetic_too(model, native, monkeypatch):
    monkeypatch.setattr(deletion, "is_flagged", lambda curve: False)
    scorer, sample = Scorer(model, precision="auto", tolerance=10.0), tiny_sample(**LONG)
    sample.sentences = [(3, 20), (20, 57)]
    scorer.effects(sample, torch.ones(1, 2, dtype=torch.bool))
    assert scorer.arithmetic == "bfloat16"


def test_no_bfloat16_without_the_hardware_or_a_float32_model(model, monkeypatch):
    monkeypatch.setattr(deletion, "_native_bfloat16", lambda: False)
    sample = tiny_sample(**LONG)
    curve = Scorer(model, precision="auto", tolerance=10.0).curve(sample, random_scores(sample))
    assert curve.dtype == "float32" and "no bfloat16" in curve.note
    curve = Scorer(tiny_model("llama", dtype=torch.bfloat16), precision="auto").curve(sample, random_scores(sample))
    assert curve.dtype == "bfloat16" and "not a float32 model" in curve.note


def test_reduced_copy_keeps_tied_weights_and_buffers():
    model = tiny_model("gemma2")
    assert model.lm_head.weight is model.model.embed_tokens.weight
    reduced = deletion.bfloat16_copy(model)
    assert reduced.lm_head.weight is reduced.model.embed_tokens.weight
    assert all(b.dtype == dict(model.named_buffers())[name].dtype for name, b in reduced.named_buffers())


# --- bad input


def test_bad_input_is_named(model):
    sample = tiny_sample()
    unmasked = replace(sample, mask_token_id=None)
    for message, call in (
        ("one score for each token of the prompt", lambda: deletion_curve(model, sample, torch.ones(16))),
        ("NaN or infinite", lambda: deletion_curve(model, sample, torch.full((7,), float("nan")))),
        ("at least one step", lambda: deletion_curve(model, sample, torch.ones(7), steps=0)),
        ("pad token id", lambda: deletion_curve(model, unmasked, torch.ones(7))),
        ("precision", lambda: Scorer(model, precision="bfloat16")),
        ("dtype is .bfloat16. or that of the model", lambda: Scorer(model, dtype="float16")),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("scores", [torch.zeros(54), torch.full((54,), 0.3), torch.arange(54) // 20])
def test_tied_tokens_are_masked_in_a_random_order(model, scores):
    """Not in the order of the text: the ranking by position would be the attribution of no method."""
    sample = tiny_sample(**LONG)
    curve = deletion_curve(model, sample, scores, steps=54)
    by_position = deletion_curve(model, sample, scores * 100 - torch.arange(54), steps=54)
    assert curve.log_probs[0] == by_position.log_probs[0] and not torch.equal(curve.log_probs, by_position.log_probs)
    order = torch.randperm(54, generator=seeded_generator("no ranking", sample)).tolist()
    ranked = sorted(range(54), key=lambda i: (-float(scores[i]), order.index(i)))
    ranks = torch.empty(54).scatter_(0, torch.tensor(ranked), torch.arange(54, 0, -1.0))
    assert torch.equal(curve.log_probs, deletion_curve(model, sample, ranks, steps=54).log_probs)


def test_a_scorer_tells_samples_apart_by_what_masking_all_leaves(model):
    sample = tiny_sample(n=90, prompt=(3, 48), reasoning=(60, 75), output=(77, 88))
    turns = [{"role": "user", "start": a, "stop": b} for a, b in ((3, 39), (46, 48))]
    scorer, scores = Scorer(model), random_scores(sample)
    scorer.curve(replace(sample, metadata=sample.metadata | {"messages": turns}), scores, 45)
    found = scorer.curve(sample, scores, 45).log_probs
    torch.testing.assert_close(found, deletion_curve(model, sample, scores, 45).log_probs)


# --- fewer steps


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_bisected_curves_have_the_area_of_whole_ones_within_the_tolerance(noise):
    random, counts = np.random.default_rng(0), []
    for case in range(300):
        falls = random.dirichlet(np.full(20, 10.0 ** random.uniform(-1.5, 1))) * random.uniform(1, 300)
        whole = torch.from_numpy(-np.r_[0, falls.cumsum()])
        whole[1:-1] += torch.from_numpy(noise * falls.mean() * random.standard_normal(19))
        found, at = bisected(whole.__getitem__, 20, 0.01)
        assert torch.equal(found[at], whole[at])
        error = metrics.rise(metrics.normalise_response(found)) - metrics.rise(metrics.normalise_response(whole))
        assert abs(error) <= 0.01 + 2 * noise * falls.mean() / falls.sum(), case
        counts.append(len(at))
    # rises between two steps that are evaluated, and falls at once
    steep = np.repeat([0, -0.4, 85.4, 80.6, -44, -48.2, -49, -75, -99.8, -100], [2, 4, 1, 2, 1, 3, 3, 2, 1, 2])
    whole = torch.from_numpy(steep)
    area = [metrics.rise(metrics.normalise_response(s)) for s in (bisected(whole.__getitem__, 20, 0.02)[0], whole)]
    assert abs(area[0] - area[1]) <= 0.02
    assert 2 < min(counts) < 8 and np.mean(counts) < 18
    assert bisected(whole.__getitem__, 20, 0.0)[1] == list(range(21))
    assert bisected(whole.flip(0).__getitem__, 20, 0.01)[1] == [0, 20]  # flagged: RISE is 1 whatever lies between


def test_a_curve_says_which_of_its_steps_were_evaluated(model):
    sample, scorer = tiny_sample(**LONG), Scorer(model)
    whole = deletion_curve(model, sample, random_scores(sample))
    curve = scorer.curve(sample, random_scores(sample), tolerance=0.05)
    assert whole.evaluated == list(range(21)) and scorer.n_contexts == len(curve.evaluated) < 21
    assert torch.allclose(curve.log_probs[curve.evaluated], whole.log_probs[curve.evaluated], atol=1e-4)
    with pytest.raises(ValueError, match="at least 0"):
        scorer.curve(sample, random_scores(sample), tolerance=-1)
