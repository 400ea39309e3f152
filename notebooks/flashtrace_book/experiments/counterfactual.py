"""Counterfactual swaps as a yardstick: which metric ranks attributions as the swaps do?

A swap needs no mask and no marked evidence: the prompt stays a valid problem, only with another answer. A metric that
agrees with the swaps across methods and samples measures what the answer depends on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
import torch

from flashtrace_lib.attribution import holds_copies, sentence_scores
from flashtrace_lib.evaluation.results_table import Record
from flashtrace_lib.metrics import HIGHER_IS_BETTER, swap_agreement

from ..statistics import mean_row, rank_correlation

SWAP_METRICS = ("swap_spearman", "swap_auroc")


def swap_frame(records: pd.DataFrame | Iterable[Record], effects: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """`metrics.swap_agreement` of every stored attribution whose sample was swapped.

    Parameters
    ----------
    records : DataFrame (``Store.records()``) or iterable of dict
        Of `evaluation.evaluate`, with their ``sentences``.
    effects : mapping of sample id to pandas.DataFrame
        From `tasks.swap_effects`.

    Returns
    -------
    pandas.DataFrame
        ``method, cell, sample, metric, value``, one row a record and metric of ``SWAP_METRICS``; undefined values are
        left out.

    Raises
    ------
    ValueError
        If a record has no sentences.
    """
    if isinstance(records, pd.DataFrame):
        records = records.to_dict("records")
    rows = []
    for record in records:
        if record["sample"] not in effects:
            continue
        spans = record.get("sentences")
        if not isinstance(spans, (list, np.ndarray)) or not len(spans):
            raise ValueError(
                f"the record of {record['method']} on {record['sample']} has no sentences: run evaluate with its store "
                "again, which adds them to what it returns"
            )
        copies = holds_copies(json.loads(record["method_metadata"]))
        scores = torch.as_tensor(np.asarray(record["scores"], dtype=np.float32))  # [|I|]
        found = swap_agreement(sentence_scores(scores, spans, copies), effects[record["sample"]])
        shared = {name: record[name] for name in ("method", "cell", "sample")}
        rows += [{**shared, "metric": name, "value": found[name]} for name in SWAP_METRICS]
    return pd.DataFrame(rows, columns=["method", "cell", "sample", "metric", "value"]).dropna(subset="value")


def agreement(frame: pd.DataFrame, swap_metric: str = "swap_auroc") -> pd.DataFrame:
    """Rank correlation of every metric with a swap metric, across pairs of method and sample.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns ``method, sample, metric, value``: of `evaluation.evaluate` and of `swap_frame`, one under the other.
    swap_metric : str
        The yardstick, one of the metrics of the frame.

    Returns
    -------
    pandas.DataFrame
        One row a metric. ``rho`` is Spearman's correlation over all ``pairs`` (method, sample) that have both values;
        of a metric whose low values are good the sign is turned, so that 1 is full agreement. ``within`` is the mean
        over samples of the correlation over methods on one sample, which the difficulty of the samples cannot
        make; ``low, high`` is its 95 % interval and ``n`` the number of samples, those on which either side is
        constant or has fewer than three methods left out. Pairs of one sample are not independent, so ``rho`` has no
        interval.

    Raises
    ------
    ValueError
        If the frame does not hold the swap metric, or a pair has two values of a metric.
    """
    if swap_metric not in set(frame["metric"]):
        raise ValueError(f"the frame holds no {swap_metric!r}: add the rows of swap_frame to it")
    keys = ["method", "sample"]
    if frame.duplicated([*keys, "metric"]).any():
        raise ValueError("a method has two values of one metric on one sample: give each setting its own label")
    wide = frame.pivot(index=keys, columns="metric", values="value")
    rows = []
    for metric in dict.fromkeys(frame["metric"]):
        if metric == swap_metric:
            continue
        sign = 1 if HIGHER_IS_BETTER.get(metric, True) else -1
        both = pd.DataFrame({"metric": sign * wide[metric], "swap": wide[swap_metric]}).dropna()
        of_samples = [_correlation(part) for _, part in both.groupby(level="sample")]
        within = mean_row([rho for rho in of_samples if not np.isnan(rho)], "within")
        rows.append({"metric": metric, "rho": _correlation(both), "pairs": len(both), **within})
    return pd.DataFrame(rows, columns=["metric", "rho", "pairs", "within", "low", "high", "n"])


def _correlation(both: pd.DataFrame) -> float:
    """Spearman's correlation of the two columns; NaN where one is constant or there are fewer than three rows."""
    if len(both) < 3 or both.nunique().min() < 2:
        return float("nan")
    return rank_correlation(both["metric"], both["swap"])
