"""Figures of the pilot study (Fig. 1 a and c)."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .axes import label_ends, new_axes, new_panels, note, plain_numbers
from .checks import require
from .marks import means_of
from .palette import DASHED
from .style import MethodStyle, method_style, styled

# The colour tells the methods apart, marker and line the hops.
_HOP_MARKERS, _HOP_LINES = ("o", "D", "v", "P"), ("-", "--", ":", "-.")


@styled
def mass_against_length(frame: pd.DataFrame, share: str, *, title: str, ylabel: str) -> Figure:
    """A share of the mass on T against the length of T, per method and hop (Fig. 1a).

    Parameters
    ----------
    frame : DataFrame
        ``panel, sample, cell, method, hop, label, n_reasoning`` and the column ``share``
        (`pilot.mass_on_reasoning`, with a column of panels).

    Returns
    -------
    matplotlib.figure.Figure
        A panel for each kind of sample, whose lengths may differ by far. A dot for each sample; lines join the means of
        the cells.
    """
    require(frame, "panel", "sample", "cell", "method", "hop", "label", "n_reasoning", share)
    groups = dict(iter(frame.groupby("panel", sort=False)))
    figure, panels = new_panels(title, 1, len(groups), height=3.2, sharey=True)
    for axes, (panel, of_panel) in zip(panels[0], groups.items(), strict=True):
        for label, part in of_panel.groupby("label", sort=False):
            style = _style(part["method"].iloc[0], part["hop"].iloc[0], label)
            cells = sorted((rows for _, rows in part.groupby("cell")), key=lambda rows: rows["n_reasoning"].mean())
            lengths = [rows["n_reasoning"].mean() for rows in cells]
            mean, spread = (np.round(x, 6) for x in means_of(cells, share))  # the last digits are the processor's
            axes.scatter(part["n_reasoning"], part[share], s=5, color=style.colour, alpha=0.3, lw=0)
            axes.errorbar(lengths, mean, yerr=spread, capsize=2, label=style.label, **style.plot_options)
        axes.set(xlim=(0, None), ylim=(0, 1), xlabel="length of T (tokens)")
        axes.set_title(panel)
        note(axes, f"n = {of_panel['sample'].nunique()} (dots); lines: means")
    panels[0][0].set_ylabel(ylabel)
    label_ends(panels[0][-1])
    return figure


def _style(method: str, hop: int, label: str) -> MethodStyle:
    """The method's own, or, where the label names a hop, its colour with the marker and line of the hop."""
    style = method_style(method)
    return style if label == style.label else MethodStyle(label, style.colour, _HOP_MARKERS[hop], _HOP_LINES[hop])


@styled
def extrapolated_cost(frame: pd.DataFrame, *, title: str = "Cost of multi-hop attribution") -> Figure:
    """Seconds against the length of T; measured points are filled, extrapolated ones hollow (Fig. 1c).

    Parameters
    ----------
    frame : DataFrame
        ``method, n_reasoning, seconds, measured`` (`pilot.cost_table`).
    """
    require(frame, "method", "n_reasoning", "seconds", "measured")
    figure, axes = new_axes(title, "length of the reasoning T (tokens)", "time for one sample (s)", height=3.2)
    axes.set(xscale="log", yscale="log")
    for entry, part in frame.groupby("method", sort=False):
        method, *variant = entry.split(" ")  # "ifr per token"
        style = method_style(method)
        label, points = " ".join([style.label, *variant]), {"color": style.colour, "marker": style.marker}
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
    note(axes, "median of the runs of a point; hollow: power law through the last three measured lengths")
    label_ends(axes)
    return figure
