"""FlashTrace with the residual propagated: its equations (docs/better_flashtrace.md) in float64, and identities."""

import dataclasses

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from flashtrace_lib import FlashTrace
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.kernel.proximity import span_rollout, span_scores
from flashtrace_lib.methods.hops import spread_to_neighbours
from tests.oracles.naive import _states, naive_flashtrace, naive_layer
from tests.oracles.tiny import COMMON, tiny_model, tiny_sample

# Two query heads share a key head in all of them; qwen2 has biases of queries, keys and values, llama_bias of W_O too.
MODELS, SPAN = ["llama", "qwen2", "llama_bias"], (9, 15)


def close(a, b, tolerance=1e-5):
    torch.testing.assert_close(a.double(), b.double(), atol=tolerance, rtol=0)


def as_map(model, ids, span, x, by_token):
    """The mass vector x [N] after all layers, from the last to the first: F_l, or the matrix P_l, written out."""
    inside = torch.zeros(len(ids), dtype=torch.bool)
    inside[slice(*span)] = True
    for state in reversed(_states(model, ids)):
        rows = range(*span)

        def shares(weights, state=state, rows=rows):
            e, e_res = naive_layer(state, len(ids), rows, weights, "per_head", "included")
            return e / (e.sum() + e_res), e_res / (e.sum() + e_res)

        below = torch.where(inside, 0.0, x)
        if by_token:  # row i of P_l divides one token's mass
            for i in rows:
                s, r = shares([float(i == k) for k in rows])
                below = below + x[i] * s
                below[i] += x[i] * r
        else:
            s, r = shares(x[inside].tolist())
            below = below + x[inside].sum() * s + r * torch.where(inside, x, 0.0)
        x = below
    return x


@pytest.mark.parametrize("by_token", [False, True])
@pytest.mark.parametrize("family", MODELS)
def test_one_hop_is_the_equations(family, by_token):
    model, sample = tiny_model(family), tiny_sample()
    weights = torch.rand(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = torch.zeros(len(sample), dtype=torch.float64)
    x[slice(*SPAN)] = weights / weights.sum()
    found = span_rollout(
        capture(model, sample.input_ids, SPAN), weights[None], torch.ones(1, 6, dtype=bool), SPAN, each=by_token
    )
    close(found[0], as_map(model, sample.input_ids, SPAN, x, by_token))


@pytest.mark.parametrize("hops", [0, 1, 3])
@pytest.mark.parametrize("first_hop", ["output", "generation"])
@pytest.mark.parametrize("aggregation", ["sum", "mean"])
@pytest.mark.parametrize("family", MODELS)
def test_hops_equal_naive(family, aggregation, first_hop, hops):
    options = {"residual": "propagated", "aggregation": aggregation, "first_hop": first_hop, "hops": hops}
    model, sample = tiny_model(family), tiny_sample()
    final, expected, flow = naive_flashtrace(model, sample, **options)
    found = FlashTrace(**options).attribute(model, sample)
    close(found.scores, final)
    assert found.flow == pytest.approx(flow, abs=1e-5)
    for hop, scores in zip(found.hops, expected, strict=True):
        close(hop.scores, scores)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("family", MODELS)
def test_mass_is_kept_through_the_layers(family, each):
    model, sample = tiny_model(family), tiny_sample()
    activations = capture(model, sample.input_ids, SPAN)
    weights, own = torch.rand(3, 6), torch.ones(3, 6, dtype=torch.bool)
    own[0, :2] = weights[0, :2] = 0  # of two spans over the same rows, one is shorter
    found = span_rollout(activations, weights, own, SPAN, each=each)
    close(found.sum(-1), torch.ones(3))
    assert (found >= 0).all()


def test_one_layer_is_the_papers_up_to_the_mass_on_the_span_itself():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**{**COMMON, "num_hidden_layers": 1})).eval()
    activations = capture(model, tiny_sample().input_ids, SPAN)
    weights, own = torch.rand(2, 6), torch.ones(2, 6, dtype=torch.bool)
    papers = span_scores(activations, weights, SPAN)[:, : SPAN[0]]  # [B, tokens before the span]
    ours = span_rollout(activations, weights, own, SPAN)[:, : SPAN[0]]
    close(ours / ours.sum(-1, keepdim=True), papers / papers.sum(-1, keepdim=True))
    assert (ours.sum(-1) < papers.sum(-1)).all()  # the residual's share lies on the span


@pytest.mark.parametrize("first_hop", ["output", "generation"])
def test_an_empty_reasoning_leaves_hop_zero(first_hop):
    model, sample = tiny_model(), tiny_sample(reasoning=(9, 9))
    options = {"residual": "propagated", "first_hop": first_hop}
    one, none = (FlashTrace(hops=hops, **options).attribute(model, sample) for hops in (3, 0))
    assert len(one.hops) == 1 and one.flow == [0.0]
    assert torch.equal(one.scores, none.scores)
    close(one.scores, FlashTrace(hops=0, residual="propagated").attribute(model, sample).scores)  # T ∪ O is O


# --- smoothing ------------------------------------------------------------------------------------------------


def naive_spread(scores, width):
    """Each token's score shared out by hand."""
    out = [0.0] * len(scores)
    for j, score in enumerate(scores):
        around = [i for i in range(j - width // 2, j + width // 2 + 1) if 0 <= i < len(scores)]
        for i in around:
            out[i] += score / len(around)
    return out


@pytest.mark.parametrize("width", [1, 3, 5, 9])
@pytest.mark.parametrize("n", [1, 4, 7])
def test_smoothing_shares_every_score_and_keeps_the_mass(n, width):
    scores = torch.rand(n, generator=torch.Generator().manual_seed(n))
    found = spread_to_neighbours(scores, width)
    close(found, torch.tensor(naive_spread(scores.tolist(), width)))
    close(found.sum(), scores.sum())


def test_smoothing_changes_the_final_scores_alone():
    model, sample = tiny_model(), tiny_sample()
    plain, smooth = (FlashTrace(hops=2, smoothing=width).attribute(model, sample) for width in (1, 3))
    close(smooth.scores, spread_to_neighbours(plain.scores, 3))
    assert smooth.flow == plain.flow and not torch.equal(smooth.scores, plain.scores)
    assert all(torch.equal(a.scores, b.scores) for a, b in zip(smooth.hops, plain.hops, strict=True))
    assert dataclasses.replace(FlashTrace(), smoothing=3).options()["smoothing"] == 3
