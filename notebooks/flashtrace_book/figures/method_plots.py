"""Figures of many methods: a table that is read by colour, and one metric against the length of the reasoning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from flashtrace_lib.metrics import HIGHER_IS_BETTER
from flashtrace_lib.viewer.colours import INK, SEQUENTIAL, SEQUENTIAL_RANGE, WIDTH

from ..statistics import on_fewer_samples
from .axes import INTERVAL, label_ends, legend_below, n_range, name_rows, new_axes, new_panels, note
from .checks import rows_of
from .marks import side_by_side, whiskers
from .style import better_side, method_order, method_style, metric_name, styled
from .tables import distinct_best


@styled
def metric_heatmap(frame: pd.DataFrame, metric: str, *, title: str = "") -> Figure:
    """Means of one metric, methods in rows and cells in columns; the darker, the better.

    Parameters
    ----------
    frame : DataFrame
        ``method, cell, metric, mean, low, high, n`` (`evaluation.summarise` or `tables.comparison_table`).
    metric : str
        A value of the column ``metric``.

    Returns
    -------
    matplotlib.figure.Figure
        The last column is the mean over the cells, where there are several; bold numbers as in `tables.distinct_best`.

    Raises
    ------
    ValueError
        If a column or the metric is missing.
    """
    part = rows_of(frame, metric)
    cells, methods = list(dict.fromkeys(part["cell"])), method_order(list(part["method"]))
    values = part.pivot(index="method", columns="cell", values="mean").loc[methods, cells]
    if len(cells) > 1:
        values["mean"] = values.mean(axis=1)
    best = distinct_best(part)
    figure = Figure(figsize=(WIDTH, 0.24 * len(methods) + 0.9), layout="constrained")
    axes = figure.add_subplot()
    shades = values if HIGHER_IS_BETTER.get(metric, True) else -values
    sns.heatmap(
        shades,
        ax=axes,
        cmap=_readable(),
        cbar=False,
        annot=values,
        fmt=".2f",
        annot_kws={"fontsize": 6.5, "color": INK},
        xticklabels=[str(cell).replace("_", "\n") for cell in values.columns],
        yticklabels=_names(part, methods),
    )
    drawn = np.argwhere(values.notna().to_numpy())  # [numbers, 2]: row and column, in the order of axes.texts
    for text, (row, column) in zip(axes.texts, drawn, strict=True):
        bold = best.get((values.columns[column], metric)) == methods[row]
        text.set_weight("bold" if bold else "normal")
    if len(cells) > 1:
        axes.axvline(len(cells), color="white", lw=3)
    axes.set(xlabel="", ylabel="")
    axes.tick_params(length=0, labelrotation=0)
    axes.set_title(title or metric_name(metric), pad=16)
    counted = _counts(part)
    shown = f"n = {counted} {'sample' if counted == '1' else 'samples'} a cell; mean; {better_side(metric)}"
    note(axes, f"{shown}; bold: intervals apart from the second")
    return figure


@styled
def pooled_dots(table: pd.DataFrame, metric: str, groups: Mapping[str, Sequence[str]], *, title: str = "") -> Figure:
    """Pooled means of one metric with their intervals, a panel for each group of cells, beside the paper's means.

    Parameters
    ----------
    table : DataFrame
        ``method, cell, metric, mean, low, high, n, paper`` (`tables.comparison_table`), of cells and of groups.
    metric : str
        A value of the column ``metric``.
    groups : mapping of str to sequence of str
        Values of the column ``cell`` that are pooled, and the cells they pool.

    Returns
    -------
    matplotlib.figure.Figure
        Methods in rows. A hollow diamond is the mean of the numbers that the paper prints for these cells, without an
        interval, where it prints one for each.

    Raises
    ------
    ValueError
        If a column or the metric is missing.
    """
    part = rows_of(table, metric)
    methods = method_order(list(part["method"]))
    figure, panels = new_panels(
        f"{title or metric_name(metric)} ({better_side(metric)})",
        1,
        len(groups),
        height=0.24 * len(methods) + 1.3,
        sharey=True,
    )
    for axes, (group, cells) in zip(panels[0], groups.items(), strict=True):
        pooled = part[part["cell"] == group].set_index("method")
        printed = (
            part[part["cell"].isin(cells)]
            .pivot(index="method", columns="cell", values="paper")
            .mean(axis=1, skipna=False)
        )
        for place, method in enumerate(methods):
            if method not in pooled.index:  # measured on the cells of another group alone
                continue
            row, style = pooled.loc[method], method_style(method)
            spread = whiskers(row["mean"], row["low"], row["high"])
            axes.errorbar(
                row["mean"], place, xerr=spread, ls="", ms=5, capsize=2, color=style.colour, marker=style.marker
            )
        marks = {"marker": "D", "s": 26, "facecolors": "none", "edgecolors": INK, "zorder": 3}
        axes.scatter(printed.reindex(methods), range(len(methods)), **marks, label="the paper (Qwen3-8B)")
        name_rows(axes, _names(part, methods))
        axes.grid(axis="y", visible=False)
        axes.set_title(group)
        axes.set_xlabel(metric_name(metric))
        told = "95 % interval" if pooled["low"].notna().any() else "too few for intervals"
        note(axes, f"n = {_counts(part[part['cell'] == group])}; {told}")
        axes.locator_params(axis="x", nbins=4)
    legend_below(panels[0][len(groups) // 2], 1, gap=0.19)
    return figure


@styled
def overview_heatmap(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """Means of every metric, metrics in rows and methods in columns; the darker, the better within a row.

    Parameters
    ----------
    frame : DataFrame
        ``method, metric, mean, n``, one row a method and metric (`evaluation.summarise`).

    Raises
    ------
    ValueError
        If a method has a metric twice.
    """
    metrics, methods = list(dict.fromkeys(frame["metric"])), method_order(list(frame["method"]))
    values = frame.pivot(index="metric", columns="method", values="mean").loc[metrics, methods]
    better = values.mul([1 if HIGHER_IS_BETTER.get(metric, True) else -1 for metric in metrics], axis=0)
    worst = better.min(axis=1)
    shades = better.sub(worst, axis=0).div((better.max(axis=1) - worst).replace(0, 1), axis=0)
    figure = Figure(figsize=(WIDTH, 0.2 * len(metrics) + 1.5), layout="constrained")
    axes = figure.add_subplot()
    sns.heatmap(
        shades,
        ax=axes,
        cmap=_readable(),
        cbar=False,
        annot=values.map(lambda value: f"{value:.0f}" if abs(value) >= 10 else f"{value:.2f}"),
        fmt="",
        annot_kws={"fontsize": 6.5 if len(methods) <= 14 else 5.5, "color": INK},
        xticklabels=_names(frame.assign(cell=""), methods),
        yticklabels=[metric_name(m) + (" ↑" if HIGHER_IS_BETTER.get(m, True) else " ↓") for m in metrics],
    )
    axes.set(xlabel="", ylabel="")
    axes.grid(visible=False)  # what was not measured stays white
    axes.tick_params(length=0, labelsize=7)
    axes.tick_params(axis="y", labelrotation=0)
    axes.tick_params(axis="x", labelrotation=40)
    for label in axes.get_xticklabels():
        label.set(ha="right", rotation_mode="anchor")
    axes.set_title(title, pad=16)
    counted = _counts(frame.assign(cell=""))
    note(axes, f"n = {counted} samples; mean; a row is coloured from its worst to its best")
    return figure


def _names(frame: pd.DataFrame, methods: Sequence[str]) -> list[str]:
    """Names of methods for readers, with a star where one was measured on fewer samples than others."""
    starred = set(frame.loc[on_fewer_samples(frame), "method"])
    return [method_style(method).label + ("*" if method in starred else "") for method in methods]


def _counts(frame: pd.DataFrame) -> str:
    """``176 (* 11)``: samples, and behind the star of `_names` those of the methods that have fewer."""
    fewer = on_fewer_samples(frame)
    return n_range(frame.loc[~fewer, "n"]) + (f" (* {n_range(frame.loc[fewer, 'n'])})" if fewer.any() else "")


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
    part = rows_of(frame, metric, by="length")
    name = metric_name(metric)
    figure, axes = new_axes(title or name, "reasoning T (tokens, median of the bin)", name, height=3.0, width=WIDTH)
    methods = method_order(list(dict.fromkeys(part["method"])))
    step = 0.012 * float(part["length"].max())  # keeps the whiskers apart
    for i, method in enumerate(methods):
        rows = part[part["method"] == method].sort_values("length")
        x = rows["length"] + side_by_side(i, len(methods), step)
        spread = whiskers(rows["mean"], rows["low"], rows["high"])
        style = method_style(method)
        line = {"elinewidth": 0.8, "capsize": 1.5, "label": style.label, **style.plot_options}
        axes.errorbar(x, rows["mean"], yerr=spread, **line)
    axes.set_ylim(0, 1)
    note(axes, f"n = {n_range(part['n'])} samples a bin; {better_side(metric)}; {INTERVAL}")
    label_ends(axes)
    return figure


def _readable() -> ListedColormap:
    """The part of the sequential map on which dark text keeps its contrast."""
    return ListedColormap(colormaps[SEQUENTIAL](np.linspace(*SEQUENTIAL_RANGE, 128)))
