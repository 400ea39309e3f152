"""Figures of the ablations: cancellation in the sum over a span, and properties of samples beside faithfulness."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .axes import (
    BANDS,
    FEW,
    INTERVAL,
    label_ends,
    legend_below,
    legend_beside,
    n_range,
    name_groups,
    name_rows,
    new_axes,
    note,
)
from .checks import require
from .marks import grouped_bars, line_with_band, means_of, side_by_side, whiskers
from .palette import DARK, GREY, HATCHES, PALETTE, series_style
from .style import styled


@styled
def kept_by_layer(frame: pd.DataFrame, *, title: str = "What the sum over a span keeps of its states") -> Figure:
    """‖Σ w y‖₁ / Σ w ‖y‖₁ against the layer, a line for each hop, beside the share that independent directions keep.

    Parameters
    ----------
    frame : DataFrame
        ``sample, hop, layer, kept, independent`` (`cancellation.cancellation`).
    """
    require(frame, "sample", "hop", "layer", "kept", "independent")
    figure, axes = new_axes(title, "layer", "kept share of the L1 norm (fraction)", height=3.0)
    for i, (hop, part) in enumerate(frame.groupby("hop")):
        style = series_style(i)
        line_with_band(axes, part, "layer", "kept", ms=3, label=f"hop {hop}: sum over {'T' if hop else 'O'}", **style)
        expected = part.drop_duplicates("sample")["independent"].mean()
        axes.axhline(expected, color=style["color"], lw=0.9, ls=":", label=f"hop {hop}, independent directions")
    axes.set_ylim(0, 1)
    note(axes, f"n = {frame['sample'].nunique()} samples; {BANDS}")
    label_ends(axes)
    return figure


@styled
def correlation_points(frame: pd.DataFrame, *, title: str, label: str = "outcome") -> Figure:
    """Rank correlations with their intervals, a row for each property, a colour for each group.

    Parameters
    ----------
    frame : DataFrame
        ``property, rho, low, high, n`` and the column ``label`` (`statistics.correlations`).
    label : str
        Column of the groups.
    """
    require(frame, "property", "rho", "low", "high", "n", label)
    names, groups = list(dict.fromkeys(frame["property"])), list(dict.fromkeys(frame[label]))
    height = 0.9 + 0.11 * len(names) * (len(groups) + 1)
    figure, axes = new_axes(title, "Spearman's rank correlation", "", height=height)
    for i, group in enumerate(groups):
        part = frame[frame[label] == group].set_index("property").reindex(names)
        y = np.arange(len(names)) + side_by_side(i, len(groups), 0.8 / len(groups))
        spread = whiskers(part["rho"], part["low"], part["high"])
        style = {"ls": "", "ms": 4, "capsize": 2, "elinewidth": 0.9, **series_style(i)}
        axes.errorbar(part["rho"], y, xerr=spread, label=str(group).replace("_", " "), **style)
    axes.axvline(0, color=GREY, lw=0.8)
    name_rows(axes, [name.replace("_", " ") for name in names])
    axes.set_xlim(-1, 1)
    legend_beside(axes)
    note(axes, f"n = {n_range(frame['n'])} samples; whiskers: 95 % interval, {FEW}")
    return figure


@styled
def places_by_kind(frame: pd.DataFrame, *, title: str = "Who takes the top tenth of the input") -> Figure:
    """Share of the top tenth of the input that goes to each kind of token, a bar for each group of samples.

    Hollow diamonds give the kind's share of all tokens, which a random ranking would reach on average.

    Parameters
    ----------
    frame : DataFrame
        ``group, sample, kind, places, tokens`` (`failures.top_places`, with a column of groups).
    """
    require(frame, "group", "sample", "kind", "places", "tokens")
    kinds, groups = list(dict.fromkeys(frame["kind"])), list(dict.fromkeys(frame["group"]))
    figure, axes = new_axes(title, "", "share of the places (fraction)", height=2.9)
    for i, group in enumerate(groups):
        part = frame[frame["group"] == group]
        of_kind = [part[part["kind"] == kind] for kind in kinds]
        mean, spread = means_of(of_kind, "places")
        style = {"color": PALETTE[i % len(PALETTE)], "alpha": 0.8, "hatch": HATCHES[i % len(HATCHES)]}
        label = f"{group} (n = {part['sample'].nunique()})"
        x = grouped_bars(axes, mean, spread, series=i, n_series=len(groups), label=label, **style)
        expected = [rows["tokens"].mean() for rows in of_kind]
        label = "expected by chance" if i == len(groups) - 1 else None  # once in the legend
        axes.plot(x, expected, ls="", marker="D", ms=4, mfc="none", mec=DARK, label=label)
    name_groups(axes, kinds)
    axes.set_ylim(bottom=0)
    legend_below(axes, ncols=len(groups) + 1)
    note(axes, INTERVAL)
    return figure
