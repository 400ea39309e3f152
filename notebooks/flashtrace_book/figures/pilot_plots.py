"""Figures of the pilot study (Fig. 1 a and c)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .axes import INTERVAL, new_axes, note, require, spread_of
from .style import method_order, method_style, styled

_HOP_MARKS = ("o", "D", "v", "P")
_HOP_LINES = ("-", "--", ":", "-.")


@styled
def mass_against_length(
    frame: pd.DataFrame,
    share: str = "share",
    *,
    title: str = "Share of the attribution that stays on the reasoning",
    ylabel: str = "share of the mass on T (fraction)",
) -> Figure:
    """Share of mass on T against the length of T, per method and hop (Fig. 1a).

    Parameters
    ----------
    frame : DataFrame
        ``sample, cell, method, hop, n_reasoning`` and a share (`pilot.mass_on_reasoning`).
    share : str
        Column of the share.
    title, ylabel : str

    Returns
    -------
    matplotlib.figure.Figure
        A dot a sample; lines join the means of the cells.
    """
    require(frame, "sample", "cell", "method", "hop", "n_reasoning", share)
    figure, axes = new_axes(title, "length of the reasoning T (tokens)", ylabel, height=3.2)
    for method in method_order(list(frame["method"])):
        hops = sorted(frame.loc[frame["method"] == method, "hop"].unique())
        for hop in hops:
            part = frame[(frame["method"] == method) & (frame["hop"] == hop)]
            style = method_style(method)
            marker, line = (style.marker, style.line) if len(hops) == 1 else (_HOP_MARKS[hop % 4], _HOP_LINES[hop % 4])
            groups = [group for _, group in part.groupby("cell")]
            groups.sort(key=lambda group: group["n_reasoning"].mean())
            x = [group["n_reasoning"].mean() for group in groups]
            shares = [group[share].to_numpy() for group in groups]
            label = style.label if len(hops) == 1 else f"{style.label}, hop {hop}"
            axes.scatter(part["n_reasoning"], part[share], s=5, color=style.colour, alpha=0.3, lw=0)
            axes.errorbar(x, [g.mean() for g in shares], yerr=spread_of(shares), capsize=2, color=style.colour,
                          marker=marker, ls=line, label=label)  # fmt: skip
    axes.set_ylim(0, 1)
    axes.set_xlim(left=0)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    note(axes, f"n = {frame['sample'].nunique()} samples (dots); lines: means of the cells; {INTERVAL}")
    return figure


@styled
def extrapolated_cost(frame: pd.DataFrame, *, title: str = "Cost of multi-hop attribution") -> Figure:
    """Seconds against the length of T; what was measured is filled, what follows from the fitted law hollow (Fig. 1c).

    Parameters
    ----------
    frame : DataFrame
        ``method, n_reasoning, seconds, measured`` (`pilot.cost_of_hops`).
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    require(frame, "method", "n_reasoning", "seconds", "measured")
    figure, axes = new_axes(title, "length of the reasoning T (tokens)", "time for one sample (s)", height=3.2)
    axes.set(xscale="log", yscale="log")
    for label, part in frame.groupby("method", sort=False):
        style = method_style(label.split(" ")[0])
        name = " ".join([style.label, *label.split(" ")[1:]])
        real, fitted = part[part["measured"]], part[~part["measured"]]
        look = {"color": style.colour, "marker": style.marker}
        axes.plot(real["n_reasoning"], real["seconds"], label=name, **look)
        if len(fitted):
            tail = pd.concat([real.tail(1), fitted])
            axes.plot(tail["n_reasoning"], tail["seconds"], color=style.colour, ls=(0, (2, 2)))
            axes.plot(
                fitted["n_reasoning"], fitted["seconds"], ls="", mfc="white", label=f"{name}, extrapolated", **look
            )
    sizes = np.sort(frame["n_reasoning"].unique())
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    note(axes, "n = 1 run a point; hollow: power law through the last three measured sizes")
    return figure
