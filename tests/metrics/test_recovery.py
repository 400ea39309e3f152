"""Metrics of a ranking against gold: against naive versions that order ties in every way, and by simulation."""

import math
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashtrace_lib import metrics as m

ALL = (m.recovery_rate, m.r_precision, m.auroc)


# --- naive versions, of an order without ties: gold marks from the first rank to the last


def naive_auroc(gold):
    pairs = [(i, j) for i, a in enumerate(gold) if a for j, b in enumerate(gold) if not b]
    return sum(i < j for i, j in pairs) / len(pairs)


NAIVE = {
    m.recovery_rate: lambda gold: sum(gold[: max(1, len(gold) // 10)]) / sum(gold),
    m.r_precision: lambda gold: sum(gold[: sum(gold)]) / sum(gold), m.auroc: naive_auroc,
}  # fmt: skip


def over_all_orders(naive, scores, gold):
    """Mean over all orders in which no token stands before one with a higher score."""
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


@given(st.lists(st.integers(0, 2), min_size=2, max_size=6), st.integers(1, 63), st.sampled_from([0.3, 0.5]))
def test_ties_at_the_cut_of_a_larger_share(scores, marks, top):
    gold = [bool(marks >> i & 1) for i in range(len(scores))]
    if any(gold):
        count = m.top_count(len(scores), top)
        naive = over_all_orders(lambda ranked: sum(ranked[:count]) / sum(ranked), scores, gold)
        assert m.recovery_rate(scores, gold, top) == pytest.approx(naive)


@pytest.mark.parametrize("metric", ALL)
def test_a_long_ranking_without_ties_equals_the_naive_version(metric):
    random = np.random.default_rng(0)
    for n_gold in (1, 7, 80):
        scores, gold = random.normal(size=200), np.zeros(200, dtype=bool)
        gold[random.permutation(200)[:n_gold]] = True
        assert metric(scores, gold) == pytest.approx(NAIVE[metric](gold[np.argsort(-scores)]))


@pytest.mark.parametrize("metric", ALL)
def test_scores_that_rank_nothing_have_a_random_rankings_expected_value(metric):
    gold, random = torch.zeros(30, dtype=torch.bool), torch.Generator().manual_seed(0)
    gold[[0, 4, 5, 17]] = True
    drawn = [metric(torch.rand(30, generator=random), gold) for _ in range(3000)]
    error = np.std(drawn) / math.sqrt(len(drawn))
    for value in (0.0, 0.25):
        assert metric(torch.full((30,), value), gold) == pytest.approx(np.mean(drawn), abs=4 * error)


def test_auroc_counts_pairs_and_halves_ties():
    random = np.random.default_rng(1)
    scores, gold = random.integers(0, 9, 150), random.random(150) < 0.2
    pairs = [(a > b) + (a == b) / 2 for a in scores[gold] for b in scores[~gold]]
    assert m.auroc(scores, gold) == pytest.approx(np.mean(pairs))
    assert m.auroc(-scores, gold) == pytest.approx(1 - np.mean(pairs))
    assert m.auroc([5.0, 4.0, 1.0, -2.0], [True, True, False, False]) == 1
    with pytest.raises(ValueError, match="every token"):
        m.auroc([1.0, 2.0], [True, True])
