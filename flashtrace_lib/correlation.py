"""Rank correlations of what was measured on the same samples, with intervals."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from .intervals import rank_correlation_interval


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
    rho = float(np.clip(pd.Series(x).rank().corr(pd.Series(y).rank()), -1, 1))  # Pearson's of the ranks
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
