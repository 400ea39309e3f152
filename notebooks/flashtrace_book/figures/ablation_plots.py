"""Figures of the ablations: what the sum of a span keeps, and what goes with faithfulness."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .axes import BANDS, FEW, INTERVAL, new_axes, note, require, spread_of
from .style import styled

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MARKS = ("o", "s", "D", "^")


@styled
def kept_by_layer(frame: pd.DataFrame, *, title: str = "What the sum over a span keeps of its states") -> Figure:
    """‖Σ w y‖₁ / Σ w ‖y‖₁ against the layer, a line a hop, beside what independent directions would keep.

    Parameters
    ----------
    frame : DataFrame
        ``sample, hop, layer, kept, independent`` (`cancellation.cancellation`).
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    require(frame, "sample", "hop", "layer", "kept", "independent")
    figure, axes = new_axes(title, "layer", "kept share of the L1 norm (fraction)", height=3.0)
    for i, (hop, part) in enumerate(frame.groupby("hop")):
        groups = {layer: group["kept"].to_numpy() for layer, group in part.groupby("layer")}
        x, mean = np.array(list(groups)), np.array([g.mean() for g in groups.values()])
        low, high = spread_of(list(groups.values()))
        colour = _COLOURS[i % 4]
        axes.plot(x, mean, color=colour, marker=_MARKS[i % 4], ms=3, label=f"hop {hop}: sum over {'T' if hop else 'O'}")
        axes.fill_between(x, mean - low, mean + high, color=colour, alpha=0.15, lw=0)
        expected = part.drop_duplicates("sample")["independent"].mean()
        axes.axhline(expected, color=colour, lw=0.9, ls=":", label=f"hop {hop}, independent directions")
    axes.set_ylim(0, 1)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    note(axes, f"n = {frame['sample'].nunique()} samples; {BANDS}")
    return figure


@styled
def correlation_points(frame: pd.DataFrame, *, title: str, label: str = "outcome") -> Figure:
    """Rank correlations with their intervals, a line a property, a colour a group.

    Parameters
    ----------
    frame : DataFrame
        ``property, rho, low, high, n`` and the column ``label`` (`statistics.correlations`).
    title : str
    label : str
        Column of the groups.

    Returns
    -------
    matplotlib.figure.Figure
    """
    require(frame, "property", "rho", "low", "high", "n", label)
    names, groups = list(dict.fromkeys(frame["property"])), list(dict.fromkeys(frame[label]))
    figure, axes = new_axes(
        title, "Spearman's rank correlation", "", height=0.9 + 0.11 * len(names) * (len(groups) + 1)
    )
    for i, group in enumerate(groups):
        part = frame[frame[label] == group].set_index("property").reindex(names)
        y = np.arange(len(names)) + (i - (len(groups) - 1) / 2) * 0.8 / len(groups)
        spread = np.clip([part["rho"] - part["low"], part["high"] - part["rho"]], 0, None)  # nan: not drawn
        look = {"fmt": _MARKS[i % 4], "color": _COLOURS[i % 4], "ms": 4, "capsize": 2, "elinewidth": 0.9}
        axes.errorbar(part["rho"], y, xerr=spread, label=str(group).replace("_", " "), **look)
    axes.axvline(0, color="#7F7F7F", lw=0.8)
    axes.set_yticks(np.arange(len(names)), [name.replace("_", " ") for name in names])
    axes.set(xlim=(-1, 1), ylim=(len(names) - 0.5, -0.5))
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    low, high = int(frame["n"].min()), int(frame["n"].max())
    note(axes, f"n = {low if low == high else f'{low}–{high}'} samples; whiskers: 95 % interval, {FEW}")
    return figure


@styled
def places_by_kind(frame: pd.DataFrame, *, title: str = "Who takes the top tenth of the input") -> Figure:
    """Share of the top tenth that goes to each kind of token, a bar a group, beside what a ranking by lot gives.

    Parameters
    ----------
    frame : DataFrame
        ``group, sample, kind, places, tokens`` (`failures.top_places`, with a column of groups).
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    require(frame, "group", "sample", "kind", "places", "tokens")
    kinds, groups = list(dict.fromkeys(frame["kind"])), list(dict.fromkeys(frame["group"]))
    figure, axes = new_axes(title, "", "share of the places (fraction)", height=2.9)
    width = 0.8 / len(groups)
    for i, group in enumerate(groups):
        part = frame[frame["group"] == group]
        each = [part[part["kind"] == kind] for kind in kinds]
        x = np.arange(len(kinds)) + (i - (len(groups) - 1) / 2) * width
        mean, look = [p["places"].mean() for p in each], {"color": _COLOURS[i % 4], "alpha": 0.8}
        n = part["sample"].nunique()
        axes.bar(x, mean, 0.92 * width, label=f"{group} (n = {n})", hatch=("", "///", "...", "xxx")[i % 4],
                 edgecolor="white", **look)  # fmt: skip
        axes.errorbar(x, mean, yerr=spread_of([p["places"].to_numpy() for p in each]), fmt="none", ecolor="#222222",
                      elinewidth=0.9, capsize=2)  # fmt: skip
        by_lot = "by lot" if i == len(groups) - 1 else None
        axes.plot(
            x, [p["tokens"].mean() for p in each], ls="", marker="D", ms=4, mfc="none", mec="#222222", label=by_lot
        )
    axes.set_xticks(np.arange(len(kinds)), kinds)
    axes.set_ylim(bottom=0)
    axes.grid(axis="x", visible=False)
    axes.legend(ncols=len(groups) + 1, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    note(axes, INTERVAL)
    return figure
