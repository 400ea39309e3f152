"""Figures of the metric audit: hand-made curves, sharpened scores, ranks under other definitions, swapped facts."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from flashtrace_lib.viewer.colours import WIDTH

from .axes import FEW, label_ends, n_range, name_rows, new_axes, new_panels, note
from .checks import require
from .marks import whiskers
from .palette import BLUE, GREY, VERMILION
from .style import method_order, method_style, metric_name, styled

_COLUMNS = 4
_AGAINST_SWAPS = (
    "recovery", "r_precision", "auroc", "mrr", "sentence_hit", "r_precision_haystack", "auroc_haystack",
    "mrr_haystack", "sentence_hit_haystack", "rise", "mas", "lds", "lds_output", "drop3", "keep3",
)  # fmt: skip


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
    values = table.set_index("curve")
    rows = math.ceil(len(curves) / _COLUMNS)
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
def mas_by_temperature(table: pd.DataFrame, *, title: str = "MAS of sharpened scores, at one ranking") -> Figure:
    """MAS against the temperature of the scores, a line for each method.

    Parameters
    ----------
    table : DataFrame
        ``method, temperature, mas, n`` (`metric_audit.temperature_table`).
    """
    require(table, "method", "temperature", "mas", "n")
    figure, axes = new_axes(title, "temperature (1: as attributed; lower: sharper)", metric_name("mas"), height=3.0)
    for method in method_order(list(table["method"])):
        part = table[table["method"] == method].sort_values("temperature")
        style = method_style(method)
        axes.plot(part["temperature"], part["mas"], label=style.label, **style.plot_options)
    axes.set_xscale("log", base=2)
    ticks = sorted(table["temperature"].unique())
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.axvline(1, color=GREY, lw=0.8, ls=":")
    note(axes, f"n = {int(table['n'].max())} samples a point, means; lower is better; RISE and recovery do not change")
    label_ends(axes)
    return figure


@styled
def ranks_by_variant(table: pd.DataFrame, metric: str) -> Figure:
    """Rank of every method under every definition of a metric.

    Parameters
    ----------
    table : DataFrame
        ``metric, variant, method, rank, n`` (`metric_audit.variant_table`).
    metric : str
        ``"rise"`` or ``"mas"``.
    """
    require(table, "metric", "variant", "method", "rank", "n")
    part = table[table["metric"] == metric]
    variants = list(dict.fromkeys(part["variant"]))
    title = f"Ranking of the methods by {metric.upper()}, under four definitions"
    figure, axes = new_axes(title, "", "rank (1 = best)", height=3.2)
    for method in method_order(list(part["method"])):
        rank = part[part["method"] == method].set_index("variant")["rank"].reindex(variants)
        style = method_style(method)
        axes.plot(range(len(variants)), rank, label=style.label, **style.plot_options)
    axes.set_xticks(range(len(variants)), [name.replace(" ", "\n", 1) for name in variants])
    axes.set_yticks(range(1, part["method"].nunique() + 1))
    axes.invert_yaxis()
    note(axes, f"n = {n_range(part['n'])} samples, means over all cells")
    label_ends(axes)
    return figure


@styled
def swap_agreement(table: pd.DataFrame) -> Figure:
    """Agreement of metrics with the counterfactual swaps, within samples, best on top.

    Parameters
    ----------
    table : DataFrame
        ``metric, within, low, high, n`` (`counterfactual.agreement`). Shown are the metrics of ``_AGAINST_SWAPS`` that
        have a sample.
    """
    require(table, "metric", "within", "low", "high", "n")
    part = table[table["metric"].isin(_AGAINST_SWAPS) & (table["n"] > 0)].sort_values(
        "within", ascending=False, kind="stable"
    )
    title, xlabel = "Which metrics rank the methods as the swapped facts do?", "mean rank correlation over methods"
    figure, axes = new_axes(title, xlabel, "", height=0.24 * len(part) + 1.3, width=WIDTH)
    for place, row in enumerate(part.itertuples()):
        spread = whiskers(row.within, row.low, row.high)
        fill = BLUE if row.low > 0 or row.high < 0 else "white"
        mark = {"color": BLUE, "marker": "o", "ms": 5, "markerfacecolor": fill}
        axes.errorbar(row.within, place, xerr=spread, ls="", capsize=2, **mark)
    axes.axvline(0, color=GREY, lw=0.8, ls=":")
    axes.set_xlim(-1.05, 1.05)
    names = [metric_name(metric).split(" (")[0] for metric in part["metric"]]  # a correlation has no unit
    name_rows(axes, names)
    axes.grid(axis="y", visible=False)
    told = f"n = {n_range(part['n'])} samples; 1: the same order; 95 % interval, {FEW}; filled: it leaves out 0"
    note(axes, told, beside=2.8)
    return figure
