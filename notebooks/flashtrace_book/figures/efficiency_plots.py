"""Figures of time and memory (Fig. 4): cost against a length, limits drawn as such, and cost against faithfulness."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flashtrace_lib.viewer.colours import INK

from ..efficiency.supervised_process import OK, OUT_OF_MEMORY, TIME_OUT
from .axes import INTERVAL, dense_ticks, legend_beside, n_range, new_axes, new_panels, note
from .checks import require
from .marks import whiskers
from .palette import DASHED, LIGHT
from .style import method_order, method_style, metric_name, styled

_LENGTHS = {"input": "length of the input I (tokens)", "generation": "length of the generation T and O (tokens)"}
_COSTS = {"seconds": "time of one attribution (s)", "peak_gib": "peak memory over the loaded model (GiB)"}
_FORWARD = {"seconds": "forward_s", "peak_gib": "forward_peak_gib"}
# marker, column of the limit, its unit; markers that no swept method has
_LIMITS = {TIME_OUT: ("x", "time_limit", "s"), OUT_OF_MEMORY: ("$\\otimes$", "memory_limit", "GiB")}
_OWN_LIMIT = {"seconds": TIME_OUT, "peak_gib": OUT_OF_MEMORY}  # the limit that has a place on the axis of a cost
_LEAST = {"seconds": 0, "peak_gib": 1e-3}  # less resident memory cannot be distinguished from none


@styled
def cost_by_length(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """Time and memory of every method against both lengths, on logarithmic axes: Fig. 4 a to d in one.

    Where a method reached a limit, a dashed line leads to a cross: at the limit, if it is the one of this cost, else at
    the height of the last size that ran. A plain forward pass of the same tokens is drawn in grey.

    Parameters
    ----------
    frame : DataFrame
        From `sweep.sweep`, of one machine.

    Raises
    ------
    ValueError
        If a column is missing or nothing ran.
    """
    require(frame, "axis", "method", "length", "outcome", *_COSTS, *_FORWARD.values(), "n", "n_peak", "hardware")
    ran = frame[frame["outcome"] == OK]
    if ran.empty:
        raise ValueError(f"nothing ran: the outcomes are {sorted(set(frame['outcome']))}")
    lengths = [axis for axis in _LENGTHS if axis in set(ran["axis"])]
    figure, grid = new_panels(title, len(_COSTS), len(lengths), height=6.4)
    for place, (axes, (cost, axis)) in enumerate(zip(grid.flat, product(_COSTS, lengths), strict=True)):
        _draw_panel(axes, frame[frame["axis"] == axis], axis, cost)
        axes.set_title(f"({'abcd'[place]})", loc="left", fontsize=8)
    entries = {}
    for axes in grid.flat:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    times, peaks = (n_range(ran[column], to=" to ") for column in ("n", "n_peak"))
    runs = f"medians of {times} runs a point (memory: {peaks})"
    note(grid[0, 0], runs, beside=4.6)
    note(grid[0, -1], ", ".join(sorted(set(frame["hardware"]))), beside=4.6)
    figure.legend(entries.values(), entries.keys(), loc="outside center right")
    return figure


def _draw_panel(axes: Axes, part: pd.DataFrame, axis: str, cost: str) -> None:
    """One cost against one length."""
    ran = part[part["outcome"] == OK]
    axes.set(xscale="log", yscale="log", xlabel=_LENGTHS[axis], ylabel=_COSTS[cost])
    forward = ran.groupby("length")[_FORWARD[cost]].median().clip(lower=_LEAST[cost])
    axes.plot(forward.index, forward, color=LIGHT, lw=3, alpha=0.7, label="forward pass", zorder=1)
    for method in method_order(list(part["method"])):
        _draw_method(axes, part[part["method"] == method].sort_values("length"), method, cost)
    _name_limits(axes, part)
    _set_ticks(axes, sorted(part["length"].unique()))


def _draw_method(axes: Axes, part: pd.DataFrame, method: str, cost: str) -> None:
    """One method: a line over the sizes that ran, and a cross where it stopped."""
    style = method_style(method)
    ran, stopped = part[part["outcome"] == OK], part[part["outcome"].isin(list(_LIMITS))]
    costs = ran[cost].clip(lower=_LEAST[cost])
    label = style.label if len(ran) else f"{style.label}: nothing ran"
    axes.plot(ran["length"], costs, label=label, **style.plot_options)
    if stopped.empty:
        return
    end = stopped.iloc[0]
    marker, column, _ = _LIMITS[end["outcome"]]
    on_this_axis = end["outcome"] == _OWN_LIMIT[cost]
    if not on_this_axis and ran.empty:
        return  # no height to draw the cross at; the label says that nothing ran
    height = end[column] if on_this_axis else costs.iloc[-1]
    if len(ran):
        lengths = [ran["length"].iloc[-1], end["length"]]
        axes.plot(lengths, [costs.iloc[-1], height], color=style.colour, ls=DASHED, lw=0.9)
    axes.plot(end["length"], height, ls="", marker=marker, ms=7, color=style.colour)


def _name_limits(axes: Axes, part: pd.DataFrame) -> None:
    """Legend entries of the limits that were reached."""
    for outcome, (marker, column, unit) in _LIMITS.items():
        reached = sorted(set(part.loc[part["outcome"] == outcome, column]))
        if reached:
            label = f"{outcome} ({', '.join(f'{limit:g}' for limit in reached)} {unit})"
            axes.plot([], [], ls=DASHED, lw=0.9, marker=marker, ms=7, color=INK, label=label)


def _set_ticks(axes: Axes, lengths: Sequence[int]) -> None:
    """The measured lengths, and plain numbers for the costs."""
    axes.set_xticks(lengths, [f"{length / 1000:g}k" if length >= 10000 else f"{length}" for length in lengths])
    dense_ticks(axes.yaxis, at_most=12)


@styled
def pareto(table: pd.DataFrame, left_out: Sequence[str] = (), *, title: str = "Cost against faithfulness") -> Figure:
    """MAS of each method against the forward passes that it costs; lower is better in both (Fig. 4e).

    Parameters
    ----------
    table : DataFrame
        ``method, ratio, mas, low, high, n, front`` (`efficiency_tables.cost_and_mas`).
    left_out : sequence of str
        Methods that cannot be drawn; named under the title.
    """
    require(table, "method", "ratio", "mas", "low", "high", "n", "front")
    figure, axes = new_axes(title, "time of one attribution (forward passes of the same tokens)", metric_name("mas"))
    axes.set_xscale("log")
    for row in table.itertuples():
        style = method_style(row.method)
        spread = whiskers(row.mas, row.low, row.high)
        point = style.plot_options | {"ls": "", "ms": 6, "capsize": 2}
        axes.errorbar(row.ratio, row.mas, yerr=spread, label=style.label, **point)
    front = table[table["front"]]
    axes.plot(front["ratio"], front["mas"], color=INK, lw=0.8, ls=":", zorder=1, label="nothing cheaper is better")
    dense_ticks(axes.xaxis)
    axes.set_ylim(bottom=0)
    legend_beside(axes)
    not_drawn = f"; not drawn: {', '.join(left_out)}" if left_out else ""
    note(axes, f"n = {n_range(table['n'], to=' to ')} samples; {INTERVAL}{not_drawn}")
    return figure
