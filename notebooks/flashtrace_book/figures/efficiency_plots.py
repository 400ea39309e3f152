"""Figures of time and memory (Fig. 4): cost against a length, with the budgets drawn, and cost against faithfulness."""

from itertools import product

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from flashtrace_lib.viewer.colours import INK

from ..efficiency import OK, OUT_OF_MEMORY, TIME_OUT
from .axes import INTERVAL, dense_ticks, legend_beside, n_range, new_axes, new_panels, note, plain_numbers
from .checks import require
from .marks import whiskers
from .palette import DASHED, GREY, LIGHT
from .style import method_order, method_style, metric_name, styled

_LENGTHS = {"input": "input I (tokens)", "generation": "generation T and O (tokens)"}
_COSTS = {"seconds": "time of one attribution (s)", "peak_gib": "peak memory over the loaded model (GiB)"}
_FORWARD = {"seconds": "forward_s", "peak_gib": "forward_peak_gib"}
# cost -> the budget on its axis: the outcome that it ends in, its column and its unit
_BUDGET = {"seconds": (TIME_OUT, "time_limit", "s"), "peak_gib": (OUT_OF_MEMORY, "memory_limit", "GiB")}
_CROSS = {TIME_OUT: "x", OUT_OF_MEMORY: "$\\otimes$"}  # markers that no swept method has
_LEAST = {"seconds": 0, "peak_gib": 1e-3}  # less resident memory cannot be distinguished from none


@styled
def cost_by_length(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """Time and memory of every method against both lengths, on logarithmic axes: Fig. 4 a to d in one.

    Where a budget ended a line, a cross stands on it: on the line of the budget where that is on this axis, else on the
    last size that ran. A plain forward pass of the same tokens is grey.

    Parameters
    ----------
    frame : DataFrame
        From `efficiency_tables.by_axis`, of one machine.

    Raises
    ------
    ValueError
        If a column is missing or nothing ran.
    """
    require(frame, "axis", "method", "length", "outcome", *_COSTS, *_FORWARD.values(), "n", "n_peak", "hardware")
    ran = frame[frame["outcome"] == OK]
    require(ran, "outcome")
    lengths = [axis for axis in _LENGTHS if axis in set(ran["axis"])]
    figure, grid = new_panels(title, len(_COSTS), len(lengths), height=6.4)
    for letter, axes, (cost, axis) in zip("abcd", grid.flat, product(_COSTS, lengths), strict=False):
        _draw_panel(axes, frame[frame["axis"] == axis], cost)
        axes.set(xlabel=_LENGTHS[axis], ylabel=_COSTS[cost])
        axes.set_title(f"({letter})", loc="left", fontsize=8)
    entries = {}
    for axes in grid.flat:
        entries |= dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    times, peaks = (n_range(ran[column], to=" to ") for column in ("n", "n_peak"))
    note(grid[0, 0], f"medians of {times} runs a point (memory: {peaks})", beside=4.6)
    note(grid[0, -1], ", ".join(sorted(set(frame["hardware"]))), beside=4.6)
    figure.legend(entries.values(), entries.keys(), loc="outside center right")
    return figure


def _draw_panel(axes: Axes, part: pd.DataFrame, cost: str) -> None:
    """One cost against one length: a line for each method, with a cross where a budget ended it."""
    outcome, column, unit = _BUDGET[cost]
    axes.set(xscale="log", yscale="log")
    for method in method_order(list(part["method"])):
        rows = part[part["method"] == method]
        ran, stopped = rows[rows["outcome"] == OK], rows[rows["outcome"].isin(list(_CROSS))].head(1)
        if ran.empty:
            continue
        style, costs = method_style(method), ran[cost].clip(lower=_LEAST[cost])
        look = {"lw": 2, "zorder": 4} if method == "flashtrace" else {"lw": 1.1}
        axes.plot(ran["length"], costs, label=style.label, **style.plot_options, **look)
        last = (ran["length"].iloc[-1], costs.iloc[-1])
        for end in stopped.itertuples():
            cross = (end.length, getattr(end, column)) if end.outcome == outcome else last
            axes.plot(*zip(last, cross, strict=True), color=style.colour, ls=DASHED, lw=0.9)
            axes.plot(*cross, ls="", marker=_CROSS[end.outcome], ms=8, color=style.colour, zorder=5)
    ran = part[part["outcome"] == OK]
    forward = ran.groupby("length")[_FORWARD[cost]].median().clip(lower=_LEAST[cost])
    axes.plot(forward.index, forward, color=LIGHT, lw=3, alpha=0.7, zorder=1, label="forward pass,\nwith all logits")
    for budget in sorted(set(part.loc[part["outcome"] == outcome, column])):
        axes.axhline(budget, color=GREY, lw=0.8, ls=":", zorder=1)
        axes.annotate(f"budget: {budget:g} {unit}", (0.02, budget), (0, 2), axes.get_yaxis_transform(),
                      "offset points", fontsize=6.5, color=GREY)  # fmt: skip
    for ended in [name for name in _CROSS if (part["outcome"] == name).any()]:
        axes.plot([], [], ls="", marker=_CROSS[ended], ms=8, color=INK, label=f"ended here:\n{ended}")
    axes.set_xticks(*[sorted(part["length"].unique())] * 2)
    dense_ticks(axes.yaxis, at_most=12)


@styled
def pareto(table: pd.DataFrame, *, title: str = "Cost against faithfulness") -> Figure:
    """A metric that is better when lower against the forward passes that each method costs (Fig. 4e).

    Parameters
    ----------
    table : DataFrame
        From `efficiency_tables.cost_and_faithfulness`.
    """
    require(table, "method", "ratio", "metric", "mean", "low", "high", "n", "front")
    cost = "time of one attribution (forward passes of the same tokens)"
    figure, axes = new_axes(title, cost, metric_name(table["metric"].iloc[0]))
    axes.set_xscale("log")
    for row in table.sort_values("method", key=lambda names: names.map(method_order(list(names)).index)).itertuples():
        style = method_style(row.method)
        point = style.plot_options | {"ls": "", "ms": 9 if row.method == "flashtrace" else 6, "capsize": 2}
        axes.errorbar(row.ratio, row.mean, yerr=whiskers(row.mean, row.low, row.high), label=style.label, **point)
    front = table[table["front"]]
    axes.plot(front["ratio"], front["mean"], color=INK, lw=0.8, ls=":", zorder=1, label="nothing as cheap is better")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 8)))
    plain_numbers(axes.xaxis)
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    legend_beside(axes)
    note(axes, f"n = {n_range(table['n'], to=' to ')} samples; {INTERVAL}")
    return figure
