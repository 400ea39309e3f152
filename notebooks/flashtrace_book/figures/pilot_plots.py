"""Figures of the pilot study (Fig. 1 a and c)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .axes import INTERVAL, label_ends, new_axes, note, plain_numbers
from .checks import require
from .marks import means_of
from .palette import DASHED
from .style import MethodStyle, method_order, method_style, styled

# The colour tells the methods apart, marker and line the hops.
_HOP_MARKERS = ("o", "D", "v", "P")
_HOP_LINES = ("-", "--", ":", "-.")


@styled
def mass_against_length(
    frame: pd.DataFrame,
    share: str = "share",
    *,
    title: str = "Share of the attribution that stays on the reasoning",
    ylabel: str = "share of the mass on T (fraction)",
) -> Figure:
    """Share of the mass on T against the length of T, per method and hop (Fig. 1a).

    Parameters
    ----------
    frame : DataFrame
        ``sample, cell, method, hop, n_reasoning`` and the column ``share`` (`pilot.mass_on_reasoning`).
    share : str
        Column of the share.

    Returns
    -------
    matplotlib.figure.Figure
        A dot for each sample; lines join the means of the cells.
    """
    require(frame, "sample", "cell", "method", "hop", "n_reasoning", share)
    figure, axes = new_axes(title, "length of the reasoning T (tokens)", ylabel, height=3.2)
    for method in method_order(list(frame["method"])):
        hops = sorted(frame.loc[frame["method"] == method, "hop"].unique())
        for hop in hops:
            part = frame[(frame["method"] == method) & (frame["hop"] == hop)]
            style = method_style(method) if len(hops) == 1 else _hop_style(method, hop)
            cells = sorted((rows for _, rows in part.groupby("cell")), key=lambda rows: rows["n_reasoning"].mean())
            lengths = [rows["n_reasoning"].mean() for rows in cells]
            mean, spread = means_of(cells, share)
            axes.scatter(part["n_reasoning"], part[share], s=5, color=style.colour, alpha=0.3, lw=0)
            axes.errorbar(lengths, mean, yerr=spread, capsize=2, label=style.label, **style.plot_options)
    axes.set_ylim(0, 1)
    axes.set_xlim(left=0)
    note(axes, f"n = {frame['sample'].nunique()} samples (dots); lines: means of the cells; {INTERVAL}")
    label_ends(axes)
    return figure


def _hop_style(method: str, hop: int) -> MethodStyle:
    """The method's colour, with the marker and line of the hop."""
    style = method_style(method)
    marker, line = _HOP_MARKERS[hop % len(_HOP_MARKERS)], _HOP_LINES[hop % len(_HOP_LINES)]
    return MethodStyle(f"{style.label}, hop {hop}", style.colour, marker, line)


@styled
def extrapolated_cost(frame: pd.DataFrame, *, runs: int = 1, title: str = "Cost of multi-hop attribution") -> Figure:
    """Seconds against the length of T; measured points are filled, extrapolated ones hollow (Fig. 1c).

    Parameters
    ----------
    frame : DataFrame
        ``method, n_reasoning, seconds, measured`` (`pilot.cost_of_hops`).
    runs : int
        Runs behind each measured point.
    """
    require(frame, "method", "n_reasoning", "seconds", "measured")
    figure, axes = new_axes(title, "length of the reasoning T (tokens)", "time for one sample (s)", height=3.2)
    axes.set(xscale="log", yscale="log")
    for entry, part in frame.groupby("method", sort=False):
        method, *variant = entry.split(" ")  # "ifr per token"
        style = method_style(method)
        label = " ".join([style.label, *variant])
        points = {"color": style.colour, "marker": style.marker}
        measured, fitted = part[part["measured"]], part[~part["measured"]]
        whole = points | {"label": label, "ls": DASHED if len(fitted) else "-"}  # its label stands at the last point
        axes.plot(part["n_reasoning"], part["seconds"], **whole)
        if len(fitted):
            axes.plot(measured["n_reasoning"], measured["seconds"], **points)
            axes.plot(fitted["n_reasoning"], fitted["seconds"], ls="", mfc="white", **points)
    sizes = np.sort(frame["n_reasoning"].unique())
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    plain_numbers(axes.yaxis)
    axes.minorticks_off()
    counted = "n = 1 run a point" if runs == 1 else f"median of n = {runs} runs a point"
    note(axes, f"{counted}; hollow: power law through the last three measured sizes")
    label_ends(axes)
    return figure
