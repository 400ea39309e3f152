"""The causal hop against its rivals, on samples that did not choose it (12)."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from .ablations import label_of
from .results import Results
from .statistics import paired_difference

CAUSAL, RIVALS = "flashtrace_causal", ("flashtrace_best", "ifr_all", "at2", "attnlrp", "flashtrace", "string_match")
LOOKED_AT = {"h2_c3": 4, "mq_q4": 4}  # the first samples of these cells, on which the causal hop was chosen


def fresh(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the cells that have the causal hop, without the samples that were looked at."""
    frame = frame[frame["cell"].isin(frame.loc[frame["method"] == CAUSAL, "cell"])]
    seen: set[str] = set()
    for cell, n in LOOKED_AT.items():
        seen |= set(frame.loc[frame["cell"] == cell, "sample"].drop_duplicates()[:n])
    return frame[~frame["sample"].isin(seen)]


def causal_gains(results: Results, metrics: Sequence[str], answers: str = "own") -> pd.DataFrame:
    """The causal hop minus each rival: all cells that have it, and the cell of chains side by side alone.

    Returns
    -------
    pandas.DataFrame
        ``group, method, label, metric, difference, low, high, n``.
    """
    frame = fresh(results.frame(metrics, [CAUSAL, *RIVALS], answers=answers))
    groups = {"all cells": frame, "h2_c3": frame[frame["cell"] == "h2_c3"]}
    parts = [
        paired_difference(part, CAUSAL, rival).assign(group=group, method=rival, label=label_of(rival))
        for group, part in groups.items()
        for rival in RIVALS
        if rival in set(part["method"])
    ]
    return pd.concat(parts, ignore_index=True)
