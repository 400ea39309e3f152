"""Statistics that several chapters share: paired differences, rank correlations, power laws."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from flashtrace_lib.evaluation.results_table import clusters
from flashtrace_lib.metrics import HIGHER_IS_BETTER, mean_interval
from flashtrace_lib.metrics.intervals import rank_correlation_interval


def spearman(x, y, level: float = 0.95) -> dict[str, float]:
    """Spearman's rank correlation with its interval (`intervals.rank_correlation_interval`).

    Parameters
    ----------
    x, y : array-like of float, shape [n]
        Pairs in which one is missing (NaN) are left out; equal values share their mean rank.
    level : float
        Coverage.

    Returns
    -------
    dict
        ``rho, low, high, n``; ``rho`` is NaN where a side is constant or there are fewer than three pairs, and the
        interval below six.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    there = ~(np.isnan(x) | np.isnan(y))
    x, y = x[there], y[there]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return {"rho": np.nan, "low": np.nan, "high": np.nan, "n": len(x)}
    rho = float(np.clip(rank_correlation(x, y), -1, 1))
    low, high = rank_correlation_interval(rho, len(x), level)
    return {"rho": rho, "low": low, "high": high, "n": len(x)}


def correlations(table: pd.DataFrame, properties: Iterable[str], outcomes: Iterable[str]) -> pd.DataFrame:
    """`spearman` of every property of the samples with every outcome: ``property, outcome, rho, low, high, n``."""
    rows = [
        {"property": name, "outcome": outcome, **spearman(table[name], table[outcome])}
        for outcome in outcomes
        for name in properties
    ]
    return pd.DataFrame(rows, columns=["property", "outcome", "rho", "low", "high", "n"])


TOO_FEW = "too few samples"  # stands for a verdict where there is no interval


def paired_difference(frame: pd.DataFrame, first: str, second: str, by: tuple[str, ...] = ("metric",)) -> pd.DataFrame:
    """Mean difference ``first − second`` on the same samples, with its 95 % interval (`metrics.mean_interval`).

    What a group holds of one template or record (`results_table.clusters`) is averaged first, so that ``n`` counts
    what is independent. Cells are fixed and their samples drawn apart: pooled over cells, the differences between
    cells add to the spread, and the interval is rather too wide than too narrow.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `evaluation.evaluate`.
    first, second : str
        Labels of two methods.
    by : tuple of str
        Columns that form the groups, ``metric`` among them.

    Returns
    -------
    pandas.DataFrame
        The groups with ``difference, low, high, n`` and ``better``: the method that the interval favours,
        ``"neither"`` where it holds zero, `TOO_FEW` where there is none.
    """
    of_sample = clusters(frame).groupby(frame["sample"]).first()
    wide = frame.pivot_table(index=["sample", "cell", "metric"], columns="method", values="value").reset_index()
    rows = []
    for keys, group in wide.groupby(list(by), sort=False):
        metric = dict(zip(by, keys, strict=True))["metric"]
        gaps = (group[first] - group[second]).dropna().groupby(group["sample"].map(of_sample)).mean().to_numpy()
        low, high = mean_interval(gaps)
        ahead = low > 0 if HIGHER_IS_BETTER.get(metric) else high < 0
        behind = high < 0 if HIGHER_IS_BETTER.get(metric) else low > 0
        verdict = TOO_FEW if np.isnan(low) else first if ahead else second if behind else "neither"
        values = {"difference": gaps.mean() if len(gaps) else np.nan, "low": low, "high": high, "n": len(gaps)}
        rows.append({**dict(zip(by, keys, strict=True)), **values, "better": verdict})
    return pd.DataFrame(rows)


def against(frame: pd.DataFrame, reference: str, by: tuple[str, ...] = ("metric",)) -> pd.DataFrame:
    """`paired_difference` of every other method to one, ``method`` in front; which of them beat a control, say."""
    others = [method for method in dict.fromkeys(frame["method"]) if method != reference]
    parts = [paired_difference(frame, other, reference, by).assign(method=other) for other in others]
    table = pd.concat(parts, ignore_index=True)
    return table[["method", *(column for column in table if column != "method")]]


def rank_correlation(a, b) -> float:
    """Spearman's rank correlation of two vectors: Pearson's of the ranks, of which equal values share the mean."""
    return float(pd.Series(np.asarray(a)).rank().corr(pd.Series(np.asarray(b)).rank()))


def power_law(x: Iterable[float], y: Iterable[float]) -> tuple[float, float]:
    """Factor and exponent of y = factor · x^exponent by least squares on the logarithms.

    Raises
    ------
    ValueError
        If there are fewer than two points.
    """
    x, y = np.log(list(x)), np.log(list(y))
    if len(x) < 2:
        raise ValueError("a power law needs two measured sizes or more")
    exponent, offset = np.polyfit(x, y, 1)
    return float(np.exp(offset)), float(exponent)


def power_law_exponent(x: Iterable[float], y: Iterable[float]) -> dict[str, float]:
    """Exponent of `power_law` with the 95 % interval of Student's t that its residuals give.

    Parameters
    ----------
    x, y : iterable of float
        Pairs in which one is not a positive number are left out.

    Returns
    -------
    dict
        ``exponent, low, high`` and ``points``, the number of pairs; NaN where there are too few (two for the
        exponent, three for the interval).
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    positive = (x > 0) & (y > 0)
    x, y = x[positive], y[positive]
    if len(x) < 2:
        return {"exponent": math.nan, "low": math.nan, "high": math.nan, "points": len(x)}
    factor, exponent = power_law(x, y)
    free = len(x) - 2
    half_width = math.nan
    if free:
        residuals = np.log(y) - np.log(factor) - exponent * np.log(x)
        spread = np.square(np.log(x) - np.log(x).mean()).sum()
        half_width = stdtrit(free, 0.975) * math.sqrt(np.square(residuals).sum() / free / spread)
    return {"exponent": exponent, "low": exponent - half_width, "high": exponent + half_width, "points": len(x)}
