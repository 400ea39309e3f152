"""What a metric's definition does to its numbers, and what RISE and MAS go with, on hand-made and on stored curves.

No model is needed: deletion curves and scores are stored raw (`evaluation.evaluate`).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch

from flashtrace_lib import metrics as m
from flashtrace_lib.evaluation.results_table import frame_from_records
from flashtrace_lib.metrics.curve import bisected

from .statistics import mean_row, rank_correlation

PROPERTIES = ("question", "evidence", "pieces", "sharpness")
TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 4.0)


def hand_made_curves(steps: int = 20) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Synthetic responses with scores that can be worked out by hand, each with the share of the mass that is masked.

    Returns
    -------
    dict of str to (response, cumulative)
        Both float64 of shape [steps + 1]; the share rises from 0 to 1.
    """
    falling = np.linspace(1, 0, steps + 1)
    cliff = np.r_[1.0, np.zeros(steps)]  # the first group destroys the response
    late = np.r_[np.ones(steps), 0.0]  # only the last one does
    even, first, last = 1 - falling, 1 - cliff, 1 - late
    return {
        "straight line, even mass": (falling, even),
        "cliff at the first step, all mass there": (cliff, first),
        "cliff at the first step, even mass": (cliff, even),
        "cliff at the last step, even mass": (late, even),
        "cliff at the last step, all mass at the first": (late, first),
        "cliff at the last step, all mass there": (late, last),
        "no drop at all, even mass": (np.ones(steps + 1), even),
    }


def hand_made_table(steps: int = 20) -> pd.DataFrame:
    """RISE and MAS of `hand_made_curves` under both definitions, the response taken as given.

    Returns
    -------
    pandas.DataFrame
        ``curve, rise, mas, printed_rise, printed_mas``.
    """
    return pd.DataFrame(
        {"curve": name, "rise": m.rise(response), "mas": m.mas(response, share),
         "printed_rise": m.rise(response, "printed"), "printed_mas": m.mas(response, share, "printed")}
        for name, (response, share) in hand_made_curves(steps).items()
    )  # fmt: skip


def denominator_table(log_probs: Mapping[str, Iterable[float]]) -> pd.DataFrame:
    """RISE of raw curves under both denominators; columns ``curve, flagged, signed, absolute``."""
    return pd.DataFrame(
        {
            "curve": name,
            "flagged": m.is_flagged(curve),
            **{kind: m.rise(m.normalise_response(curve, denominator=kind)) for kind in m.DENOMINATORS},
        }
        for name, curve in ((name, list(values)) for name, values in log_probs.items())
    )


def definition_table(records: pd.DataFrame, metrics: Iterable[str] = ("rise", "mas")) -> pd.DataFrame:
    """Mean of each method over all samples, and its rank, under every one of ``metrics.DEFINITIONS``.

    Parameters
    ----------
    records : pandas.DataFrame
        From `Results.records`; averaged random draws, which have no curve of their own, are left out.
    metrics : iterable of str
        Deletion metrics.

    Returns
    -------
    pandas.DataFrame
        ``metric, definition, method, mean, rank, n``; rank 1 is the lowest mean, and equal means share a rank.
    """
    parts = []
    for definition in m.DEFINITIONS:
        frame = frame_from_records(_with_curve(records), tuple(metrics), definition)
        means = frame.groupby(["metric", "method"], sort=False)["value"].agg(mean="mean", n="size").reset_index()
        means["rank"] = means.groupby("metric")["mean"].rank(method="min").astype(int)
        parts.append(means.assign(definition=definition))
    return pd.concat(parts, ignore_index=True)[["metric", "definition", "method", "mean", "rank", "n"]]


def temperature_table(records: pd.DataFrame, temperatures: Iterable[float] = TEMPERATURES) -> pd.DataFrame:
    """MAS of each method with its scores sharpened or flattened, which changes neither the ranking nor RISE.

    Returns
    -------
    pandas.DataFrame
        ``method, temperature, mas, n``: means over all records that hold a curve.
    """
    rows = []
    for record in _with_curve(records):
        response, steps = m.normalise_response(record["log_probs"]), len(record["log_probs"]) - 1
        for temperature in temperatures:
            share = m.cumulative(m.sharpen(record["scores"], temperature), steps)
            rows.append((record["method"], temperature, m.mas(response, share)))
    frame = pd.DataFrame(rows, columns=["method", "temperature", "mas"])
    return frame.groupby(["method", "temperature"], sort=False)["mas"].agg(mas="mean", n="size").reset_index()


def curve_table(records: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """What stored curves hold, one row for each name: samples, flagged ones, curves, and those on the floor of RISE.

    A sample is flagged where masking everything does not lower the likelihood, the same for every method. The floor of
    the grid is 1 / (2 K).
    """
    rows = []
    for name, table in records.items():
        curves = pd.DataFrame(_with_curve(table))
        if curves.empty:
            continue
        values = [m.rise(m.normalise_response(curve)) for curve in curves["log_probs"]]
        floors = [1 / (2 * (len(curve) - 1)) for curve in curves["log_probs"]]
        flagged = curves[curves["log_probs"].map(m.is_flagged)].groupby(["cell", "sample"]).ngroups
        at_floor = sum(value <= floor + 1e-9 for value, floor in zip(values, floors, strict=True))
        row = {"records": name, "samples": curves.groupby(["cell", "sample"]).ngroups, "flagged": flagged}
        rows.append(row | {"curves": len(curves), "on the floor": at_floor})
    return pd.DataFrame(rows)


def bisection_table(records: pd.DataFrame, tolerances: Iterable[float] = (0.01, 0.03)) -> pd.DataFrame:
    """What stored curves would have cost by bisection, and how far RISE and MAS would be off.

    Returns
    -------
    pandas.DataFrame
        ``tolerance, method, passes`` (steps evaluated), ``rise, mas`` (mean of what bisection adds), ``rise_worst,
        mas_worst`` (its largest magnitude) and ``n``: of each method, of all curves (``"all"``), and of FlashTrace
        minus IFR on the samples that both have (``"flashtrace - ifr"``).
    """
    rows = []
    for record in _with_curve(records):
        whole, steps = torch.tensor(list(record["log_probs"]), dtype=torch.float64), len(record["log_probs"]) - 1
        exact = m.normalise_response(whole)
        for tolerance in tolerances:
            found, at = bisected(whole.__getitem__, steps, tolerance)
            found = m.normalise_response(found)
            rows.append({
                "tolerance": tolerance, "method": record["method"], "sample": record["sample"], "passes": len(at),
                "rise": m.rise(found) - m.rise(exact),
                "mas": m.mas(found, record["cumulative"]) - m.mas(exact, record["cumulative"]),
            })  # fmt: skip
    by = pd.DataFrame(rows)
    index, errors = ["tolerance", "sample"], ["passes", "rise", "mas"]
    pair = [by[by["method"] == method].set_index(index)[errors] for method in ("flashtrace", "ifr")]
    paired = (pair[0] - pair[1]).dropna().reset_index().assign(method="flashtrace - ifr", passes=np.nan)
    frame = pd.concat([by, by.assign(method="all"), paired])
    worst = {f"{name}_worst": (name, lambda error: error.abs().max()) for name in ("rise", "mas")}
    means = {name: (name, "mean") for name in errors}
    table = frame.groupby(["tolerance", "method"], sort=False).agg(**means, **worst, n=("rise", "size")).reset_index()
    return table.sort_values("tolerance", kind="stable", ignore_index=True)


def ranking_properties(records: pd.DataFrame) -> pd.DataFrame:
    """RISE and MAS of every stored curve beside what its ranking looks like.

    Returns
    -------
    pandas.DataFrame
        ``sample, method, rise, mas`` and ``PROPERTIES``, of the top tenth: ``question``, the share in it of what stands
        behind the haystack; ``evidence``, recovery; ``pieces``, its stretches of neighbouring tokens over its size;
        ``sharpness``, the share of the mass on it.
    """
    rows = []
    for record in _with_curve(records):
        scores, end = record["scores"].astype(float), record["haystack"][1]
        # Of tied tokens the earlier first, as the stored curves masked them.
        top = np.sort(np.argsort(-scores, kind="stable")[: m.top_count(len(scores))])
        mass, response = np.abs(scores) / np.abs(scores).sum(), m.normalise_response(record["log_probs"])
        rows.append({
            "sample": record["sample"], "method": record["method"],
            "rise": m.rise(response), "mas": m.mas(response, record["cumulative"]),
            "question": (top >= end).sum() / max(len(scores) - end, 1),
            "evidence": m.recovery_rate(scores, record["gold"]),
            "pieces": (1 + (np.diff(top) > 1).sum()) / len(top), "sharpness": mass[top].sum(),
        })  # fmt: skip
    return pd.DataFrame(rows)


def within_samples(frame: pd.DataFrame, first: Iterable[str], second: Iterable[str]) -> pd.DataFrame:
    """Rank correlation over methods within each sample, averaged over the samples.

    Parameters
    ----------
    frame : DataFrame
        A row a sample and method, with a column for each name of ``first`` and ``second``.

    Returns
    -------
    pandas.DataFrame
        ``first, second, rho, low, high, n, n_effective``; samples in which either column is constant, or in which fewer
        than four methods have both, are left out.
    """
    second, rows = list(second), []
    for a in first:
        for b in second:
            if a == b:
                continue
            parts = [part[[a, b]].dropna() for _, part in frame.groupby("sample", sort=False)]
            rhos = [rank_correlation(part[a], part[b]) for part in parts if len(part) > 3]
            kept = [rho for rho in rhos if rho == rho]
            if kept:
                rows.append({"first": a, "second": b, **mean_row(kept, "rho")})
    return pd.DataFrame(rows, columns=["first", "second", "rho", "low", "high", "n", "n_effective"])


def metric_agreement(frame: pd.DataFrame) -> pd.DataFrame:
    """`within_samples` of every two metrics, turned so that 1 is the same order from best to worst.

    Parameters
    ----------
    frame : DataFrame
        From `Results.frame`.
    """
    turned = frame["value"].where(frame["metric"].map(m.HIGHER_IS_BETTER).astype(bool), -frame["value"])
    wide = frame.assign(value=turned).pivot_table(index=["sample", "method"], columns="metric", values="value")
    metrics = [metric for metric in dict.fromkeys(frame["metric"]) if metric in wide]
    return within_samples(wide.reset_index(), metrics, metrics)


def _with_curve(records: pd.DataFrame) -> list[dict[str, Any]]:
    """Records that hold a deletion curve and the scores behind it; of averaged random draws no scores are stored."""
    given = [name for name in ("log_probs", "scores") if name in records]
    rows = records.to_dict("records") if len(given) == 2 else []
    return [row for row in rows if all(isinstance(row[name], list | np.ndarray) for name in given)]
