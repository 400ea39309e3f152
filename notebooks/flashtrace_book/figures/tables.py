"""Our numbers beside the paper's: the long table for machines, the wide one for readers."""

import html
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from flashtrace_lib.metrics import HIGHER_IS_BETTER

from ..paper_numbers import paper_value
from ..statistics import interval_text
from .markup import flat, latex, markdown
from .style import method_order, method_style, metric_name

__all__ = ["Shown", "comparison_table", "flat", "interval_grid", "latex", "markdown", "styled", "wide_table"]
LONG_COLUMNS = (
    "method", "cell", "metric", "mean", "low", "high", "n", "n_effective", "flagged", "paper", "model", "answers",
)  # fmt: skip
_MEASURED = ("method", "cell", "metric", "mean", "low", "high", "n", "flagged")  # of `evaluation.summarise`
_ENTRY = ["method", "cell", "metric"]  # what identifies a row
# Marks of Markdown that a cell may hold, as HTML, once its text is escaped.
_MARKS = ((r"\*\*(.+?)\*\*", r"<b>\1</b>"), (r"\*(?! )([^*]*[^* ])\*", r"<i>\1</i>"), ("&lt;br&gt;", "<br>"))


def comparison_table(
    summary: pd.DataFrame, paper: int | None = None, *, cells: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Long table: every measured mean with the number that the paper prints for it.

    Parameters
    ----------
    summary : DataFrame
        ``method, cell, metric, mean, low, high, n, flagged`` (`evaluation.summarise`).
    paper : int, optional
        Number of the paper's table. Default: none, the column ``paper`` stays empty.
    cells : mapping of str to str, optional
        The paper's names of cells, where they differ from ours.

    Returns
    -------
    pandas.DataFrame
        Columns ``LONG_COLUMNS`` (those that the summary has); methods in the book's order, cells and metrics as they
        come.

    Raises
    ------
    ValueError
        If a column is missing, an entry occurs twice, or the paper has no such table.
    """
    missing = [column for column in _MEASURED if column not in summary]
    if missing:
        raise ValueError(f"the summary lacks the columns {missing}: pass the result of evaluation.summarise")
    repeated = summary.loc[summary.duplicated(_ENTRY), _ENTRY]
    if len(repeated):
        raise ValueError(f"the summary has {repeated.iloc[0].tolist()} twice: summarise by method, cell and metric")
    table = summary.loc[:, [column for column in LONG_COLUMNS if column in summary]].copy()
    entries = table[_ENTRY].replace({"cell": dict(cells or {})}).itertuples(index=False)
    table["paper"] = [math.nan if paper is None else paper_value(paper, *entry) for entry in entries]
    metrics, methods = list(dict.fromkeys(table["metric"])), method_order(list(table["method"]))
    order = np.lexsort([table["method"].map(methods.index), table["metric"].map(metrics.index)])  # by metric first
    return table.iloc[order].reset_index(drop=True)


def wide_table(long: pd.DataFrame, *, cells: Sequence[str] | None = None, digits: int = 2) -> pd.DataFrame:
    """Table for readers: a row for each metric and method, a column for each cell.

    An entry reads ``0.48 [0.40, 0.56] (0.48)``: mean, 95 % interval (none below six samples), and the paper's number in
    round brackets where it has one. The best method of a cell is in bold only where its interval lies beyond the second
    best's. ``†3`` marks three flagged samples: masking does not lower their likelihood, or the scores rank nothing.

    Parameters
    ----------
    long : DataFrame
        From `comparison_table`.
    cells : sequence of str, optional
        Cells and their order. Default: as they come.
    digits : int
        Decimals.

    Returns
    -------
    pandas.DataFrame
        Columns ``metric``, ``method`` and the cells, all text; bold is marked ``**…**`` (`styled` makes it bold).
    """
    cells = list(cells) if cells is not None else list(dict.fromkeys(long["cell"]))
    best, rows = distinct_best(long), []
    for metric, part in long.groupby("metric", sort=False):
        for method in method_order(list(part["method"])):
            row = {"metric": metric_name(metric) + _arrow(metric), "method": method_style(method).label}
            measured = part[part["method"] == method].set_index("cell")
            for cell in cells:
                bold = best.get((cell, metric)) == method
                row[cell.replace("_", " ")] = entry(measured.loc[cell], digits, bold) if cell in measured.index else "–"
            rows.append(row)
    return pd.DataFrame(rows)


class Shown:
    """A table as it was saved, and as a notebook shows it.

    Parameters
    ----------
    frame : pandas.DataFrame
        The long table, with the digits that its file keeps.
    wide : pandas.DataFrame, optional
        What is shown. Default: ``frame``.
    caption, name : str
        Above the table; in its HTML's ids.
    digits : int
        Decimals of numbers.
    """

    def __init__(self, frame: pd.DataFrame, wide: pd.DataFrame | None, caption: str, name: str, digits: int = 3):
        self.frame, self.wide = frame, frame if wide is None else wide
        self.caption, self.name, self.digits = caption, name, digits

    def _repr_html_(self) -> str:
        return styled(self.wide, self.name, digits=self.digits).set_caption(self.caption).to_html()

    def __repr__(self) -> str:
        return f"{self.caption}\n{self.wide.round(self.digits).to_string(index=False)}".strip()


class PageTable(Styler):
    """A table of a page. In plain text it has no address, which would change the notebook with every run."""

    def __repr__(self) -> str:
        return "(a table in HTML)"


def styled(frame: pd.DataFrame, name: str, *, digits: int) -> PageTable:
    """A table as a notebook shows it: without row numbers, and bold where Markdown would be.

    Parameters
    ----------
    frame : DataFrame
        Text of Markdown (``**bold**``, ``*italic*``, ``<br>``), or numbers.
    name : str
        Goes into the HTML's ids, ``T_<name>``, which must not change from run to run.
    digits : int
        Decimals of numbers; a dash stands where one is missing.

    Returns
    -------
    PageTable
    """
    shown = PageTable(frame).hide(axis="index").set_uuid(name)
    return shown.format(lambda value: _shown_value(value, digits), na_rep="–")


def interval_grid(
    frame: pd.DataFrame, index: str | list[str], columns: str, value: str = "difference", form: str = "+.3f"
) -> pd.DataFrame:
    """A long table with ``low`` and ``high`` on a page: each value with its interval, by two of its columns.

    Parameters
    ----------
    frame : DataFrame
        One row for each pair of ``index`` and ``columns``.
    index, columns : str
        Column that names the rows (or several), and the one that names the columns; both in the order of the frame.
    value : str
        Column of the values.
    form : str
        Format of the values and of their bounds.

    Raises
    ------
    ValueError
        If a pair occurs twice.
    """
    text = [f"{v:{form}} {interval_text(a, b, form)}" for v, a, b in frame[[value, "low", "high"]].to_numpy()]
    rows = [index] if isinstance(index, str) else list(index)
    repeated = frame.duplicated([*rows, columns])
    if repeated.any():
        raise ValueError(f"{frame.loc[repeated, [*rows, columns]].iloc[0].tolist()} stands in the table twice")
    grid = frame.assign(text=text).pivot_table(index=index, columns=columns, values="text", aggfunc="first", sort=False)
    return grid.fillna("–")


def _shown_value(value: object, digits: int) -> object:
    """A cell's text: a float with its decimals, whole numbers as they are, Markdown's marks as HTML."""
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() else f"{value:.{digits}f}"
    return _as_html(value)


def _as_html(value: object) -> object:
    """Text of a cell as HTML; anything else stays."""
    if not isinstance(value, str):
        return value
    text = html.escape(value)
    for mark, replacement in _MARKS:
        text = re.sub(mark, replacement, text)
    return text


def distinct_best(long: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Map (cell, metric) to the method whose interval lies wholly on the better side of the second best's.

    Cells where the two overlap, where one has no interval, or where a metric has no better side, are left out.
    """
    best = {}
    for (cell, metric), part in long.groupby(["cell", "metric"], sort=False):
        if metric not in HIGHER_IS_BETTER or len(part) < 2:
            continue
        higher = HIGHER_IS_BETTER[metric]
        first, second = part.sort_values("mean", ascending=not higher, kind="stable").iloc[:2].itertuples(index=False)
        # A missing bound compares false: without an interval nothing is distinct.
        if (first.low > second.high) if higher else (first.high < second.low):
            best[cell, metric] = first.method
    return best


def entry(row: pd.Series, digits: int = 2, bold: bool = False) -> str:
    """One row of the long table as an entry of the wide one."""
    if math.isnan(row["mean"]):
        return "–"
    text = f"{row['mean']:.{digits}f}"
    if bold:
        text = f"**{text}**"
    if not math.isnan(row["low"]):
        text += f" [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"
    if not math.isnan(row["paper"]):
        text += f" ({row['paper']:.{digits}f})"
    return text + (f" †{int(row['flagged'])}" if row["flagged"] else "")


def _arrow(metric: str) -> str:
    return {True: " ↑", False: " ↓"}.get(HIGHER_IS_BETTER.get(metric), "")
