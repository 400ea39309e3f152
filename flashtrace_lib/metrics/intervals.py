"""Intervals of means (Student's t, Welch), of few samples there are none, and rank correlations."""

import math

import numpy as np
import pandas as pd
from scipy.special import stdtrit

# Five differences have one sign by chance in one case of sixteen, six in one of thirty-two: below six, no exact
# two-sided test of paired samples can reach 5 %, whatever the samples are.
MIN_SAMPLES, NONE = 6, (math.nan, math.nan)


def mean_interval(values, level: float = 0.95, clusters=None, within=None) -> tuple[float, float]:
    """Student's t interval of the mean; with ``clusters`` the cluster-robust one.

    Simulated coverage of the 95 % (normal / exponential / lognormal data): n = 6: 0.95 / 0.89 / 0.82, n = 10:
    0.95 / 0.90 / 0.84, n = 20: 0.95 / 0.92 / 0.87. The BCa bootstrap has 0.86 / 0.82 / 0.75 at n = 6 and
    0.92 / 0.90 / 0.88 at n = 20, the percentile bootstrap less; so it is t, which is exact for normal data. Differences
    of paired samples, most of what is measured here, are nearly symmetric.

    Parameters
    ----------
    values : array-like of float, shape [n]
    level : float
        Coverage, in (0, 1).
    clusters : array-like, shape [n], optional
        A label for each value. Values with one label (one record at two lengths, problems of one template) may depend
        on each other; those of different labels do not. The interval stays around the mean of all values; with e_c,
        the sum of a cluster's deviations from it, its standard error is sqrt(G / (G - 1) · Σ e_c²) / n with G - 1
        degrees of freedom, G the number of clusters (Cameron and Miller 2015). Of clusters of equal size this is the
        t interval of the clusters' means. Default: each value is its own.
    within : (float, float), optional
        Where every value lies by definition, (0, 1) for a share: so does its mean, and the interval is cut there.

    Returns
    -------
    (float, float)
        (nan, nan) for fewer than ``MIN_SAMPLES`` clusters. Of equal values both ends are that value.

    Raises
    ------
    ValueError
        If a value is not finite, ``level`` is no coverage, or the labels do not fit the values.
    """
    values, n_clusters, of = _checked(values, level, clusters)
    if n_clusters < MIN_SAMPLES:
        return NONE
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    mean = values.mean()
    half = stdtrit(n_clusters - 1, (1 + level) / 2) * _standard_error(values, n_clusters, of)
    least, most = within or (-math.inf, math.inf)
    return float(max(mean - half, least)), float(min(mean + half, most))


def _standard_error(values: np.ndarray, n_clusters: int, of: np.ndarray) -> float:
    """Cluster-robust standard error of the mean of what `_checked` returns."""
    if np.ptp(values) == 0:
        return 0.0
    summed = np.bincount(of, weights=values - values.mean())  # [G]
    return math.sqrt(n_clusters / (n_clusters - 1) * np.square(summed).sum()) / len(values)


def difference_interval(first, second, level: float = 0.95, clusters=(None, None)) -> tuple[float, float]:
    """Welch's t interval of the difference of the means of two independent groups, ``first - second``.

    Parameters
    ----------
    first, second : array-like of float, shapes [n] and [m]
    level : float
        Coverage, in (0, 1).
    clusters : (array-like, array-like), optional
        Labels of the values of each group, see `mean_interval`. With them the two standard errors are cluster-robust,
        and clusters take the place of values in the degrees of freedom.

    Returns
    -------
    (float, float)
        (nan, nan) where a group has fewer than ``MIN_SAMPLES`` clusters.

    Raises
    ------
    ValueError
        If a value is not finite or ``level`` is no coverage.
    """
    groups = [_checked(values, level, labels) for values, labels in zip((first, second), clusters, strict=True)]
    if min(n_clusters for _, n_clusters, _ in groups) < MIN_SAMPLES:
        return NONE
    squared = [_standard_error(*group) ** 2 for group in groups]
    difference = float(groups[0][0].mean() - groups[1][0].mean())
    if not sum(squared):
        return difference, difference
    of_each = sum(s**2 / (n_clusters - 1) for s, (_, n_clusters, _) in zip(squared, groups, strict=True))
    half = float(stdtrit(sum(squared) ** 2 / of_each, (1 + level) / 2) * math.sqrt(sum(squared)))
    return difference - half, difference + half


def rank_correlation(a, b) -> float:
    """Spearman's rank correlation of two vectors [n]; equal values share their mean rank; nan where one is constant."""
    return float(pd.Series(np.asarray(a)).rank().corr(pd.Series(np.asarray(b)).rank()))


def _checked(values, level: float, clusters=None) -> tuple[np.ndarray, int, np.ndarray]:
    """Values as float64 [n], number of clusters G, and the cluster of each value, 0 … G - 1."""
    if not 0 < level < 1:
        raise ValueError(f"level is a coverage in (0, 1), got {level}")
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError("values must be a vector of finite numbers: drop what could not be measured first")
    if clusters is None:
        return values, len(values), np.arange(len(values))
    labels = np.asarray(clusters)
    if labels.shape != values.shape or any(label is None or label != label for label in labels.tolist()):
        raise ValueError(f"clusters must have a label for each of the {len(values)} values, none of them missing")
    names, of = np.unique(labels, return_inverse=True)
    return values, len(names), of
