"""Figures of many methods on many cells: a table that is read by colour."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from flashtrace_lib.metrics import HIGHER_IS_BETTER
from flashtrace_lib.viewer.colours import INK, SEQUENTIAL, SEQUENTIAL_RANGE, WIDTH

from .axes import INTERVAL, new_axes, note, rows_of
from .style import METRIC_NAMES, method_order, method_style, styled
from .tables import distinct_best


@styled
def metric_heatmap(frame: pd.DataFrame, metric: str, *, title: str = "") -> Figure:
    """One metric, methods in rows and cells in columns; the darker, the better.

    Parameters
    ----------
    frame : DataFrame
        ``method, cell, metric, mean, low, high, n`` (`evaluation.summarise` or `tables.comparison_table`).
    metric : str
        A value of the column ``metric``.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        Means in the cells, the last column their mean over the cells; bold where the interval of the best method lies
        wholly beyond that of the second.

    Raises
    ------
    ValueError
        If a column or the metric is missing.
    """
    part = rows_of(frame, metric)
    cells, methods = list(dict.fromkeys(part["cell"])), method_order(list(part["method"]))
    values = part.pivot(index="method", columns="cell", values="mean").loc[methods, cells]
    values["mean"] = values.mean(axis=1)
    better = HIGHER_IS_BETTER.get(metric, True)
    bold = distinct_best(part)
    figure = Figure(figsize=(WIDTH, 0.24 * len(methods) + 0.9), layout="constrained")
    axes = figure.add_subplot()
    shades = values if better else -values
    sns.heatmap(
        shades, ax=axes, cmap=_readable(), cbar=False,
        annot=values, fmt=".2f", annot_kws={"fontsize": 6.5, "color": INK},
        xticklabels=[str(cell).replace("_", "\n") for cell in values.columns],
        yticklabels=[method_style(method).label for method in methods],
    )  # fmt: skip
    drawn = np.argwhere(values.notna().to_numpy())  # the numbers stand in this order
    for text, (i, j) in zip(axes.texts, drawn, strict=True):
        text.set_weight("bold" if bold.get((values.columns[j], metric)) == methods[i] else "normal")
    axes.axvline(len(cells), color="white", lw=3)
    axes.set(xlabel="", ylabel="")
    axes.tick_params(length=0, labelrotation=0)
    axes.set_title(title or METRIC_NAMES.get(metric, metric), pad=16)
    n = sorted({int(part["n"].min()), int(part["n"].max())})
    direction = "higher is better" if better else "lower is better"
    note(axes, f"n = {'–'.join(map(str, n))} samples a cell; mean; {direction}; bold: intervals apart from the second")
    return figure


@styled
def metric_by_length(frame: pd.DataFrame, metric: str, *, title: str = "") -> Figure:
    """One metric against the length of the reasoning, a line a method (Fig. 5).

    Parameters
    ----------
    frame : DataFrame
        ``method, metric, length, mean, low, high, n`` (`reasoning_tasks.by_length`).
    metric : str
        A value of the column ``metric``.
    title : str

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If a column or the metric is missing.
    """
    part = rows_of(frame, metric, by="length")
    figure, axes = new_axes(
        title or METRIC_NAMES.get(metric, metric), "reasoning T (tokens, median of the bin)",
        METRIC_NAMES.get(metric, metric), height=3.0, width=WIDTH,
    )  # fmt: skip
    methods = method_order(list(dict.fromkeys(part["method"])))
    step = 0.012 * float(part["length"].max())  # side by side, so that whiskers stay apart
    for i, method in enumerate(methods):
        rows, style = part[part["method"] == method].sort_values("length"), method_style(method)
        x = rows["length"] + (i - (len(methods) - 1) / 2) * step
        below, above = rows["mean"] - rows["low"], rows["high"] - rows["mean"]
        axes.errorbar(x, rows["mean"], yerr=[below.clip(lower=0), above.clip(lower=0)], label=style.label,
                      color=style.colour, marker=style.marker, ls=style.line, elinewidth=0.8, capsize=1.5)  # fmt: skip
    axes.set_ylim(0, 1)
    axes.legend(ncols=1, loc="upper left", bbox_to_anchor=(1.01, 1))
    n = sorted({int(part["n"].min()), int(part["n"].max())})
    direction = "higher is better" if HIGHER_IS_BETTER.get(metric, True) else "lower is better"
    note(axes, f"n = {'–'.join(map(str, n))} samples a bin; {direction}; {INTERVAL}")
    return figure


def _readable() -> ListedColormap:
    """The part of the sequential map on which dark text keeps its contrast."""
    return ListedColormap(colormaps[SEQUENTIAL](np.linspace(*SEQUENTIAL_RANGE, 128)))
