"""Figures of the open questions: effects with their intervals, and what masking one sentence does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from flashtrace_lib.metrics import HIGHER_IS_BETTER
from flashtrace_lib.viewer.colours import INK, WIDTH

from .axes import FEW, new_axes, note, require
from .style import METRIC_NAMES, styled

_LOOKS = {  # colour and marker; a filled mark's interval leaves out zero
    "better": {"color": "#0072B2", "marker": "o"},
    "worse": {"color": "#D55E00", "marker": "s"},
    "open": {"color": "#6F6F6F", "marker": "D", "markerfacecolor": "white"},
}


@styled
def effect_forest(
    table: pd.DataFrame, names: str, metrics: Sequence[str] = ("recovery", "rise"), *, title: str = ""
) -> Figure:
    """Effects with their intervals, a row each and a panel for every metric; the first metric's order.

    Parameters
    ----------
    table : DataFrame
        ``metric, difference, low, high, n`` and a column that names the rows.
    names : str
        That column.
    metrics : sequence of str
        Those to draw.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        Blue circles are better than the reference and orange squares worse, by an interval that leaves out zero; hollow
        grey diamonds are neither, or have too few samples for an interval. What was not measured has no mark.

    Raises
    ------
    ValueError
        If a column or a metric is missing.
    """
    require(table, "metric", "difference", "low", "high", "n", names)
    missing = [metric for metric in metrics if metric not in set(table["metric"])]
    if missing:
        raise ValueError(f"no rows of {', '.join(missing)}: the table has {sorted(set(table['metric']))}")
    first = table[table["metric"] == metrics[0]].sort_values("difference", ascending=not HIGHER_IS_BETTER[metrics[0]])
    rows = list(dict.fromkeys([*first[names], *table[names]]))
    figure = Figure(figsize=(WIDTH, 0.26 * len(rows) + 1.2), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=9, fontweight="bold")
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    for axes, metric in zip(panels, metrics, strict=True):
        part = table[table["metric"] == metric].set_index(names)
        for at, name in enumerate(rows):
            if name in part.index:
                _mark(axes, at, part.loc[name], HIGHER_IS_BETTER[metric])
        axes.axvline(0, color=INK, lw=0.8, zorder=1)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        side = "→" if HIGHER_IS_BETTER[metric] else "←"
        axes.set_xlabel(f"change of {METRIC_NAMES[metric].replace(' (', f', {side} better (')}")
        low, high = int(part["n"].min()), int(part["n"].max())
        note(axes, f"n = {low if low == high else f'{low}–{high}'}; 95 % interval, {FEW}")  # two panels: short
        axes.locator_params(axis="x", nbins=4)
    return figure


def _mark(axes, at: int, row: pd.Series, higher: bool) -> None:
    """One effect: its mean and its interval, where it has one."""
    low, high = (row["low"], row["high"]) if higher else (-row["high"], -row["low"])
    look = _LOOKS["better" if low > 0 else "worse" if high < 0 else "open"]
    ends = np.clip([[row["difference"] - row["low"]], [row["high"] - row["difference"]]], 0, None)  # nan: not drawn
    axes.errorbar(row["difference"], at, xerr=ends, ls="", capsize=2, ms=5, **look)


@styled
def changed_answers(table: pd.DataFrame, *, title: str = "Does masking a sentence change the answer?") -> Figure:
    """Share of answers that change when the top, a random or the lowest sentence, or the question, is masked.

    Parameters
    ----------
    table : DataFrame
        From `causal_masking.changed_table`.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    require(table, "masked", "changed", "low", "high", "tokens", "n")
    figure, axes = new_axes(title, "answers that change (fraction)", "", height=2.3)
    for at, row in enumerate(table.itertuples()):
        ends = np.clip([[row.changed - row.low], [row.high - row.changed]], 0, None)
        axes.errorbar(row.changed, at, xerr=ends, ls="", marker="o", ms=6, capsize=2, color="#0072B2")
    shown = {name: "the question" if name == "question" else f"{name} sentence" for name in table["masked"]}
    names = [f"{shown[row.masked]}\n({row.tokens:.0f} tokens)" for row in table.itertuples()]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.grid(axis="y", visible=False)
    note(axes, f"n = {int(table['n'].min())} samples; Wilson's 95 % interval, {FEW}; median tokens")
    return figure
