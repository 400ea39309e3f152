"""The span's division against the tokens': the bound, and an example that is worked by hand."""

from types import SimpleNamespace

import pytest
import torch

from flashtrace_book.experiments.departure import departure, departure_table
from flashtrace_lib.kernel.activations import Activations, LayerActivations
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.kernel.proximity import span_rollout
from tests.oracles.naive import _states, naive_layer
from tests.oracles.tiny import FAMILIES, tiny_model, tiny_sample

SPAN = (9, 15)
OWN = torch.ones(2, 6, dtype=torch.bool)


def spans(seed):
    return torch.rand(2, 6, generator=torch.Generator().manual_seed(seed)) ** 4  # uneven weights


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", FAMILIES)
def test_the_bound_holds_and_the_distance_is_that_of_the_two_rollouts(family, seed):
    activations = capture(tiny_model(family, seed=seed), tiny_sample(seed=seed).input_ids, SPAN)
    weights = spans(seed)
    found = departure(activations, weights, OWN, SPAN)
    by_span, by_token = (span_rollout(activations, weights, OWN, SPAN, each=each) for each in (False, True))
    torch.testing.assert_close(found.distance, (by_span - by_token).abs().sum(-1), atol=1e-6, rtol=0)
    assert found.terms.shape == (2, 3) and (found.terms >= 0).all()
    assert (found.distance <= found.bound + 1e-6).all()
    assert (found.distance > 0.01).all()  # on these models the two do differ, so the bound says something


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_the_terms_equal_naive(family):
    model, sample = tiny_model(family), tiny_sample()
    weights = spans(7)[:1]
    found = departure(capture(model, sample.input_ids, SPAN), weights, OWN[:1], SPAN)
    rows, u, terms = range(*SPAN), (weights[0] / weights.sum()).double(), []
    for state in reversed(_states(model, sample.input_ids)):

        def divided(w, state=state):  # of one unit of mass on the rows: to every position, and the residual's share
            e, e_res = naive_layer(state, len(sample), rows, w.tolist(), "per_head", "included")
            return e / (e.sum() + e_res), float(e_res / (e.sum() + e_res))

        def arrived(s, r, w):
            at = s.clone()
            at[slice(*SPAN)] += r * w
            return at

        by_span = float(u.sum()) * arrived(*divided(u), u / u.sum())
        unit = torch.eye(6, dtype=torch.float64)
        by_token = sum(float(u[i]) * arrived(*divided(unit[i]), unit[i]) for i in range(6))
        terms.append(float((by_span - by_token).abs().sum()))
        u = by_span[slice(*SPAN)]
    assert found.terms[0].tolist() == pytest.approx(terms[::-1], abs=1e-5)


def test_a_span_of_one_token_does_not_depart():
    activations = capture(tiny_model(), tiny_sample().input_ids, (12, 13))
    found = departure(activations, torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool), (12, 13))
    assert found.distance.item() == pytest.approx(0, abs=1e-6) and found.bound.item() == pytest.approx(0, abs=1e-6)


def hand_made_layer(index):
    """Token 1 is nothing but what it takes from token 0, token 2 nothing but its own residual."""
    part = SimpleNamespace(index=index, projection=lambda: torch.eye(2), bias=lambda: None, value_bias=lambda: None)
    maps = torch.tensor([[[1.0, 0, 0], [1, 0, 0], [0, 0, 1]]])  # [H = 1, N = 3, N]
    values = torch.tensor([[[1.0, 0], [0, 0], [0, 0]]])  # [H_kv, N, head_dim]
    return LayerActivations(part, v=values, k=values, x_in=torch.tensor([[0.0, 0], [0, 1]]), maps=maps)


def test_the_example_of_two_tokens_that_is_worked_by_hand():
    """docs/better_flashtrace.md: two layers, the span {1, 2} with weights (1/2, 1/2)."""
    activations = Activations([hand_made_layer(0), hand_made_layer(1)], rows=(1, 3), n_tokens=3)
    weights, own = torch.tensor([[1.0, 1.0]]), torch.ones(1, 2, dtype=torch.bool)
    by_span, by_token = (span_rollout(activations, weights, own, (1, 3), each=each) for each in (False, True))
    assert by_span[0].tolist() == pytest.approx([3 / 4, 1 / 8, 1 / 8])
    assert by_token[0].tolist() == pytest.approx([1 / 2, 0, 1 / 2])
    found = departure(activations, weights, own, (1, 3))
    assert found.distance.item() == pytest.approx(3 / 4)
    assert found.terms[0].tolist() == pytest.approx([1 / 4, 1 / 2])  # layers 1 and 2: here the bound is reached


def test_the_table_of_a_sample_has_a_row_for_each_span_that_hop_0_may_explain():
    model, sample = tiny_model(), tiny_sample()
    table = departure_table(model, sample).set_index("span")
    assert list(table.index) == ["O", "T ∪ O"] and (table["distance"] <= table["bound"] + 1e-6).all()
    start, stop = sample.segments.output
    assert table.loc["O", "tokens"] == stop - start
    activations = capture(model, sample.input_ids, (start, stop))
    own = torch.ones(1, stop - start, dtype=torch.bool)
    of_output = departure(activations, own.float(), own, (start, stop))
    assert table.loc["O", "distance"] == pytest.approx(of_output.distance.item())
    assert table.loc["O", "worst_layer"] == of_output.terms[0].argmax() + 1
    size = sum(b - a for a, b in (sample.segments.reasoning, sample.segments.output))
    assert table.loc["T ∪ O", "tokens"] == size  # nothing between T and O counts
    assert list(departure_table(model, tiny_sample(reasoning=(9, 9)))["span"]) == ["O"]
