"""Figures of the open questions: effects with their intervals, and what masking one sentence does."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flashtrace_lib.metrics import HIGHER_IS_BETTER
from flashtrace_lib.viewer.colours import INK

from .axes import FEW, n_range, name_rows, new_axes, new_panels, note
from .checks import require, require_metrics
from .marks import whiskers
from .palette import BLUE, VERMILION
from .style import metric_name, styled

_VERDICT_STYLES = {  # a filled mark's interval leaves out zero
    "better": {"color": BLUE, "marker": "o"},
    "worse": {"color": VERMILION, "marker": "s"},
    "open": {"color": "#6F6F6F", "marker": "D", "markerfacecolor": "white"},
}


@styled
def effect_forest(
    table: pd.DataFrame, names: str, metrics: Sequence[str] = ("recovery", "rise"), *, title: str = ""
) -> Figure:
    """Effects with their intervals, a row for each and a panel for every metric, sorted by the first metric.

    Parameters
    ----------
    table : DataFrame
        ``metric, difference, low, high, n`` and the column ``names``.
    names : str
        The column that names the rows.
    metrics : sequence of str
        Values of the column ``metric``, a panel each.

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
    require_metrics(table, metrics)
    first = table[table["metric"] == metrics[0]].sort_values("difference", ascending=not HIGHER_IS_BETTER[metrics[0]])
    rows = list(dict.fromkeys([*first[names], *table[names]]))
    figure, panels = new_panels(title, 1, len(metrics), height=0.26 * len(rows) + 1.2, sharey=True)
    for axes, metric in zip(panels[0], metrics, strict=True):
        part = table[table["metric"] == metric].set_index(names)
        for place, name in enumerate(rows):
            if name in part.index:
                _draw_effect(axes, place, part.loc[name], HIGHER_IS_BETTER[metric])
        axes.axvline(0, color=INK, lw=0.8, zorder=1)
        name_rows(axes, rows)
        axes.grid(axis="y", visible=False)
        arrow = "→" if HIGHER_IS_BETTER[metric] else "←"
        axes.set_xlabel(f"change of {metric_name(metric).replace(' (', f', {arrow} better (')}")
        note(axes, f"n = {n_range(part['n'])}; 95 % interval, {FEW}")  # short enough for half the page
        axes.locator_params(axis="x", nbins=4)
    return figure


def _draw_effect(axes: Axes, place: int, row: pd.Series, higher_is_better: bool) -> None:
    """One effect: its mean and its interval, where it has one."""
    low, high = (row["low"], row["high"]) if higher_is_better else (-row["high"], -row["low"])
    verdict = "better" if low > 0 else "worse" if high < 0 else "open"
    spread = whiskers(row["difference"], row["low"], row["high"])
    axes.errorbar(row["difference"], place, xerr=spread, ls="", capsize=2, ms=5, **_VERDICT_STYLES[verdict])


@styled
def changed_answers(table: pd.DataFrame, *, title: str = "Does masking a sentence change the answer?") -> Figure:
    """Share of answers that change when the top, a random or the lowest sentence, or the question is masked.

    Parameters
    ----------
    table : DataFrame
        From `causal_masking.changed_table`.
    """
    require(table, "masked", "changed", "low", "high", "tokens", "n")
    figure, axes = new_axes(title, "answers that change (fraction)", "", height=2.3)
    names = []
    for place, row in enumerate(table.itertuples()):
        spread = whiskers(row.changed, row.low, row.high)
        axes.errorbar(row.changed, place, xerr=spread, ls="", marker="o", ms=6, capsize=2, color=BLUE)
        masked = "the question" if row.masked == "question" else f"{row.masked} sentence"
        names.append(f"{masked}\n({row.tokens:.0f} tokens)")
    name_rows(axes, names)
    axes.set_xlim(-0.02, 1.02)
    axes.grid(axis="y", visible=False)
    note(axes, f"n = {int(table['n'].min())} samples; Wilson's 95 % interval, {FEW}; median tokens")
    return figure
