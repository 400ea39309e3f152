"""Statistics that several chapters share: means with intervals, paired differences, rank correlations, power laws."""

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy.special import stdtrit
from scipy.stats import norm

from flashtrace_lib.evaluation.results_table import clusters
from flashtrace_lib.metrics import HIGHER_IS_BETTER, mean_interval
from flashtrace_lib.metrics.intervals import MIN_SAMPLES, NONE, rank_correlation

TOO_FEW = "too few samples"  # stands for a verdict where there is no interval


def mean_row(
    values: Iterable[float], name: str = "mean", prefix: str = "", clusters: Iterable[str] | None = None
) -> dict[str, float]:
    """Mean with its 95 % interval (`metrics.mean_interval`), as part of a table's row.

    Parameters
    ----------
    values : iterable of float
    name, prefix : str
        Names in the row.
    clusters : iterable of str, optional
        What each value shares with others (`results_table.clusters_of`). Default: the values are independent.

    Returns
    -------
    dict
        The mean under ``name`` (NaN without values), then ``<prefix>low, <prefix>high``, ``n`` and ``n_effective``, the
        number of independent values.
    """
    values = np.asarray(list(values), dtype=float)
    labels = None if clusters is None else list(clusters)
    low, high = mean_interval(values, clusters=labels)
    mean = float(values.mean()) if len(values) else math.nan
    counted = {"n": len(values), "n_effective": len(values) if labels is None else len(set(labels))}
    return {name: mean, f"{prefix}low": low, f"{prefix}high": high, **counted}


def spearman(x, y, level: float = 0.95) -> dict[str, float]:
    """Spearman's rank correlation with its interval (`rank_correlation_interval`).

    Parameters
    ----------
    x, y : array-like of float, shape [n]
        Pairs in which one is missing (NaN) are left out; equal values share their mean rank.
    level : float
        Coverage of the interval.

    Returns
    -------
    dict
        ``rho, low, high, n``; ``rho`` is NaN where a side is constant or there are fewer than three pairs, and the
        interval below six.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    complete = ~(np.isnan(x) | np.isnan(y))
    x, y = x[complete], y[complete]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return {"rho": np.nan, "low": np.nan, "high": np.nan, "n": len(x)}
    rho = float(np.clip(rank_correlation(x, y), -1, 1))
    low, high = rank_correlation_interval(rho, len(x), level)
    return {"rho": rho, "low": low, "high": high, "n": len(x)}


def rank_correlation_interval(rho: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Interval of Spearman's correlation of ``n`` pairs: Fisher's transformation with Bonett and Wright's error (2000).

    A perfect correlation counts as one halfway to the next lower value that ``n`` ranks can have: the transformation
    would give it no width.

    Parameters
    ----------
    rho : float
        In [-1, 1]; nan where it is not defined.
    n : int

    Returns
    -------
    (float, float)
        (nan, nan) for fewer than ``MIN_SAMPLES`` pairs.
    """
    if n < MIN_SAMPLES or math.isnan(rho):
        return NONE
    most = 1 - 6 / (n * (n * n - 1))
    centre = math.atanh(max(-most, min(most, rho)))
    half = norm.ppf((1 + level) / 2) * math.sqrt((1 + rho**2 / 2) / (n - 3))
    low, high = math.tanh(centre - half), math.tanh(centre + half)
    return min(low, rho), max(high, rho)


def interval_text(low: float, high: float, form: str = "+.3f") -> str:
    """``[low, high]``, or that there is none.

    Parameters
    ----------
    low, high : float
        nan where there is no interval.
    form : str
        Format of both.
    """
    return "(no interval)" if math.isnan(low) else f"[{low:{form}}, {high:{form}}]"


def correlations(table: pd.DataFrame, properties: Iterable[str], outcomes: Iterable[str]) -> pd.DataFrame:
    """`spearman` of every property of the samples with every outcome: ``property, outcome, rho, low, high, n``.

    Samples of one ``cluster``, where the table has the column, are averaged first; n counts clusters.
    """
    if "cluster" in table:
        table = table.groupby("cluster", sort=False).mean(numeric_only=True)
    rows = [
        {"property": name, "outcome": outcome, **spearman(table[name], table[outcome])}
        for outcome in outcomes
        for name in properties
    ]
    return pd.DataFrame(rows, columns=["property", "outcome", "rho", "low", "high", "n"])


def paired_difference(frame: pd.DataFrame, first: str, second: str, by: tuple[str, ...] = ("metric",)) -> pd.DataFrame:
    """Mean difference ``first − second`` on the same samples, with its 95 % interval (`metrics.mean_interval`).

    Samples of one template or record (`results_table.clusters`) are one cluster of the interval. Cells are fixed and
    their samples drawn apart: pooled over cells, the differences between cells add to the spread, and the interval is
    rather too wide than too narrow.

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
        The groups with ``difference, low, high, n, n_effective`` and ``better``: the method that the interval favours,
        ``"neither"`` where it holds zero, `TOO_FEW` where there is none.
    """
    both = frame[frame["method"].isin([first, second])]  # what the others have is not asked for
    cluster_of = clusters(both).groupby(both["sample"]).first()
    if missing := [name for name in (first, second) if name not in set(both["method"])]:
        raise ValueError(f"no rows of {', '.join(missing)}: the frame has {', '.join(sorted(set(frame['method'])))}")
    same = [name for name in dict.fromkeys(("sample", "cell", "model", "metric", *by)) if name in both]
    wide, rows = both.pivot_table(index=same, columns="method", values="value").reset_index(), []
    for keys, part in wide.groupby(list(by), sort=False):
        group, differences = dict(zip(by, keys, strict=True)), (part[first] - part[second]).dropna()
        row = mean_row(differences, "difference", clusters=part["sample"].map(cluster_of)[differences.index])
        higher_is_better = HIGHER_IS_BETTER.get(group["metric"], True)
        rows.append({**group, **row, "better": _favoured(row, first, second, higher_is_better)})
    return pd.DataFrame(rows)


def _favoured(row: dict[str, float], first: str, second: str, higher_is_better: bool) -> str:
    """The one of two methods that the interval of their difference favours."""
    if math.isnan(row["low"]):
        return TOO_FEW
    if row["low"] > 0:
        return first if higher_is_better else second
    if row["high"] < 0:
        return second if higher_is_better else first
    return "neither"


def against(frame: pd.DataFrame, reference: str, by: tuple[str, ...] = ("metric",)) -> pd.DataFrame:
    """`paired_difference` of every other method minus one reference, with the column ``method`` in front."""
    others = [method for method in dict.fromkeys(frame["method"]) if method != reference]
    parts = [paired_difference(frame, other, reference, by).assign(method=other) for other in others]
    table = pd.concat(parts, ignore_index=True)
    return table[["method", *(column for column in table if column != "method")]]


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
    line = line_slope(np.log(x), np.log(y))
    return {"exponent": line.pop("slope"), **line}


def line_slope(x: Iterable[float], y: Iterable[float]) -> dict[str, float]:
    """Slope of the least-squares line with the 95 % interval of Student's t that its residuals give.

    Returns
    -------
    dict
        ``slope, low, high`` and ``points``, the number of pairs; NaN where there are too few (two for the slope, three
        for the interval) or x does not vary.
    """
    x, y = np.asarray(list(x), dtype=float), np.asarray(list(y), dtype=float)
    spread = np.square(x - x.mean()).sum() if len(x) else 0.0
    if len(x) < 2 or not spread:
        return {"slope": math.nan, "low": math.nan, "high": math.nan, "points": len(x)}
    slope, free = float(((x - x.mean()) * (y - y.mean())).sum() / spread), len(x) - 2
    half_width = math.nan
    if free:
        residuals = y - y.mean() - slope * (x - x.mean())
        half_width = stdtrit(free, 0.975) * math.sqrt(np.square(residuals).sum() / free / spread)
    return {"slope": slope, "low": slope - half_width, "high": slope + half_width, "points": len(x)}


def slope_within(x: pd.Series, y: pd.Series, of: pd.Series) -> dict[str, float]:
    """Slope of y on x within the clusters ``of``, each with a level of its own; its points may depend on each other.

    Returns
    -------
    dict
        ``difference, low, high`` (95 %), ``n`` (points), ``n_effective``: the clusters within which x varies;
        no interval below six of these.
    """
    u, v = (values - values.groupby(of).transform("mean") for values in (x.astype(float), y))
    spread, varies = u.pow(2).sum(), (u.abs().groupby(of).sum() > 0).sum()
    slope = (u * v).sum() / spread
    error = math.sqrt(varies / max(1, varies - 1) * (u * (v - slope * u)).groupby(of).sum().pow(2).sum()) / spread
    half = stdtrit(varies - 1, 0.975) * error if varies >= MIN_SAMPLES else math.nan
    return {"difference": slope, "low": slope - half, "high": slope + half, "n": len(x), "n_effective": varies}
