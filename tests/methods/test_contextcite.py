"""ContextCite: the lasso by its optimality conditions, planted coefficients, and the whole method step by step."""

import math

import pytest
import torch

from flashtrace_lib.methods import ContextCite
from flashtrace_lib.methods import contextcite as module
from flashtrace_lib.methods.contextcite import lasso
from flashtrace_lib.model.ablations import Effects
from tests.metrics.test_ablation import SENTENCES, haystack_sample, naive_effects
from tests.oracles.tiny import tiny_model


def problem(n, n_features, seed=0):
    shared = torch.Generator().manual_seed(seed)
    return torch.rand(n, n_features, generator=shared) < 0.5, torch.randn(n, generator=shared, dtype=torch.float64)


# --- the lasso


@pytest.mark.parametrize("n, n_features, alpha", [(32, 6, 0.01), (32, 6, 0.3), (20, 40, 0.05), (32, 10, 0.0)])
def test_lasso_meets_its_optimality_conditions(n, n_features, alpha):
    """Of ‖y − X w‖² / 2n + α ‖w‖₁: X_uᵀ (y − X w) / n is α sign(w_u), or within ±α where w_u is 0."""
    features, target = problem(n, n_features)
    features[:, 2] = True  # tells nothing
    found, x = lasso(features, target, alpha), features.double()
    spread = x.std(0, correction=0)
    x, w = (x - x.mean(0)) / torch.where(spread > 0, spread, 1.0), found * spread
    slope, active = x.T @ (target - target.mean() - x @ w) / n, w != 0
    torch.testing.assert_close(slope[active], alpha * w[active].sign(), atol=1e-6, rtol=0)
    assert (slope.abs() <= alpha + 1e-6).all() and found[2] == 0
    assert active.any() and (alpha < 0.05 or not active.all())


def test_bad_features_are_named():
    with pytest.raises(ValueError, match=r"features \[n, U\]"):
        lasso(torch.ones(3, 2), torch.ones(4), 0.1)
    with pytest.raises(ValueError, match="finite target"):
        lasso(torch.ones(2, 2), torch.tensor([1.0, math.inf]), 0.1)


# --- the method


PLANTED = torch.tensor([0.0, 8.0, 0.0, -3.0, 0.0, 2.0])  # of the six sentences of I


@pytest.fixture
def additive(monkeypatch):
    """A response whose log-odds are a sum over the sentences that are kept."""

    def effects(model, sample, masks, sources, spans, **how):
        values = masks.double() @ PLANTED[: len(sources)].double() - 20
        return Effects(torch.nn.functional.logsigmoid(values)[:, None], values[:, None])

    monkeypatch.setattr(module, "sentence_effects", effects)


@pytest.mark.parametrize("n_masks", [32, 64])
def test_planted_coefficients_are_recovered(additive, n_masks):
    found = ContextCite(n_masks=n_masks, alpha=1e-6).attribute(tiny_model(), haystack_sample())
    signed = torch.tensor(found.metadata["signed"])
    per_sentence = torch.stack([signed[a - 3 : b - 3].mean() for a, b in SENTENCES[:6]])
    torch.testing.assert_close(per_sentence, PLANTED, atol=1e-3, rtol=0)
    shares = found.by_sentence()
    torch.testing.assert_close(shares / shares[1], PLANTED.clamp_min(0) / 8, atol=1e-3, rtol=0)
    assert found.metadata["forward_passes"] == n_masks and found.metadata["n_units"] == 6


def test_a_penalty_leaves_the_sentences_out_that_do_nothing(additive):
    found = ContextCite(alpha=0.02).attribute(tiny_model(), haystack_sample()).metadata["signed"]
    assert {i for i in range(6) if found[SENTENCES[i][0] - 3] != 0} == {1, 3, 5}


def test_the_method_is_the_lasso_on_naive_effects(monkeypatch):
    drawn, draw = [], module.draw_masks
    monkeypatch.setattr(module, "draw_masks", lambda *how: drawn.append(draw(*how)) or drawn[-1])
    model, sample = tiny_model(), haystack_sample()
    found = ContextCite(n_masks=16).attribute(model, sample)
    log_prob, _ = naive_effects(model.double(), sample, drawn[0], SENTENCES[:6], [(77, 88)])
    total = log_prob.sum(1)
    weights = lasso(drawn[0], (total - torch.log1p(-total.exp())) / 11, 0.01) * 11
    signed = torch.tensor(found.metadata["signed"], dtype=torch.float64)
    per_sentence = torch.stack([signed[a - 3 : b - 3].mean() for a, b in SENTENCES[:6]])
    assert weights.abs().max() > 0.01
    torch.testing.assert_close(per_sentence, weights, atol=2e-3, rtol=1e-3)


def test_seed_and_sample_fix_the_masks():
    model, sample = tiny_model(), haystack_sample()
    found = [ContextCite(n_masks=8, seed=seed).attribute(model, sample).metadata["signed"] for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("options", [{"n_masks": 1}, {"alpha": -0.1}, {"keep": 1.0}])
def test_bad_options_are_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        ContextCite(**options)
