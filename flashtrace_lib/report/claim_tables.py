"""FlashTrace against every other method, sample by sample: from stored records alone, without a model."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .. import paths
from ..experiments import against
from ..frames import frame_from_records, summarise
from ..groups import in_groups
from ..store import Store
from .claim_evidence import Evidence
from .claim_rules import Missing

METRICS = ("recovery", "r_precision", "rise", "mas")
# Store of raw records -> the table made of it, which says which records count.
TABLES = {"ruler": "table1_ruler", "math": "table2_math", "morehopqa": "table2_morehopqa", "aider": "table4_aider"}
# Further tables of those stores, and of one that is grouped over its lengths.
MORE = (("morehopqa", "table3_rollout"), ("morehopqa", "table7_hops"), ("ruler", "table10_last_token"),
        ("hotpotqa_long", "table8_unfiltered"))  # fmt: skip
GROUPED = ("table1_ruler", "table8_unfiltered", "table10_last_token")
SAME = {"flashtrace_k1": "flashtrace"}  # one result under two names
_AGREE = 1e-5  # relative: the tables keep six digits


def paired_with_all(profile: str) -> tuple[pd.DataFrame, list[str]]:
    """FlashTrace minus every other method on the same samples, for each cell of Tables 1 to 4 and groups of them.

    A cell, or a group of cells that the table prints, counts only where the means and numbers of samples of its records
    are those of the table; the groups of a table all of whose cells count do so too.

    Parameters
    ----------
    profile : str

    Returns
    -------
    table : pandas.DataFrame
        ``table, cell, method, metric, difference, low, high, n``: positive where FlashTrace's number is higher.
    left_out : list of str
        What is not in it, with the reason.
    """
    parts, left_out = [], []
    for store, name in [*TABLES.items(), *MORE]:
        path = paths.results_dir(profile) / f"{store}.parquet"
        try:
            printed = Evidence(profile).table(name).replace({"method": SAME})
        except Missing:
            left_out.append(f"{name}, which this profile has not generated")
            continue
        if not path.is_file():
            left_out.append(f"{name}, whose records in {path.name} are not there")
            continue
        frame = frame_from_records(Store(path).records(), METRICS)
        frame = in_common(frame[frame["method"].isin(printed["method"])])
        groups = in_groups(frame) if name in GROUPED else frame.head(0)
        both = pd.concat([frame, groups], ignore_index=True)
        kept = matching_cells(both, printed)
        left_out += [
            f"{name}: records of {cell} are not those of the table"
            for cell in sorted(set(both["cell"]) & set(printed["cell"]) - kept)
        ]
        kept |= set(groups["cell"]) if kept >= set(frame["cell"]) else set()
        if kept:
            parts.append(_differences(both[both["cell"].isin(kept)], name))
    columns = ["table", "cell", "method", "metric", "difference", "low", "high", "n"]
    return (pd.concat(parts)[columns].reset_index(drop=True) if parts else pd.DataFrame(columns=columns)), left_out


def in_common(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the samples that every method of their cell has a value of the metric for."""
    methods = frame.groupby(["cell", "metric"])["method"].transform("nunique")
    mine = frame.groupby(["cell", "metric", "sample"])["method"].transform("nunique")
    return frame[mine == methods]


def matching_cells(frame: pd.DataFrame, printed: pd.DataFrame) -> set[str]:
    """Cells whose stored records give the printed means and numbers of samples, for every method and metric.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `frames.frame_from_records`.
    printed : pandas.DataFrame
        The long table: ``method, cell, metric, mean, n``.
    """
    key = ["method", "cell", "metric"]
    stored = summarise(frame)[[*key, "mean", "n"]]
    both = printed.merge(stored, on=key, suffixes=("", "_stored"))
    agree = (both["n"] == both["n_stored"]) & np.isclose(both["mean"], both["mean_stored"], rtol=_AGREE, atol=_AGREE)
    return {cell for cell, part in agree.groupby(both["cell"]) if part.all()}


def _differences(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """FlashTrace minus each other method, in each cell and group of cells."""
    table = against(frame, "flashtrace", by=("metric", "cell"))  # the others minus FlashTrace
    table = table.assign(difference=-table["difference"], low=-table["high"], high=-table["low"], table=name)
    return table[table["n"] > 0]
