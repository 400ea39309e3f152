"""Figures of two models side by side."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from flashtrace_lib.viewer.colours import WIDTH

from .axes import n_range, new_panels
from .checks import require, require_metrics
from .palette import LIGHT
from .style import method_order, method_style, metric_name, styled


@styled
def model_scatter(frame: pd.DataFrame, metrics: list[str], *, first: str, second: str, title: str = "") -> Figure:
    """Means of one model against those of another: a panel for each metric, a point for each method and cell.

    Parameters
    ----------
    frame : DataFrame
        ``method, cell, metric, first, second, n_first, n_second`` (`second_model.both_models`).
    metrics : list of str
        Values of the column ``metric``, a panel each.
    first, second : str
        Names of the models, on the axes.

    Raises
    ------
    ValueError
        If a column or a metric is missing.
    """
    require(frame, "method", "cell", "metric", "first", "second", "n_first", "n_second")
    require_metrics(frame, metrics)
    figure, panels = new_panels(title, 1, len(metrics), height=0.9 + WIDTH / max(len(metrics), 2))
    methods = method_order(list(frame["method"]))
    for axes, metric in zip(panels[0], metrics, strict=True):
        part = frame[frame["metric"] == metric]
        top = 1.05 * np.nanmax([part["first"].max(), part["second"].max(), 0.1])
        axes.plot([0, top], [0, top], color=LIGHT, lw=0.8, ls=":", zorder=1)
        for method in methods:
            points, style = part[part["method"] == method], method_style(method)
            marks = style.plot_options | {"ls": ""}
            axes.plot(points["first"], points["second"], label=style.label, **marks)
        axes.set(xlim=(0, top), ylim=(0, top), xlabel=first, aspect="equal")
        axes.set_title(metric_name(metric))
    panels[0, 0].set_ylabel(second)
    counts = pd.concat([frame["n_first"], frame["n_second"]])
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(),
        ncols=min(6, len(methods)),
        loc="outside lower left",
        title=f"a point: the mean of a cell, n = {n_range(counts)} samples; dotted: equal",
        alignment="left",
        title_fontsize=6.5,
    )
    return figure
