"""Recovery, RISE and MAS on curves small enough to check by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flashtrace_lib import metrics as m

STEPS = 20
RISING = torch.linspace(0, 1, STEPS + 1, dtype=torch.float64)
LINE = 1 - RISING  # falls by a twentieth a step

scores_of_any_length = arrays(np.float64, st.integers(1, 60), elements=st.floats(-5, 5))
curves = arrays(np.float64, STEPS + 1, elements=st.floats(-200, -0.01))


# --- recovery


def test_ranking_puts_tied_tokens_in_a_random_order_that_is_fixed():
    scores = torch.tensor([0.5, 2.0, 0.5, -1.0, 2.0])
    orders = [tuple(m.ranking(scores, torch.Generator().manual_seed(s)).tolist()) for s in range(400)]
    assert set(orders) == {(*two, *half, 3) for two in ((1, 4), (4, 1)) for half in ((0, 2), (2, 0))}
    assert all(60 < orders.count(order) < 140 for order in set(orders))
    tied = m.ranking(torch.cat([torch.ones(999), torch.zeros(1)]))
    assert tied.tolist() == m.ranking([1.0] * 999 + [0.0]).tolist() and tied[-1] == 999
    assert tied[:5].tolist() != [0, 1, 2, 3, 4] and abs(tied[:500].double().mean() - 499) < 40


@pytest.mark.parametrize(("n", "top", "expected"), [(25, 0.1, 2), (30, 0.1, 3), (100, 0.29, 29), (4, 0.1, 1)])
def test_top_count(n, top, expected):
    assert m.top_count(n, top) == expected


def test_recovery_by_hand():
    gold = torch.zeros(20, dtype=torch.bool)
    gold[[3, 7, 11]] = True
    scores = torch.arange(20.0)  # the top two are 19 and 18
    scores[3] = 100
    assert m.recovery_rate(scores, gold) == pytest.approx(1 / 3)
    assert m.recovery_cap(gold) == pytest.approx(2 / 3)
    assert m.r_precision(scores, gold) == pytest.approx(1 / 3)
    scores[[7, 11]] = 50
    assert m.recovery_rate(scores, gold) == pytest.approx(m.recovery_cap(gold))
    assert m.recovery_rate(scores, gold, top=0.15) == 1
    assert m.r_precision(scores, gold) == 1


@given(scores_of_any_length, st.integers(0, 2**32 - 1))
def test_recovery_never_exceeds_its_cap(scores, seed):
    gold = np.random.default_rng(seed).random(len(scores)) < 0.3
    gold[seed % len(scores)] = True
    assert 0 <= m.recovery_rate(scores, gold) <= m.recovery_cap(gold) + 1e-12
    assert m.recovery_rate(gold.astype(float), gold) == pytest.approx(m.recovery_cap(gold))
    assert m.r_precision(gold.astype(float), gold) == 1


# --- the normalised response


def test_perfectly_aligned_line_scores_a_half():
    response = m.normalise_response(-100 * RISING)
    assert torch.allclose(response, LINE)
    assert m.rise(response) == pytest.approx(0.5)
    assert m.mas(response, RISING) == pytest.approx(0.5)


def test_printed_formula_charges_an_aligned_line_twice():
    printed = m.mas(LINE, RISING, definition="printed")
    assert printed == pytest.approx(0.975)  # the sum as printed, k = 1..20: 0.475 + 0.5
    with_start = (LINE.mean() + (LINE - RISING).abs().mean()).item()
    assert with_start == pytest.approx(1.02, abs=0.005)  # the same with k = 0 counted
    assert m.mas(LINE, RISING) == pytest.approx(0.5)
    assert m.rise(LINE, definition="printed") == pytest.approx(0.475)


def test_printed_definition_underflows_on_a_long_response():
    long_response = -2000 - 100 * RISING
    assert m.rise(m.normalise_response(long_response, "printed"), "printed") == 0.0
    assert m.rise(m.normalise_response(long_response)) == pytest.approx(0.5)


def test_running_minimum_ignores_a_recovery_of_the_likelihood():
    assert m.normalise_response([0.0, -6.0, -2.0, -12.0, -10.0]).tolist() == pytest.approx([1.0, 0.4, 0.4, 0.0, 0.0])


@pytest.mark.parametrize("middle", [[-9.0, -9.0], [-20.0, -3.0], [-1.0, -1.0], [-2.0, -30.0]])
@pytest.mark.parametrize("last", [-4.0, -10.0])
def test_flagged_sample_never_looks_good(middle, last):
    curve = [-10.0, *middle, last]  # masking everything does not lower the likelihood
    assert m.is_flagged(curve)
    response = m.normalise_response(curve)
    assert m.rise(response) == 1
    assert m.mas(response, [0, 0.5, 0.9, 1]) == 1
    trap = m.normalise_response(curve, denominator="absolute")
    assert m.rise(trap) == 0  # what the absolute denominator makes of the same sample


def test_denominators_agree_on_a_sample_that_is_not_flagged():
    curve = [-1.0, -5.0, -3.0, -9.0, -8.0]
    assert not m.is_flagged(curve)
    assert torch.equal(m.normalise_response(curve), m.normalise_response(curve, denominator="absolute"))


@given(curves)
def test_response_falls_from_one_and_both_orders_of_the_minimum_agree(curve):
    response = m.normalise_response(curve)
    assert response[0] == 1 and (response.diff() <= 0).all() and response.min() >= 0
    if not m.is_flagged(curve):
        authors = np.minimum.accumulate(np.clip((curve - curve[-1]) / (curve[0] - curve[-1]), 0, 1))
        assert np.allclose(response.numpy(), authors, atol=1e-9)
    assert 1 / (2 * STEPS) <= m.rise(response) <= 1


# --- MAS


def test_mas_by_hand():
    response = torch.tensor([1.0, 0.5, 0.0])
    # d = [1, .8, 0]: r + |r - d| = [1, .8, 0]; area (1 + .8)/4 + .8/4
    assert m.mas(response, [0, 0.2, 1]) == pytest.approx(0.65)
    # d = [1, .1, 0]: r + |r - d| = [1, .9, 0]
    assert m.mas(response, [0, 0.9, 1]) == pytest.approx(0.7)


@given(curves, scores_of_any_length)
def test_mas_stays_within_zero_and_one(curve, scores):
    assert 0 <= m.mas(m.normalise_response(curve), m.cumulative(scores, STEPS)) <= 1


def test_mas_is_least_where_the_mass_falls_as_the_response_does():
    response = torch.linspace(1, 0, STEPS + 1).double() ** 2
    values = {p: m.mas(response, 1 - torch.linspace(1, 0, STEPS + 1).double() ** p) for p in (0.5, 1, 2, 4, 8)}
    assert min(values, key=values.get) == 2 and values[2] == pytest.approx(m.rise(response))
    assert values[0.5] > values[1] > values[2] < values[4] < values[8]  # flatter than the response, and sharper


def test_sharpening_lowers_mas_where_the_response_falls_at_once():
    scores = torch.linspace(1, 0.2, 40)
    response, values = m.normalise_response(torch.cat([torch.zeros(1), torch.full((20,), -10.0)])), []
    for temperature in (2.0, 1.0, 0.5, 0.1):
        sharp = m.sharpen(scores, temperature)
        assert torch.equal(m.ranking(sharp), m.ranking(scores))
        assert sharp.abs().sum() == pytest.approx(1)
        values.append(m.mas(response, m.cumulative(sharp, STEPS)))
    assert values == sorted(values, reverse=True) and values[0] > values[-1] + 0.2


def test_sharpen_keeps_signs_and_temperature_one_only_scales():
    assert m.sharpen([2.0, -1.0, 1.0], 1.0).tolist() == pytest.approx([0.5, -0.25, 0.25])
    assert m.sharpen([2.0, -1.0, 1.0], 0.5).tolist() == pytest.approx([4 / 6, -1 / 6, 1 / 6])
    assert m.sharpen([0.0, 0.0], 0.5).tolist() == [0, 0]


# --- schedule


def test_the_share_of_the_mass_rises_from_zero_to_one():
    assert (1 - m.cumulative(torch.ones(40))).tolist() == pytest.approx(LINE.tolist())
    assert m.cumulative([3.0, 0.0, 1.0, 0.0], steps=2).tolist() == pytest.approx([0, 1, 1])
    assert m.cumulative([1.0, -1.0, 2.0], steps=3).tolist() == pytest.approx([0, 0.5, 0.75, 1])  # |A|, in rank order
    assert m.cumulative([0.0, 0.0], steps=2).tolist() == pytest.approx([0, 0.5, 1])  # no mass: uniform


@given(st.integers(1, 500), st.integers(1, 40))
def test_masked_counts_spread_the_tokens_evenly(n, steps):
    counts = m.masked_counts(n, steps)
    assert counts[0] == 0 and counts[-1] == n and len(counts) == steps + 1
    assert counts.diff().max() - counts.diff().min() <= 1


# --- bad input


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: m.recovery_rate([1.0, math.nan], [True, False]), "NaN"),
        (lambda: m.recovery_rate([1.0, 2.0], [True]), "exactly the input I"),
        (lambda: m.recovery_rate([1.0, 2.0], [False, False]), "marks no token"),
        (lambda: m.recovery_rate([1.0, 2.0, 3.0], [0, 1, 2]), "not a list of positions"),
        (lambda: m.top_count(10, top=0), "share of the input"),
        (lambda: m.ranking(torch.ones(2, 2)), "non-empty vector"),
        (lambda: m.masked_counts(10, 0), "at least one step"),
        (lambda: m.normalise_response([0.0, -1.0], "log"), "definition is one of"),
        (lambda: m.normalise_response([0.0]), "one point"), (lambda: m.rise([0.0, -3.0]), "leaves"),
        (lambda: m.mas([1.0, 0.0], [0.0, 0.5, 1.0]), "same steps"),
        (lambda: m.mas([1.0, 0.5, 0.0], [1.0, 0.5, 0.0]), "pass 1 - d"), (lambda: m.sharpen([1.0], 0.0), "positive"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
