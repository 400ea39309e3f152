"""Effect of a metric's definition on its numbers: on synthetic curves, and on stored ones under every definition.

No model is needed: deletion curves and scores are stored raw (`evaluation.evaluate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from flashtrace_lib import metrics as m
from flashtrace_lib.evaluation.results_table import frame_from_records
from flashtrace_lib.store import Store

from ..statistics import rank_correlation

# name -> arguments of `frame_from_records` and `summarise`; the first is the book's default
VARIANTS: dict[str, dict[str, str]] = {
    "signed denominator": {},
    "absolute denominator": {"denominator": "absolute"},
    "flagged samples left out": {"flagged": "exclude"},
    "as printed": {"definition": "printed"},
}
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
        {
            "curve": name,
            "rise": m.rise(response),
            "mas": m.mas(response, share),
            "printed_rise": m.rise(response, "printed"),
            "printed_mas": m.mas(response, share, "printed"),
        }
        for name, (response, share) in hand_made_curves(steps).items()
    )


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


def records_of(frame: pd.DataFrame, store: Store) -> pd.DataFrame:
    """The records that an evaluation read or wrote, under its own names of the methods.

    A record bears the name of the chapter that stored it first; one draw of the random baseline may be ``random`` in
    one and ``random/0`` in another.

    Parameters
    ----------
    frame : DataFrame
        ``key, method``, from `evaluation.evaluate`.
    store : Store
        The store that it was given.

    Returns
    -------
    DataFrame
        As `Store.records`, in its order.
    """
    names = frame.drop_duplicates("key").set_index("key")["method"]
    records = store.records()
    records = records[records["key"].isin(names.index)]
    return records.assign(method=records["key"].map(names))


def variant_table(records: pd.DataFrame, metrics: Iterable[str] = ("rise", "mas")) -> pd.DataFrame:
    """Mean of each method over all samples, and its rank, under every one of ``VARIANTS``.

    Parameters
    ----------
    records : pandas.DataFrame
        From a store; see `results_table.frame_from_records`.
    metrics : iterable of str
        Deletion metrics.

    Returns
    -------
    pandas.DataFrame
        ``metric, variant, method, mean, rank, n``; rank 1 is the best, the lowest mean.
    """
    parts = []
    for variant, options in VARIANTS.items():
        definition = {name: value for name, value in options.items() if name != "flagged"}
        frame = frame_from_records(records, tuple(metrics), **definition)
        if options.get("flagged") == "exclude":
            frame = frame[~frame["flagged"].astype(bool)]
        means = frame.groupby(["metric", "method"], sort=False)["value"].agg(mean="mean", n="size").reset_index()
        means["rank"] = means.groupby("metric")["mean"].rank(method="min").astype(int)
        parts.append(means.assign(variant=variant))
    return pd.concat(parts, ignore_index=True)[["metric", "variant", "method", "mean", "rank", "n"]]


def agreement_with_default(table: pd.DataFrame) -> pd.DataFrame:
    """Spearman's correlation of each variant's means of the methods with the first's: ``metric, variant, rho``."""
    default = next(iter(VARIANTS))
    rows = []
    for metric, part in table.groupby("metric", sort=False):
        wide = part.pivot(index="method", columns="variant", values="mean")
        rows += [
            {"metric": metric, "variant": variant, "rho": rank_correlation(wide[variant], wide[default])}
            for variant in VARIANTS
            if variant in wide and variant != default
        ]
    return pd.DataFrame(rows, columns=["metric", "variant", "rho"])


def temperature_table(records: pd.DataFrame, temperatures: Iterable[float] = TEMPERATURES) -> pd.DataFrame:
    """MAS of each method with its scores sharpened or flattened, which changes neither the ranking nor RISE.

    Returns
    -------
    pandas.DataFrame
        ``method, temperature, mas, n``: means over all records that hold a curve.
    """
    rows = []
    for record in _with_curve(records):
        response = m.normalise_response(record["log_probs"])
        steps = len(record["log_probs"]) - 1
        for temperature in temperatures:
            share = m.cumulative(m.sharpen(record["scores"], temperature), steps)
            rows.append((record["method"], temperature, m.mas(response, share)))
    frame = pd.DataFrame(rows, columns=["method", "temperature", "mas"])
    return frame.groupby(["method", "temperature"], sort=False)["mas"].agg(mas="mean", n="size").reset_index()


def recovery_table(records: pd.DataFrame) -> pd.DataFrame:
    """Mean recovery under each choice that its definition leaves open.

    Returns
    -------
    pandas.DataFrame
        ``method, floor, ceil`` (K rounded down or up), ``later_first`` (ties broken in favour of the later token
        instead of the earlier), ``tied`` (share of input tokens whose score another one has as well).
    """
    rows = []
    for record in records.to_dict("records"):
        if record.get("gold") is None or not np.any(record["gold"]):
            continue
        scores, gold = np.asarray(record["scores"]), np.asarray(record["gold"])
        _, counts = np.unique(scores, return_counts=True)
        rows.append(
            {
                "method": record["method"],
                "floor": m.recovery_rate(scores, gold),
                "ceil": m.recovery_rate(scores, gold, rounding="ceil"),
                # ties keep the order of the text: in the reversed text, the later token comes first
                "later_first": m.recovery_rate(scores[::-1].copy(), gold[::-1].copy()),
                "tied": counts[counts > 1].sum() / len(scores),
            }
        )
    columns = ["floor", "ceil", "later_first", "tied"]
    frame = pd.DataFrame(rows, columns=["method", *columns])
    return frame.groupby("method", sort=False)[columns].mean().reset_index()


def floor_table(records: pd.DataFrame) -> pd.DataFrame:
    """Number of RISE values on the floor of the grid, 1 / (2 K): ``method, floor, at_floor, n``."""
    rows = []
    for record in _with_curve(records):
        floor = 1 / (2 * (len(record["log_probs"]) - 1))
        value = m.rise(m.normalise_response(record["log_probs"]))
        rows.append({"method": record["method"], "floor": floor, "at_floor": value <= floor + 1e-9})
    frame = pd.DataFrame(rows, columns=["method", "floor", "at_floor"])
    grouped = frame.groupby("method", sort=False)
    return grouped.agg(floor=("floor", "first"), at_floor=("at_floor", "sum"), n=("at_floor", "size")).reset_index()


def flag_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Number of flagged samples per cell of a frame of `evaluation.evaluate`: ``cell, flagged, n``.

    A sample counts where every method is flagged; single methods are also flagged where they rank nothing.
    """
    curves = frame[frame["metric"].isin(["rise", "mas"])]
    each = curves.groupby(["cell", "sample"], sort=False)["flagged"].all().reset_index()
    grouped = each.groupby("cell", sort=False)["flagged"]
    return grouped.agg(flagged=lambda flags: int(flags.sum()), n="size").reset_index()


def naive_rise_and_mas(record: Mapping[str, Any]) -> tuple[float, float]:
    """RISE and MAS of one record by loops over its raw columns, from the formulas alone.

    A second derivation for the audit: shares no code with `metrics`.
    """
    s = [float(value) for value in record["log_probs"]]
    scores = [float(value) for value in record["scores"]]
    steps, n = len(s) - 1, len(scores)
    order = sorted(range(n), key=lambda i: (-scores[i], i))  # the most important first, ties in the order of the text
    total = sum(abs(value) for value in scores)
    lowest, response, remaining = s[0], [], []
    for k in range(steps + 1):
        lowest = min(lowest, s[k])
        drop = s[0] - s[steps]
        response.append(1.0 if drop == 0 else min(1.0, max(0.0, (lowest - s[steps]) / drop)))
        masked = order[: k * n // steps]
        share = sum(abs(scores[i]) for i in masked) / total if total else (k * n // steps) / n
        remaining.append(1 - share)
    penalised = [min(1.0, max(0.0, r + abs(r - d))) for r, d in zip(response, remaining, strict=True)]
    low, high = min(penalised), max(penalised)
    scaled = [(p - low) / (high - low) for p in penalised] if high > low else penalised
    return _trapezoid(response), _trapezoid(scaled)


def _trapezoid(values: list[float]) -> float:
    return sum((a + b) / 2 for a, b in zip(values, values[1:], strict=False)) / (len(values) - 1)


def _with_curve(records: pd.DataFrame) -> list[dict[str, Any]]:
    return [record for record in records.to_dict("records") if isinstance(record.get("log_probs"), list | np.ndarray)]
