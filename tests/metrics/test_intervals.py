"""Intervals against scipy's, against published examples, and by simulation of what they cover."""

import math

import numpy as np
import pytest
from scipy import stats

from flashtrace_book.statistics import interval_text, rank_correlation_interval
from flashtrace_lib.metrics import intervals as iv
from flashtrace_lib.metrics import mean_interval

DRAWS = {"normal": (lambda rng, size: rng.normal(size=size), 0.0),
         "exponential": (lambda rng, size: rng.exponential(size=size), 1.0)}  # fmt: skip


def coverage(samples, mean, clusters=None):
    """Share of the rows whose interval holds the mean."""
    bounds = np.array([mean_interval(row, clusters=clusters) for row in samples])
    return ((bounds[:, 0] <= mean) & (mean <= bounds[:, 1])).mean()


# --- means


@pytest.mark.parametrize("n", [6, 10, 20])
def test_an_interval_of_normal_data_covers_what_it_says(n):
    draw, mean = DRAWS["normal"]
    assert 0.93 <= coverage(draw(np.random.default_rng(n), (10_000, n)), mean) <= 0.97


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_it_is_students_interval(level):
    values = np.random.default_rng(0).normal(3, 2, size=11)
    expected = stats.t.interval(level, 10, loc=values.mean(), scale=stats.sem(values))
    assert mean_interval(values, level) == pytest.approx(expected)
    assert mean_interval(values.tolist(), level, clusters=list("abcdefghijk")) == pytest.approx(expected)


def test_clusters_of_equal_size_are_the_interval_of_their_means():
    values = np.random.default_rng(0).normal(size=(8, 3))
    labels = np.repeat([f"record-{i}" for i in range(8)], 3)
    assert mean_interval(values.ravel(), clusters=labels) == pytest.approx(mean_interval(values.mean(1)))
    order = np.random.default_rng(1).permutation(24)
    assert mean_interval(values.ravel()[order], clusters=labels[order]) == pytest.approx(mean_interval(values.mean(1)))


def test_clusters_of_unequal_size_by_hand():
    values, labels = np.array([1.0, 3, 2, 5, 7, 4, 6, 9]), [0, 0, 0, 1, 2, 3, 4, 5]
    mean = 37 / 8
    half = stats.t.ppf(0.975, 5) * math.sqrt(6 / 5 * (np.array([6 - 3 * mean, *(values[3:] - mean)]) ** 2).sum()) / 8
    assert mean_interval(values, clusters=labels) == pytest.approx((mean - half, mean + half))


@pytest.mark.parametrize("sizes", [[2] * 6, [2] * 10, [1] * 5 + [2] * 5])
def test_samples_that_share_a_record_are_covered_only_as_clusters(sizes):
    """Two normal values of one record, four fifths of whose variance is the record's."""
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes)
    records, own = rng.normal(size=(10_000, len(sizes)))[:, labels], rng.normal(size=(10_000, len(labels)))
    values = np.sqrt(0.8) * records + np.sqrt(0.2) * own
    assert 0.93 <= coverage(values, 0, labels) <= 0.97
    assert coverage(values, 0) < 0.9


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_below_six_independent_samples_there_is_no_interval(n):
    values = [float(i) for i in range(n)]
    assert all(math.isnan(x) for x in mean_interval(values))
    records = list(range(n)) * 3  # enough values of few records
    assert all(math.isnan(x) for x in mean_interval(values * 3, clusters=records))
    assert all(math.isnan(x) for x in iv.difference_interval(values, np.arange(9.0)))
    assert all(math.isnan(x) for x in iv.difference_interval(np.arange(9.0), values))
    assert all(math.isnan(x) for x in rank_correlation_interval(0.5, n))


def test_an_interval_ends_where_values_do_and_equal_ones_have_no_width():
    wide, cut = mean_interval([0.0] + [1.0] * 7), mean_interval([0.0] + [1.0] * 7, within=(0, 1))
    assert wide[1] > 1 and cut == (wide[0], 1)
    assert mean_interval([0.1] * 6) == (0.1, 0.1)
    assert iv.difference_interval([0.1] * 6, [0.3] * 7) == pytest.approx((-0.2, -0.2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_interval([1.0, math.nan]), "finite"), (lambda: mean_interval([1.0] * 8 + [math.inf]), "finite"),
        (lambda: mean_interval([[1.0, 2.0]]), "vector"), (lambda: mean_interval([1.0, 2.0], level=95), "coverage"),
        *((lambda c=c: mean_interval([1.0, 2.0], clusters=c), "label for each of the 2 values, none of them missing")
          for c in (["a"], ["a", None], [1.0, math.nan])),
        (lambda: iv.difference_interval([1.0, math.nan], [1.0]), "finite"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_difference_of_two_groups_is_welchs():
    rng = np.random.default_rng(0)
    a, b = rng.normal(2, 1, size=9), rng.normal(1, 4, size=14)
    errors = np.array([x.var(ddof=1) / len(x) for x in (a, b)])
    free = errors.sum() ** 2 / (errors**2 / [8, 13]).sum()  # Welch and Satterthwaite
    half, middle = stats.t.ppf(0.975, free) * math.sqrt(errors.sum()), a.mean() - b.mean()
    assert iv.difference_interval(a, b) == pytest.approx((middle - half, middle + half))
    welch = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    assert iv.difference_interval(a, b) == pytest.approx(tuple(welch))


def test_the_difference_of_two_groups_counts_clusters():
    rng = np.random.default_rng(0)
    a, b = rng.normal(2, 1, size=8), rng.normal(1, 4, size=13)
    twice = [np.repeat(np.arange(len(group)), 2) for group in (a, b)]  # every value stands there twice
    found = iv.difference_interval(a.repeat(2), b.repeat(2), clusters=twice)
    assert found == pytest.approx(iv.difference_interval(a, b))
    few = (np.arange(8) // 2, None)  # four clusters of eight values
    assert all(math.isnan(x) for x in iv.difference_interval(a, b, clusters=few))


# --- rank correlations


@pytest.mark.parametrize(("n", "rho"), [(6, 0.0), (6, 0.9), (10, 0.6), (20, 0.6), (20, 0.9)])
def test_the_interval_of_a_rank_correlation_covers_it(n, rho):
    """Of normal pairs, whose rank correlation is 6/π asin(ρ/2)."""
    rng, truth = np.random.default_rng(n), 6 / math.pi * math.asin(rho / 2)
    x, noise = rng.normal(size=(2, 3000, n))
    apart = x.argsort(1).argsort(1) - (rho * x + math.sqrt(1 - rho**2) * noise).argsort(1).argsort(1)
    found = [rank_correlation_interval(r, n) for r in 1 - 6 * (apart**2).sum(1) / (n * (n**2 - 1))]
    assert 0.93 <= np.mean([low <= truth <= high for low, high in found]) <= 0.99


def test_perfect_ranks_of_few_samples_still_leave_room():
    low, high = rank_correlation_interval(1.0, 6)
    assert 0.5 < low < 0.7 and high == 1
    assert rank_correlation_interval(-1.0, 6) == pytest.approx((-1, -low))
    assert rank_correlation_interval(1.0, 100)[0] > 0.99
    assert all(math.isnan(x) for x in rank_correlation_interval(math.nan, 20))


def test_an_interval_as_text():
    assert interval_text(-0.12345, 0.5) == "[-0.123, +0.500]"
    assert interval_text(12.3, 45.6, ".0f") == "[12, 46]"
    assert interval_text(math.nan, math.nan) == "(no interval)"
