"""Cells of Table 1 in groups: needles, chains of assignments, documents; two samples a cell tell little alone."""

from __future__ import annotations

import pandas as pd

ALL = "all cells"


def cell_group(cell: str) -> str:
    """Group of a cell of Table 1: ``needles``, ``chains`` or ``documents``."""
    if cell.startswith("hotpotqa"):
        return "documents"
    return "chains" if cell.startswith("h") else "needles"


def in_groups(frame: pd.DataFrame) -> pd.DataFrame:
    """Every row under the name of its cell's group, and again under "all cells"; for summaries over groups.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `evaluation.evaluate`.

    Returns
    -------
    pandas.DataFrame
        With ``cell`` replaced. A group of one cell, which would say nothing new, is left out.
    """
    groups = frame["cell"].map(cell_group)
    wider = frame.groupby(groups)["cell"].nunique() > 1
    return pd.concat([frame.assign(cell=groups)[groups.map(wider)], frame.assign(cell=ALL)], ignore_index=True)
