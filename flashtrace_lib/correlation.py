"""Rank correlations of what was measured on the same samples, with intervals."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd


def spearman(x, y, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> dict[str, float]:
    """Spearman's rank correlation with a percentile bootstrap interval over the pairs.

    Parameters
    ----------
    x, y : array-like of float, shape [n]
        Pairs in which one is missing (NaN) are left out; equal values share their mean rank.
    level : float
        Coverage.
    resamples, seed : int
        Size and seed of the bootstrap; the result is deterministic.

    Returns
    -------
    dict
        ``rho, low, high, n``; NaN where a side is constant or there are fewer than three pairs. Resamples in which a
        side is constant say nothing and are left out.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    there = ~(np.isnan(x) | np.isnan(y))
    x, y = x[there], y[there]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return {"rho": np.nan, "low": np.nan, "high": np.nan, "n": len(x)}
    draws = np.random.default_rng(seed).integers(len(x), size=(resamples, len(x)))
    drawn = _rows_correlated(x[draws], y[draws])
    low, high = np.nanquantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    rho = _rows_correlated(x[None], y[None])[0]
    return {"rho": float(rho), "low": float(low), "high": float(high), "n": len(x)}


def correlations(table: pd.DataFrame, properties: Iterable[str], outcomes: Iterable[str]) -> pd.DataFrame:
    """`spearman` of every property of the samples with every outcome: ``property, outcome, rho, low, high, n``."""
    rows = [
        {"property": name, "outcome": outcome, **spearman(table[name], table[outcome])}
        for outcome in outcomes
        for name in properties
    ]
    return pd.DataFrame(rows, columns=["property", "outcome", "rho", "low", "high", "n"])


def _rows_correlated(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Pearson's correlation of the ranks, row by row of [B, n]; NaN where a row is constant."""
    a, b = _ranks(x), _ranks(y)
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    size = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return np.divide((a * b).sum(1), size, out=np.full(len(size), np.nan), where=size > 0)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1 within each row of [B, n]; equal values share their mean rank."""
    distinct, codes = np.unique(values, return_inverse=True)
    codes = codes.reshape(values.shape)
    rows, wide = np.arange(len(values))[:, None], len(distinct)
    counts = np.bincount((rows * wide + codes).ravel(), minlength=len(values) * wide).reshape(-1, wide)
    ranks = counts.cumsum(1) - (counts - 1) / 2  # of c equal values the last has the rank cumsum, the first c - 1 less
    return np.take_along_axis(ranks, codes, 1)
