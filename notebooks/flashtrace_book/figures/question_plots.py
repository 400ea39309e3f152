"""Figures of the open questions: effects with their intervals, and what masking one sentence does."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flashtrace_lib.metrics import HIGHER_IS_BETTER
from flashtrace_lib.viewer.colours import INK, WIDTH

from .axes import FEW, legend_below, n_range, name_rows, new_axes, new_panels, note
from .checks import require, require_metrics
from .marks import side_by_side, whiskers
from .palette import BLUE, ORANGE, VERMILION
from .style import better_side, metric_name, styled

_VERDICT_STYLES = {  # a filled mark's interval leaves out zero
    "better": {"color": BLUE, "marker": "o"},
    "worse": {"color": VERMILION, "marker": "s"},
    "open": {"color": "#6F6F6F", "marker": "D", "markerfacecolor": "white"},
}
_LABEL = 0.058  # inches of a character of a row's name
_HALF_STYLES = {"held-out": {"color": BLUE, "marker": "o"}, "tuning": {"color": ORANGE, "marker": "D"}}


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
        panel = (WIDTH - _LABEL * max(map(len, rows))) / len(metrics) - 0.2  # inches
        note(axes, f"n = {n_range(part['n'])}; 95 % interval, {FEW}", beside=WIDTH - panel)
        axes.locator_params(axis="x", nbins=4)
    return figure


def _draw_effect(axes: Axes, place: int, row: pd.Series, higher_is_better: bool) -> None:
    """One effect: its mean and its interval, where it has one."""
    low, high = (row["low"], row["high"]) if higher_is_better else (-row["high"], -row["low"])
    verdict = "better" if low > 0 else "worse" if high < 0 else "open"
    spread = whiskers(row["difference"], row["low"], row["high"])
    axes.errorbar(row["difference"], place, xerr=spread, ls="", capsize=2, ms=5, **_VERDICT_STYLES[verdict])


@styled
def forest_by_half(table: pd.DataFrame, metric: str, *, reference: str, title: str = "") -> Figure:
    """Differences to one reference with their intervals: a row for each method, held-out cells beside tuning cells.

    Parameters
    ----------
    table : DataFrame
        From `better_flashtrace.differences`: ``half, label, metric, difference, low, high, n``.
    metric : str
        Value of the column ``metric`` to draw.
    reference : str
        Name of the reference, for the axis.

    Returns
    -------
    matplotlib.figure.Figure
        Rows are sorted by the difference on the held-out cells, best on top; those that were not measured there follow.
        The halves differ in colour, marker and height; a filled mark's interval leaves out zero.

    Raises
    ------
    ValueError
        If a column or the metric is missing.
    """
    require(table, "half", "label", "metric", "difference", "low", "high", "n")
    require_metrics(table, [metric])
    part = table[table["metric"] == metric]
    halves = {half: part[part["half"] == half] for half in _HALF_STYLES if half in set(part["half"])}
    by_gain = {"by": "difference", "ascending": not HIGHER_IS_BETTER[metric], "kind": "stable"}
    rows = list(dict.fromkeys(pd.concat([of_half.sort_values(**by_gain) for of_half in halves.values()])["label"]))
    figure, axes = new_axes(title, f"change of {metric_name(metric)} against {reference}", "", width=WIDTH)
    figure.set_figheight(0.3 * len(rows) + 1.4)
    for i, (half, of_half) in enumerate(halves.items()):
        _draw_half(axes, of_half, rows, side_by_side(i, len(_HALF_STYLES), 0.3), _HALF_STYLES[half], half)
    axes.axvline(0, color=INK, lw=0.8, zorder=1)
    name_rows(axes, rows)
    axes.grid(axis="y", visible=False)
    legend_below(axes, len(halves), gap=0.6 / figure.get_figheight())
    counts = "; ".join(f"{half}: n = {n_range(of_half['n'])}" for half, of_half in halves.items())
    note(axes, f"{counts}; {better_side(metric)}; 95 % interval, {FEW}; filled: it leaves out zero", beside=3.4)
    return figure


def _draw_half(axes: Axes, part: pd.DataFrame, rows: Sequence[str], shift: float, style: dict, half: str) -> None:
    """The differences of one half, each on its row, and the half's entry in the legend."""
    for row in part.itertuples():
        fill = style["color"] if row.low > 0 or row.high < 0 else "white"
        spread = whiskers(row.difference, row.low, row.high)
        place = rows.index(row.label) + shift
        axes.errorbar(row.difference, place, xerr=spread, ls="", capsize=2, ms=5, markerfacecolor=fill, **style)
    axes.plot([], [], ls="", ms=5, label=half, **style)


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
