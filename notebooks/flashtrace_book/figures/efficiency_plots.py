"""Figures of time and memory (Fig. 4): cost against a length, limits drawn as such, and cost against faithfulness."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from flashtrace_lib.viewer.colours import INK

from ..efficiency.supervised_process import OK, OUT_OF_MEMORY, TIME_OUT
from .axes import INTERVAL, new_axes, note, require
from .style import METRIC_NAMES, method_order, method_style, styled

_LENGTHS = {"input": "length of the input I (tokens)", "generation": "length of the generation T and O (tokens)"}
_COSTS = {"seconds": "time of one attribution (s)", "peak_gib": "peak memory over the loaded model (GiB)"}
_FORWARD = {"seconds": "forward_s", "peak_gib": "forward_peak_gib"}
# marker, column of the limit, its unit; markers that no swept method has
_LIMITS = {TIME_OUT: ("x", "time_limit", "s"), OUT_OF_MEMORY: ("$\\otimes$", "memory_limit", "GiB")}
_OWN_LIMIT = {"seconds": TIME_OUT, "peak_gib": OUT_OF_MEMORY}  # the limit that has a place on the axis of a cost
_LEAST = 1e-3  # GiB; what a measurement of resident memory cannot tell from nothing


@styled
def cost_by_length(frame: pd.DataFrame, axis: str, cost: str, *, title: str = "") -> Figure:
    """Cost of every method against a length, on logarithmic axes (Fig. 4 a to d).

    Where a method reached a limit, a dashed line leads to a cross: at the limit, if it is the one of this cost, else at
    the height of the last size that ran. A plain forward pass of the same tokens is drawn in grey.

    Parameters
    ----------
    frame : DataFrame
        From `sweep.sweep`, of one machine.
    axis : {"input", "generation"}
        The length that varies.
    cost : {"seconds", "peak_gib"}
        What is drawn.
    title : str

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If a column is missing or nothing ran.
    """
    part = frame[frame["axis"] == axis]
    require(part, "method", "length", "outcome", cost, _FORWARD[cost], "n", "hardware")
    ran = part[part["outcome"] == OK]
    if ran.empty:
        raise ValueError(f"nothing ran along the {axis}: the outcomes are {sorted(set(part['outcome']))}")
    figure, axes = new_axes(title, _LENGTHS[axis], _COSTS[cost], height=3.6)
    axes.set(xscale="log", yscale="log")
    forward = ran.groupby("length")[_FORWARD[cost]].median().clip(lower=_LEAST if cost == "peak_gib" else 0)
    axes.plot(forward.index, forward, color="#B0B0B0", lw=3, alpha=0.7, label="forward pass", zorder=1)
    for method in method_order(list(part["method"])):
        _line(axes, part[part["method"] == method].sort_values("length"), method, cost)
    for outcome in [outcome for outcome in _LIMITS if (part["outcome"] == outcome).any()]:
        marker, column, unit = _LIMITS[outcome]
        limits = sorted(set(part.loc[part["outcome"] == outcome, column]))
        shown = f"{outcome} ({', '.join(f'{limit:g}' for limit in limits)} {unit})"
        axes.plot([], [], ls=(0, (2, 2)), lw=0.9, marker=marker, ms=7, color=INK, label=shown)
    _ticks(axes, sorted(part["length"].unique()))
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    runs = sorted({int(n) for n in ran["n"]})
    times = f"median of {runs[0]}" + (f" to {runs[-1]}" if len(runs) > 1 else "") + " runs a point"
    times = times if cost == "seconds" else "one run a point"
    note(axes, f"{times}; {', '.join(sorted(set(part['hardware'])))}")
    return figure


def _line(axes: Axes, part: pd.DataFrame, method: str, cost: str) -> None:
    """One method: what ran, and where it stopped."""
    style = method_style(method)
    ran, stopped = part[part["outcome"] == OK], part[part["outcome"].isin(list(_LIMITS))]
    look = {"color": style.colour, "marker": style.marker, "ls": style.line}
    label = style.label if len(ran) else f"{style.label}: nothing ran"
    values = ran[cost].clip(lower=_LEAST) if cost == "peak_gib" else ran[cost]
    axes.plot(ran["length"], values, label=label, **look)
    if stopped.empty:
        return
    end = stopped.iloc[0]
    marker, column, _ = _LIMITS[end["outcome"]]
    own = end["outcome"] == _OWN_LIMIT[cost]
    if not own and ran.empty:
        return  # no height to draw it at; the label says it
    height = end[column] if own else values.iloc[-1]
    if len(ran):
        ends = ([ran["length"].iloc[-1], end["length"]], [values.iloc[-1], height])
        axes.plot(*ends, color=style.colour, ls=(0, (2, 2)), lw=0.9)
    axes.plot(end["length"], height, ls="", marker=marker, ms=7, color=style.colour)


def _ticks(axes: Axes, lengths: Sequence[int]) -> None:
    """The lengths measured, and plain numbers for the costs."""
    axes.set_xticks(lengths, [f"{length / 1000:g}k" if length >= 10000 else f"{length}" for length in lengths])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()


@styled
def pareto(table: pd.DataFrame, left_out: Sequence[str] = (), *, title: str = "Cost against faithfulness") -> Figure:
    """Forward passes that a method costs against its MAS, both better when lower (Fig. 4e).

    Parameters
    ----------
    table : DataFrame
        ``method, ratio, mas, low, high, n, front`` (`efficiency_tables.cost_and_mas`).
    left_out : sequence of str
        Methods that cannot be drawn; named under the title.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    require(table, "method", "ratio", "mas", "low", "high", "n", "front")
    figure, axes = new_axes(title, "time of one attribution (forward passes of the same tokens)", METRIC_NAMES["mas"])
    axes.set_xscale("log")
    for row in table.itertuples():
        style = method_style(row.method)
        spread = np.clip([[row.mas - row.low], [row.high - row.mas]], 0, None)  # nan: not drawn
        axes.errorbar(row.ratio, row.mas, yerr=spread, color=style.colour, marker=style.marker, ls="", capsize=2,
                      ms=6, label=style.label)  # fmt: skip
    front = table[table["front"]]
    axes.plot(front["ratio"], front["mas"], color=INK, lw=0.8, ls=":", zorder=1, label="nothing cheaper is better")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    n = sorted(set(table["n"]))
    text = f"n = {n[0]}" + (f" to {n[-1]}" if len(n) > 1 else "") + " samples; " + INTERVAL
    note(axes, text + (f"; not drawn: {', '.join(left_out)}" if left_out else ""))
    return figure
