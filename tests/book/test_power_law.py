"""Power laws: factor, exponent, and the interval of the exponent."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import linregress

from flashtrace_book import statistics


def test_a_power_law_is_recovered():
    x = np.array([3.0, 10.0, 50.0])
    factor, exponent = statistics.power_law(x, 0.02 * x**1.7)
    assert (factor, exponent) == (pytest.approx(0.02), pytest.approx(1.7))
    with pytest.raises(ValueError, match="two measured sizes or more"):
        statistics.power_law([3], [1.0])


def test_a_power_law_has_a_narrow_interval_and_noise_a_wide_one():
    x = np.array([10.0, 20, 40, 80, 160])
    exact = statistics.power_law_exponent(x, 0.3 * x**1.5)
    assert exact["exponent"] == pytest.approx(1.5) and exact["high"] - exact["low"] < 1e-6 and exact["points"] == 5
    noisy = statistics.power_law_exponent(x, 0.3 * x**1.5 * np.array([1.3, 0.8, 1.1, 0.7, 1.2]))
    assert noisy["low"] < 1.5 < noisy["high"] and noisy["high"] - noisy["low"] > 0.2


def test_the_interval_is_students():
    x, y = np.array([1.0, 10.0, 100.0]), np.array([1.0, 20.0, 100.0])
    residuals = np.array([-1, 2, -1]) * np.log10(2) / 3  # of a line through (0, 0), (1, 1 + log 2), (2, 2)
    error, fit = math.sqrt((residuals**2).sum() / 1 / 2), statistics.power_law_exponent(x, y)
    assert fit["high"] - fit["exponent"] == pytest.approx(12.7062 * error, rel=1e-6)


def test_too_few_sizes_give_no_exponent_and_no_interval():
    assert math.isnan(statistics.power_law_exponent([5], [1.0])["exponent"])
    two = statistics.power_law_exponent([5, 10, 20], [1.0, 2.0, 0.0])  # a peak of nothing is no point of a power law
    assert two["exponent"] == pytest.approx(1) and math.isnan(two["low"]) and two["points"] == 2


def test_a_slope_is_that_of_scipy():
    x, y = np.array([12.0, 30, 31, 70, 95]), np.array([0.3, 0.1, 0.5, 0.4, 0.9])
    fit, expected = statistics.line_slope(x, y), linregress(x, y)
    assert fit["slope"] == pytest.approx(expected.slope) and fit["points"] == 5
    assert fit["high"] - fit["slope"] == pytest.approx(expected.stderr * 3.182446, rel=1e-6)  # Student's t, 3 free
    for few in ([], [3.0], [3.0, 3.0]):
        assert math.isnan(statistics.line_slope(few, few)["slope"])
    two = statistics.line_slope([1, 2], [1, 3])
    assert two["slope"] == 2 and math.isnan(two["low"])


def test_a_slope_within_clusters_has_a_level_for_each_and_an_honest_interval():
    random, covered, of = np.random.default_rng(0), [], pd.Series(np.repeat(range(12), 4))
    for _ in range(200):
        x = pd.Series(random.normal(size=48))
        y = 2 * x + of + np.repeat(random.normal(size=12), 4) * x + random.normal(size=48)  # each its own slope
        covered.append((found := statistics.slope_within(x, y, of))["low"] < 2 < found["high"])
    dummies = np.column_stack([x, pd.get_dummies(of).astype(float)])
    assert found["difference"] == pytest.approx(np.linalg.lstsq(dummies, y, rcond=None)[0][0])
    assert found["n_effective"] == 12 and 0.85 < np.mean(covered) < 1
