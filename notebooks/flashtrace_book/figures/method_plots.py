"""Figures of many methods: tables read by colour, means beside the paper's, and a metric by the reasoning's length."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from flashtrace_lib.viewer.colours import INK, SEQUENTIAL, SEQUENTIAL_RANGE, WIDTH

from .axes import INTERVAL, label_ends, n_range, name_rows, new_axes, new_panels, note
from .checks import rows_of
from .marks import side_by_side, whiskers
from .palette import BLUE, GREY, LIGHT
from .style import (
    CONTROLS,
    better_side,
    higher_is_better,
    method_order,
    method_style,
    metric_name,
    short_metric,
    styled,
)


@styled
def pooled_dots(table: pd.DataFrame, metric: str, groups: Mapping[str, str], *, title: str = "") -> Figure:
    """Means of one metric with their intervals, a panel for each group of cells, beside the paper's means.

    Parameters
    ----------
    table : DataFrame
        ``method, cell, metric, mean, low, high, n, paper`` (`tables.comparison_table`).
    metric : str
        A value of the column ``metric``.
    groups : mapping of str to str
        Values of the column ``cell``, and the titles of their panels; those without rows get no panel.

    Returns
    -------
    matplotlib.figure.Figure
        Methods in rows, controls grey. A hollow diamond is the paper's number, where it has one. A hatched row was not
        measured in that panel.

    Raises
    ------
    ValueError
        If a column or the metric is missing.
    """
    part = rows_of(table, metric)
    groups = {cell: name for cell, name in groups.items() if cell in set(part["cell"])}
    part = part[part["cell"].isin(groups)]
    methods = method_order(list(part["method"]))
    heading = f"{title or metric_name(metric)} ({better_side(metric)})"
    figure, panels = new_panels(heading, 1, len(groups), height=0.22 * len(methods) + 1.5, sharex=True, sharey=True)
    for axes, (cell, name) in zip(panels[0], groups.items(), strict=True):
        measured = part[part["cell"] == cell].set_index("method")
        for place, method in enumerate(methods):
            if method not in measured.index:
                axes.axhspan(place - 0.4, place + 0.4, fill=False, hatch="////", ec=LIGHT, lw=0)
                continue
            row = measured.loc[method]
            spread = whiskers(row["mean"], row["low"], row["high"])
            mark = {"ls": "", "marker": "o", "ms": 4.5, "capsize": 2, "color": _colour(method)}
            axes.errorbar(row["mean"], place, xerr=spread, **mark)
        marks = {"marker": "D", "s": 24, "facecolors": "none", "edgecolors": INK, "zorder": 3}
        axes.scatter(measured["paper"].reindex(methods), range(len(methods)), **marks, label="the paper (Qwen3-8B)")
        name_rows(axes, [method_style(method).label for method in methods])
        axes.grid(axis="y", visible=False)
        axes.set_title(name)
        axes.set_xlabel(metric_name(metric).replace(", ", ",\n"))
        few = "" if measured["low"].notna().any() else "; too few for intervals"
        note(axes, f"n = {n_range(measured['n'])}{few}")
        axes.locator_params(axis="x", nbins=4)
    hatched = Patch(fill=False, hatch="////", ec=LIGHT, lw=0, label="not measured")
    theirs = panels[0][0].collections[-1:] if part["paper"].notna().any() else []
    handles = [*theirs] + [hatched] * (len(part) < len(groups) * len(methods))
    # In fractions of the figure itself: a tight box counts the stamp below it in, and would move the legend onto that.
    at_foot = {"bbox_to_anchor": (0.5, 0), "bbox_transform": figure.transFigure}
    figure.legend(handles=handles, loc="lower center", ncols=2, **at_foot)
    figure.get_layout_engine().set(rect=(0, 0.07, 1, 0.93))
    return figure


@styled
def overview_heatmap(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """Means of every metric, methods in rows and metrics in columns; the darker, the better within a column.

    Parameters
    ----------
    frame : DataFrame
        ``method, metric, mean, n``, one row a method and metric (`evaluation.summarise`).

    Returns
    -------
    matplotlib.figure.Figure
        Controls are grey, and what was not measured, or on too few, is hatched. Under each metric stands its n.

    Raises
    ------
    ValueError
        If a method has a metric twice.
    """
    metrics, methods = list(dict.fromkeys(frame["metric"])), method_order(list(frame["method"]))
    values = frame.pivot(index="method", columns="metric", values="mean").loc[methods, metrics]
    better = values * [1 if higher_is_better(metric) else -1 for metric in metrics]
    shades = better.sub(better.min()).div((better.max() - better.min()).replace(0, 1))
    figure = Figure(figsize=(WIDTH, 0.22 * len(methods) + 1.6), layout="constrained")
    axes = figure.add_subplot()
    for row, method in enumerate(methods):
        colours = colormaps["Greys"] if method in CONTROLS else _readable()
        for column, metric in enumerate(metrics):
            value, box = values.loc[method, metric], (column - 0.49, row - 0.47)
            if np.isnan(value):
                axes.add_patch(Rectangle(box, 0.98, 0.94, fc="white", ec=LIGHT, hatch="////", lw=0))
                continue
            shade = shades.loc[method, metric] * (0.45 if method in CONTROLS else 1)  # dark text stays readable
            axes.add_patch(Rectangle(box, 0.98, 0.94, fc=colours(shade), lw=0))
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=6.5, color=INK)
    counts = frame.groupby("metric")["n"].agg(["min", "max"])
    axes.set_xticks(range(len(metrics)), [f"{short_metric(m)}\nn = {n_range(counts.loc[m])}" for m in metrics])
    name_rows(axes, [method_style(method).label for method in methods])
    axes.set_xlim(-0.5, len(metrics) - 0.5)
    axes.grid(visible=False)
    axes.tick_params(length=0, labelsize=7)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_title(title, pad=16)
    note(axes, "means; a column is coloured from worst to best; controls grey; hatched: not measured, or on too few")
    return figure


def _colour(method: str) -> str:
    """Colour of a method where its name stands beside its mark: FlashTrace's own, grey for controls, else blue."""
    return GREY if method in CONTROLS else method_style(method).colour if method.startswith("flashtrace") else BLUE


@styled
def metric_by_length(frame: pd.DataFrame, metric: str, *, title: str = "") -> Figure:
    """One metric against the length of the reasoning, a line for each method (Fig. 5).

    Parameters
    ----------
    frame : DataFrame
        ``method, metric, length, mean, low, high, n`` (`reasoning_tasks.by_length`).
    metric : str
        A value of the column ``metric``.

    Raises
    ------
    ValueError
        If a column or the metric is missing.
    """
    part, name = rows_of(frame, metric, by="length"), metric_name(metric)
    figure, axes = new_axes(title or name, "reasoning T (tokens, median of the bin)", name, height=3.0, width=WIDTH)
    methods = method_order(list(dict.fromkeys(part["method"])))
    step = 0.012 * float(part["length"].max())  # keeps the whiskers apart
    for i, method in enumerate(methods):
        rows = part[part["method"] == method].sort_values("length")
        x = rows["length"] + side_by_side(i, len(methods), step)
        spread, style = whiskers(rows["mean"], rows["low"], rows["high"]), method_style(method)
        line = {"elinewidth": 0.8, "capsize": 1.5, "label": style.label, **style.plot_options}
        axes.errorbar(x, rows["mean"], yerr=spread, **line)
    axes.set_ylim(0, 1)
    note(axes, f"n = {n_range(part['n'])} samples a bin; {better_side(metric)}; {INTERVAL}")
    label_ends(axes)
    return figure


def _readable() -> ListedColormap:
    """The part of the sequential map on which dark text keeps its contrast."""
    return ListedColormap(colormaps[SEQUENTIAL](np.linspace(*SEQUENTIAL_RANGE, 128)))
