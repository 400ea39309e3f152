"""Means with their intervals, drawn as bars, lines and whiskers."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from flashtrace_lib.metrics import mean_interval

from .palette import DARK


def side_by_side(i: int, count: int, step: float) -> float:
    """Shift of item ``i`` of ``count`` that stand ``step`` apart around one place."""
    return (i - (count - 1) / 2) * step


def whiskers(mean: ArrayLike, low: ArrayLike, high: ArrayLike) -> np.ndarray:
    """Distances from the means to the ends of their intervals, shape [2, n]; NaN, no interval, is not drawn."""
    return np.clip([np.atleast_1d(mean - low), np.atleast_1d(high - mean)], 0, None)


def means_of(groups: Sequence[pd.DataFrame], column: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean of a column in each group, shape [n], and the `whiskers` of its t interval, shape [2, n].

    Where the groups have a column ``cluster``, rows that share one are not independent (`metrics.mean_interval`).
    """
    mean = np.array([group[column].mean() for group in groups])
    low, high = np.array([mean_interval(group[column], clusters=group.get("cluster")) for group in groups]).T
    return mean, whiskers(mean, low, high)


def grouped_bars(
    axes: Axes, mean: Sequence[float], spread: np.ndarray, *, series: int, n_series: int, group: float = 0.8, **bar
) -> np.ndarray:
    """Draw the bars of one of several series that stand side by side, with whiskers, and return their x.

    Parameters
    ----------
    axes : Axes
    mean : sequence of float, length groups
    spread : array, shape [2, groups]
        From `whiskers`.
    series, n_series : int
        Place of the series among all, from 0.
    group : float
        Width of all bars of a group together; the groups stand at 0, 1, 2, ….
    **bar
        Passed on to ``Axes.bar``.

    Returns
    -------
    array, shape [groups]
    """
    width = group / n_series
    x = np.arange(len(mean)) + side_by_side(series, n_series, width)
    axes.bar(x, mean, 0.92 * width, edgecolor="white", **bar)
    axes.errorbar(x, mean, yerr=spread, fmt="none", ecolor=DARK, elinewidth=0.9, capsize=2)
    return x
