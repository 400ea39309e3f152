"""Ranking metrics against naive versions that order ties in every way, and against simulated random rankings."""

import math
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashtrace_lib import metrics as m

ALL = (m.auroc, m.average_precision, m.pointing, m.mrr, m.sentence_hit)


# --- naive versions, of an order without ties: gold marks from the first rank to the last


def naive_auroc(gold):
    pairs = [(i, j) for i, a in enumerate(gold) if a for j, b in enumerate(gold) if not b]
    return sum(i < j for i, j in pairs) / len(pairs)


def naive_ap(gold):
    """By thresholds: the precision at each, weighted by how much the recall grows there."""
    total, area, last = sum(gold), 0.0, 0.0
    for k in range(1, len(gold) + 1):
        precision, recall = sum(gold[:k]) / k, sum(gold[:k]) / total
        area += (recall - last) * precision
        last = recall
    return area


def naive_hit(gold):
    return sum(gold[: sum(gold)]) / sum(gold)


NAIVE = {
    m.auroc: naive_auroc,
    m.average_precision: naive_ap,
    m.pointing: lambda gold: float(gold[0]),
    m.mrr: lambda gold: 1 / (1 + list(gold).index(True)),
    m.sentence_hit: naive_hit,
}


def over_all_orders(naive, scores, gold):
    """Mean over all orders in which no unit stands before one with a higher score."""
    orders = [
        order for order in permutations(range(len(scores)))
        if all(scores[a] >= scores[b] for a, b in zip(order, order[1:], strict=False))
    ]  # fmt: skip
    return np.mean([naive([gold[i] for i in order]) for order in orders])


@pytest.mark.parametrize("metric", ALL)
@given(scores=st.lists(st.integers(-1, 2), min_size=2, max_size=6), marks=st.integers(1, 62))
def test_ties_have_the_expected_value_over_their_orders(metric, scores, marks):
    gold = [bool(marks >> i & 1) for i in range(len(scores))]
    if any(gold) and not all(gold):
        assert metric(scores, gold) == pytest.approx(over_all_orders(NAIVE[metric], scores, gold))


@pytest.mark.parametrize("metric", ALL)
def test_a_long_ranking_without_ties_equals_the_naive_version(metric):
    random = np.random.default_rng(0)
    for n_gold in (1, 7, 80):
        scores, gold = random.normal(size=200), np.zeros(200, dtype=bool)
        gold[random.permutation(200)[:n_gold]] = True
        assert metric(scores, gold) == pytest.approx(NAIVE[metric](gold[np.argsort(-scores)]))


def test_auroc_counts_pairs_and_halves_ties():
    random = np.random.default_rng(1)
    scores, gold = random.integers(0, 9, 150), random.random(150) < 0.2
    pairs = [(a > b) + (a == b) / 2 for a in scores[gold] for b in scores[~gold]]
    assert m.auroc(scores, gold) == pytest.approx(np.mean(pairs))
    assert m.auroc(-scores, gold) == pytest.approx(1 - np.mean(pairs))


@pytest.mark.parametrize("metric", ALL)
def test_scores_that_rank_nothing_have_a_random_rankings_expected_value(metric):
    gold, random = torch.zeros(30, dtype=torch.bool), torch.Generator().manual_seed(0)
    gold[[0, 4, 5, 17]] = True
    drawn = [metric(torch.rand(30, generator=random), gold) for _ in range(3000)]
    error = np.std(drawn) / math.sqrt(len(drawn))
    for value in (0.0, 0.25):
        assert metric(torch.full((30,), value), gold) == pytest.approx(np.mean(drawn), abs=4 * error)


def test_a_random_ranking_by_formula():
    gold = torch.arange(10) < 3
    flat = torch.zeros(10)
    assert m.auroc(flat, gold) == 0.5
    assert m.pointing(flat, gold) == m.sentence_hit(flat, gold) == pytest.approx(0.3)
    places = [math.comb(10 - j, 2) / math.comb(10, 3) for j in range(1, 9)]
    assert m.mrr(flat, gold) == pytest.approx(sum(p / j for j, p in enumerate(places, 1)))


@pytest.mark.parametrize("metric", ALL)
def test_the_best_ranking_has_one(metric):
    assert metric([5.0, 4.0, 1.0, -2.0], [True, True, False, False]) == 1


# --- smoothing


def test_smoothing_averages_neighbours():
    scores = torch.randn(23, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for width in (1, 3, 7, 45, 99):
        half = width // 2
        expected = [scores[max(0, i - half) : i + half + 1].mean().item() for i in range(23)]
        assert m.smooth(scores, width).tolist() == pytest.approx(expected)
    assert torch.equal(m.smooth(scores, 1), scores)


def test_smoothing_spreads_a_peak_and_ranks_nothing_where_nothing_was_ranked():
    assert m.smooth([0.0, 0.0, 3.0, 0.0, 0.0], 3).tolist() == [0, 1, 1, 1, 0]
    assert m.ranks_nothing(m.smooth(torch.full((50,), 0.1), 7))


# --- bad input


@pytest.mark.parametrize("metric", ALL)
def test_bad_scores_and_gold_are_named(metric):
    for scores, gold, message in [
        ([1.0, math.nan], [True, False], "NaN"),
        ([1.0, 2.0], [True], "exactly the input I"),
        ([1.0, 2.0], [False, False], "marks no token"),
    ]:
        with pytest.raises(ValueError, match=message):
            metric(scores, gold)


def test_what_no_metric_can_measure_is_named():
    with pytest.raises(ValueError, match="every unit"):
        m.auroc([1.0, 2.0], [True, True])
    for width in (0, 2, -3):
        with pytest.raises(ValueError, match="odd number"):
            m.smooth([1.0, 2.0], width)
