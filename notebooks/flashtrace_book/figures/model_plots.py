"""Figures of two models side by side."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from flashtrace_lib.viewer.colours import WIDTH

from .axes import require
from .style import METRIC_NAMES, method_order, method_style, styled


@styled
def model_scatter(frame: pd.DataFrame, metrics: list[str], *, first: str, second: str, title: str = "") -> Figure:
    """Means of one model against those of another, a panel a metric, a point a method and cell.

    Parameters
    ----------
    frame : DataFrame
        ``method, cell, metric, first, second, n_first, n_second`` (`second_model.both_models`).
    metrics : list of str
        Values of the column ``metric``, a panel each.
    first, second : str
        Names of the models, on the axes.
    title : str

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If a column or a metric is missing.
    """
    require(frame, "method", "cell", "metric", "first", "second", "n_first", "n_second")
    if missing := [metric for metric in metrics if metric not in set(frame["metric"])]:
        raise ValueError(f"no rows of {missing}: the frame has {sorted(set(frame['metric']))}")
    figure = Figure(figsize=(WIDTH, 0.9 + WIDTH / max(len(metrics), 2)), layout="constrained")
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    methods = method_order(list(frame["method"]))
    for axes, metric in zip(panels, metrics, strict=True):
        part = frame[frame["metric"] == metric]
        top = 1.05 * np.nanmax([part["first"].max(), part["second"].max(), 0.1])
        axes.plot([0, top], [0, top], color="#B0B0B0", lw=0.8, ls=":", zorder=1)
        for method in methods:
            mine, style = part[part["method"] == method], method_style(method)
            axes.plot(mine["first"], mine["second"], ls="", marker=style.marker, color=style.colour, label=style.label)
        axes.set(xlim=(0, top), ylim=(0, top), xlabel=first, aspect="equal")
        axes.set_title(METRIC_NAMES.get(metric, metric))
    panels[0].set_ylabel(second)
    n = pd.concat([frame["n_first"], frame["n_second"]])
    counts = str(n.min()) if n.min() == n.max() else f"{n.min()}–{n.max()}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=9, fontweight="bold")
    about = f"a point: the mean of a cell, n = {counts} samples; dotted: equal"
    figure.legend(
        *panels[0].get_legend_handles_labels(), ncols=min(6, len(methods)), loc="outside lower left", title=about,
        alignment="left", title_fontsize=6.5,
    )  # fmt: skip
    return figure
