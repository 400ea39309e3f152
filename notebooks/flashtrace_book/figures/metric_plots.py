"""Figures of what the metrics measure: hand-made curves, sharpened scores, and what RISE and MAS go with."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from flashtrace_lib.viewer.colours import WIDTH

from .axes import n_range, name_rows, new_panels, note
from .checks import require
from .marks import side_by_side, whiskers
from .palette import BLUE, GREY, MARKERS, PALETTE, VERMILION
from .style import metric_name, styled

_COLUMNS = 4


@styled
def hand_made_curves(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], table: pd.DataFrame) -> Figure:
    """Response and remaining mass of each hand-made curve, with its RISE and MAS.

    Parameters
    ----------
    curves : mapping
        `metric_audit.hand_made_curves`.
    table : DataFrame
        `metric_audit.hand_made_table` of the same curves.
    """
    require(table, "curve", "rise", "mas", "printed_mas")
    values, rows = table.set_index("curve"), math.ceil(len(curves) / _COLUMNS)
    title = "RISE and MAS of curves made by hand"
    figure, grid = new_panels(title, rows, _COLUMNS, height=2.05 * rows + 0.3, sharex=True, sharey=True)
    for axes, (name, (response, share)) in zip(grid.flat, curves.items(), strict=False):
        x = np.linspace(0, 1, len(response))
        axes.plot(x, response, color=BLUE, label="response r")
        axes.plot(x, 1 - share, color=VERMILION, ls="--", label="remaining mass d")
        row = values.loc[name]
        scores = f"RISE {row['rise']:.3f} · MAS {row['mas']:.3f} (printed: {row['printed_mas']:.3f})"
        axes.set_title(name.replace(", ", ",\n"), fontsize=7, fontweight="normal", pad=13)
        axes.annotate(scores, (0, 1), (0, 4), "axes fraction", "offset points", fontsize=5.5, color="#555555")
        axes.set(ylim=(-0.03, 1.05))
    for axes in grid[-1]:
        axes.set_xlabel("masked (share of I)")
    for axes in grid[:, 0]:
        axes.set_ylabel("fraction")
    for axes in grid.flat[len(curves) :]:
        axes.axis("off")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    grid.flat[-1].legend(handles, labels, loc="center")
    return figure


@styled
def property_dots(table: pd.DataFrame, names: Mapping[str, str], *, title: str = "") -> Figure:
    """What RISE and MAS go with: a row a property of rankings, a colour a metric, a panel a choice of rankings.

    Parameters
    ----------
    table : DataFrame
        ``first`` (a property), ``second`` (a metric), ``rho, low, high, n, rankings`` (`metric_audit.within_samples`).
    names : mapping of str to str
        Properties and how readers know them.
    """
    require(table, "first", "second", "rho", "low", "high", "n", "rankings")
    kinds, metrics = list(dict.fromkeys(table["rankings"])), list(dict.fromkeys(table["second"]))
    figure, panels = new_panels(title, 1, len(kinds), height=0.36 * len(names) + 1.4, sharex=True, sharey=True)
    for axes, kind in zip(panels[0], kinds, strict=True):
        shown = table[table["rankings"] == kind]
        for i, metric in enumerate(metrics):
            part = shown[shown["second"] == metric].set_index("first").reindex(list(names))
            style = {"color": PALETTE[i], "marker": MARKERS[i], "ls": ""}
            for place, row in enumerate(part.itertuples()):
                spread = whiskers(row.rho, row.low, row.high)
                fill = PALETTE[i] if row.low > 0 or row.high < 0 else "white"
                y = place + side_by_side(i, len(metrics), 0.28)
                axes.errorbar(row.rho, y, xerr=spread, ms=5, capsize=2, markerfacecolor=fill, **style)
            axes.plot([], [], label=metric_name(metric).split(" (")[0], **style)
        axes.axvline(0, color=GREY, lw=0.8)
        name_rows(axes, list(names.values()))
        axes.grid(axis="y", visible=False)
        axes.set_title(kind)
        axes.set_xlabel("mean rank correlation within samples")
        note(axes, f"n = {n_range(shown['n'])} samples; filled: leaves out 0", beside=WIDTH / 2)
    panels[0][-1].legend(loc="upper right", fontsize=6.5)
    return figure
