"""Figures of the chapter on RISE: blocks, masks, targets, and what each metric distinguishes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .axes import FEW, n_range, name_rows, new_axes, new_panels, note
from .checks import require
from .marks import whiskers
from .palette import BLUE, GREEN, GREY, ORANGE, VERMILION
from .style import metric_name, styled

_COLOURS = {
    "flashtrace": VERMILION, "ifr": BLUE, "evidence first": GREEN, "random": GREY, "random_sentences": ORANGE,
}  # fmt: skip
_MARKERS = {"flashtrace": "o", "ifr": "s", "evidence first": "^", "random": "D", "random_sentences": "v"}
_NAMES = {
    "flashtrace": "FlashTrace", "ifr": "IFR", "random": "random tokens", "random_sentences": "random sentences",
}  # fmt: skip


@styled
def rise_by(table: pd.DataFrame, column: str, names: Mapping[str, str], *, title: str) -> Figure:
    """Mean RISE of each ranking along the values of a column, a panel for each group of samples.

    Parameters
    ----------
    table : DataFrame
        ``group, ranking, mean, low, high, n`` and ``column``.
    names : mapping
        Values of the column in the order of the axis, and how they are written.
    """
    require(table, "group", "ranking", "mean", "low", "high", "n", column)
    groups = list(dict.fromkeys(table["group"]))
    figure, grid = new_panels(title, 1, len(groups), height=3.3, sharey=True)
    places = {value: place for place, value in enumerate(v for v in names if v in set(table[column]))}
    for axes, group in zip(grid[0], groups, strict=True):
        part = table[table["group"] == group]
        rankings = list(dict.fromkeys(part["ranking"]))
        for i, ranking in enumerate(rankings):
            own = part[part["ranking"] == ranking].assign(place=lambda t: t[column].map(places)).sort_values("place")
            x = own["place"] + 0.08 * (i - (len(rankings) - 1) / 2)
            axes.errorbar(
                x, own["mean"], yerr=whiskers(own["mean"], own["low"], own["high"]), color=_COLOURS[ranking],
                marker=_MARKERS[ranking], ms=4, lw=1, capsize=2, label=_NAMES.get(ranking, ranking),
            )  # fmt: skip
        axes.set_xticks(list(places.values()), [names[value] for value in places], rotation=20, ha="right")
        axes.set_title(group, loc="left", fontsize=8)
        note(axes, f"n = {n_range(part['n'])} samples; 95 % interval, {FEW}", beside=4.2 if len(groups) > 1 else 1)
    grid[0, 0].set_ylabel(metric_name("rise"))
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside center right")
    return figure


@styled
def rise_by_target(table: pd.DataFrame, scored: Sequence[str], *, title: str) -> Figure:
    """RISE of each method by the span that is explained (rows) and the one that is scored (columns)."""
    require(table, "method", "explained", "scored", "mean", "n")
    methods = list(dict.fromkeys(table["method"]))
    figure, grid = new_panels(title, 1, len(methods), height=2.6)
    low, high = table["mean"].min(), table["mean"].max()
    for axes, method in zip(grid[0], methods, strict=True):
        wide = table[table["method"] == method].pivot(index="explained", columns="scored", values="mean")
        wide = wide.reindex(index=[s for s in scored if s in wide.index], columns=list(scored))
        image = axes.imshow(wide, cmap="cividis_r", vmin=low, vmax=high, aspect="auto")
        for (i, j), value in np.ndenumerate(wide.to_numpy()):
            dark = value > (low + high) / 2
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", color="white" if dark else "black", fontsize=8)
        axes.set_xticks(range(len(wide.columns)), wide.columns)
        axes.set_yticks(range(len(wide.index)), wide.index)
        axes.set(xlabel="scored", ylabel="explained")
        axes.set_title(f"{_NAMES.get(method, method)}, n = {n_range(table['n'])}", loc="left", fontsize=8)
        axes.grid(visible=False)
    figure.colorbar(image, ax=list(grid[0]), label=metric_name("rise"))
    return figure


@styled
def distinguished(table: pd.DataFrame, *, title: str) -> Figure:
    """Share of the pairs of methods that each metric distinguishes, most first."""
    require(table, "metric", "apart", "pairs", "share", "n")
    table = table.dropna(subset="share").sort_values("share", ascending=False, kind="stable")
    figure, axes = new_axes(title, "pairs of methods distinguished (fraction)", "", height=0.24 * len(table) + 1.1)
    for place, row in enumerate(table.itertuples()):
        axes.barh(place, row.share, color=VERMILION if row.metric in ("rise", "mas") else BLUE, height=0.6)
        axes.annotate(f"{row.apart} of {row.pairs}, n = {row.n}", (row.share, place), (4, 0), "data", "offset points",
                      va="center", fontsize=6.5)  # fmt: skip
    name_rows(axes, [metric_name(metric) for metric in table["metric"]])
    axes.set_xlim(0, 1.25)
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.grid(axis="y", visible=False)
    return figure
