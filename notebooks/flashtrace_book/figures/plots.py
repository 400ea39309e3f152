"""Figures from tidy frames: each states its units, its n and what its intervals are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from flashtrace_lib.metrics import HIGHER_IS_BETTER
from flashtrace_lib.viewer.colours import SEGMENT_COLOURS, SEGMENT_NAMES, SEGMENTS, WIDTH

from ..statistics import power_law
from .axes import BANDS, INTERVAL, new_axes, note, require, rows_of, spread_of
from .overview import span_overview
from .style import METRIC_NAMES, SEGMENT_HATCHES, method_order, method_style, styled

__all__ = ["cost_curve", "mass_by_position", "mass_by_segment", "metric_bars", "span_overview"]

_ERROR = {"fmt": "none", "ecolor": "#222222", "elinewidth": 0.9, "capsize": 2}
_HOP_LINES = ("-", "--", "-.", ":")
_HOP_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


@styled
def mass_by_segment(frame: pd.DataFrame, *, title: str = "Where each hop's mass lies", seed: int = 0) -> Figure:
    """Share of mass on I, T, O and context, per hop (Fig. 1a, Fig. 7).

    Parameters
    ----------
    frame : DataFrame
        ``sample, hop, segment, mass`` (`mass.mass_frame`).
    title : str
    seed : int
        Jitter of the dots, one a sample.

    Returns
    -------
    matplotlib.figure.Figure
    """
    require(frame, "sample", "hop", "segment", "mass")
    hops = sorted(frame["hop"].unique())
    segments = [s for s in SEGMENTS if s in set(frame["segment"])]
    width = 0.8 / len(segments)
    figure, axes = new_axes(title, "", "share of the hop's mass (fraction)", height=2.9)
    rng = np.random.default_rng(seed)
    for i, segment in enumerate(segments):
        groups = [frame.loc[(frame["hop"] == h) & (frame["segment"] == segment), "mass"].to_numpy() for h in hops]
        x = np.arange(len(hops)) + (i - (len(segments) - 1) / 2) * width
        colour = SEGMENT_COLOURS[segment]
        mean = [g.mean() for g in groups]
        bar = {"color": colour, "alpha": 0.75, "edgecolor": "white", "hatch": SEGMENT_HATCHES[segment]}
        axes.bar(x, mean, 0.92 * width, label=SEGMENT_NAMES[segment], **bar)
        axes.errorbar(x, mean, yerr=spread_of(groups), **_ERROR)
        for at, group in zip(x, groups, strict=True):
            jitter = rng.uniform(-0.3, 0.3, len(group)) * width
            axes.scatter(at + jitter, group, s=4, color="#222222", alpha=0.35, lw=0, zorder=3)
    axes.set_xticks(np.arange(len(hops)), [_hop_name(h).replace(" (", "\n(") for h in hops])
    axes.set_ylim(0, 1)
    axes.grid(axis="x", visible=False)
    axes.legend(ncols=len(segments), loc="upper center", bbox_to_anchor=(0.5, -0.16))
    note(axes, f"n = {frame['sample'].nunique()} samples (dots); {INTERVAL}")
    return figure


@styled
def mass_by_position(frame: pd.DataFrame, *, title: str = "Mass within the reasoning, by position") -> Figure:
    """How the mass within T shifts over it from hop to hop (appendix H).

    Parameters
    ----------
    frame : DataFrame
        ``sample, hop, position, mass`` (`mass.position_frame`).
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    require(frame, "sample", "hop", "position", "mass")
    figure, axes = new_axes(
        title, "relative position in T (0 = first token, 1 = last)", "share of the mass on T (fraction)"
    )
    for i, (hop, part) in enumerate(frame.groupby("hop")):
        groups = {x: g["mass"].to_numpy() for x, g in part.groupby("position")}
        x, mean = np.array(list(groups)), np.array([g.mean() for g in groups.values()])
        low, high = spread_of(list(groups.values()))
        colour, line = _HOP_COLOURS[i % 4], _HOP_LINES[i % 4]
        axes.plot(x, mean, color=colour, ls=line, marker="osD^"[i % 4], label=_hop_name(hop))
        axes.fill_between(x, mean - low, mean + high, color=colour, alpha=0.15, lw=0)
    axes.axhline(1 / frame["position"].nunique(), color="#7F7F7F", lw=0.8, ls=":", label="evenly spread")
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    note(axes, f"n = {frame['sample'].nunique()} samples; {BANDS}")
    return figure


@styled
def cost_curve(
    frame: pd.DataFrame, x: str, y: str, by: str = "method", *, title: str = "", xlabel: str = "", ylabel: str = ""
) -> Figure:
    """Cost against size on two logarithmic axes, with the exponent of a power law fitted to each line.

    Parameters
    ----------
    frame : DataFrame
        One row a measurement; a missing ``y`` is a run that failed (out of memory) and is marked by a cross.
    x, y : str
        Columns of size and cost, both positive.
    by : str
        Column of the lines; method names get their fixed style.
    title, xlabel, ylabel : str
        Give the units.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If a column is missing, or a size or cost is not positive.
    """
    require(frame, x, y, by)
    if (frame[[x, y]] <= 0).any().any():
        raise ValueError(f"{x} and {y} must be positive to be drawn on logarithmic axes")
    figure, axes = new_axes(title or f"{y} against {x}", xlabel or x, ylabel or y, height=3.2)
    axes.set(xscale="log", yscale="log")
    repeats = set()
    for name in method_order(list(frame[by].astype(str))):
        part = frame[frame[by].astype(str) == name]
        groups = {size: g[y].to_numpy() for size, g in part.dropna(subset=[y]).groupby(x)}
        failed = sorted(set(part[x]) - set(groups))
        style = method_style(name)
        look = {"color": style.colour, "marker": style.marker, "ls": style.line}
        if groups:
            size, mean = np.array(list(groups)), np.array([g.mean() for g in groups.values()])
            repeats |= {len(g) for g in groups.values()}
            axes.errorbar(
                size, mean, yerr=spread_of(list(groups.values())), capsize=2, label=_fitted(name, size, mean), **look
            )
            if failed:
                axes.plot([size[-1], failed[0]], [mean[-1]] * 2, color=style.colour, ls=(0, (2, 2)), lw=0.9)
                axes.plot(failed[0], mean[-1], marker="x", ms=7, color=style.colour, ls="")
        elif failed:
            axes.plot([], [], label=f"{style.label}: failed everywhere", **look)
    sizes = sorted(frame[x].unique())
    axes.set_xticks(sizes, [f"{v / 1000:g}k" if v >= 1000 else f"{v:g}" for v in sizes])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # an axis of one decade would show a single number
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    times = "–".join(str(v) for v in sorted({min(repeats), max(repeats)})) if repeats else "0"
    crosses = "; cross: failed (out of memory)" if frame[y].isna().any() else ""
    note(axes, f"n = {times} runs a point; {INTERVAL}{crosses}")
    return figure


@styled
def metric_bars(frame: pd.DataFrame, metric: str, *, cells: Sequence[str] | None = None, title: str = "") -> Figure:
    """One metric, methods side by side in every cell, with intervals and the paper's value where there is one.

    Parameters
    ----------
    frame : DataFrame
        ``method, cell, metric, mean, low, high, n`` (`evaluation.summarise` or `tables.comparison_table`);
        a column ``paper`` is drawn as hollow diamonds.
    metric : str
        A value of the column ``metric``.
    cells : sequence of str, optional
        Cells and their order. Default: as they come.
    title : str

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If a column or the metric is missing.
    """
    part = rows_of(frame, metric)
    cells = list(cells) if cells is not None else list(dict.fromkeys(part["cell"]))
    methods = method_order(list(part["method"]))
    width = 0.84 / len(methods)
    better = {True: "; higher is better", False: "; lower is better"}.get(HIGHER_IS_BETTER.get(metric), "")
    name = METRIC_NAMES.get(metric, metric)
    wide = min(2 * WIDTH, max(WIDTH * 0.75, 0.24 * len(cells) * len(methods) + 1.6))
    figure, axes = new_axes(title or name, "", name, height=2.9, width=wide)
    for i, method in enumerate(methods):
        rows = part[part["method"] == method].set_index("cell").reindex(cells)
        x = np.arange(len(cells)) + (i - (len(methods) - 1) / 2) * width
        style = method_style(method)
        axes.bar(x, rows["mean"], 0.92 * width, color=style.colour, label=style.label, edgecolor="white", lw=0.4)
        spread = np.clip([rows["mean"] - rows["low"], rows["high"] - rows["mean"]], 0, None)  # nan: not drawn
        axes.errorbar(x, rows["mean"], yerr=spread, **_ERROR)
        axes.plot(x, rows["mean"].fillna(0) * 0 + 0.012, ls="", marker=style.marker, ms=3, color="white", mew=0.6)
        if "paper" in rows and rows["paper"].notna().any():
            label = "paper" if i == len(methods) - 1 else None
            axes.plot(x, rows["paper"], ls="", marker="D", ms=4, mfc="none", mec="#222222", mew=0.9, label=label)
    n = part["n"].agg(["min", "max"]).astype(int)
    axes.set_xticks(np.arange(len(cells)), [cell.replace("_", " ") for cell in cells])
    axes.set_ylim(bottom=0)
    axes.grid(axis="x", visible=False)
    across = int(wide // 1.05)  # inches of a legend entry; a legend wider than the figure would squeeze the axes away
    axes.legend(ncols=min(across, len(methods) + 1), loc="upper center", bbox_to_anchor=(0.5, -0.1))
    note(axes, f"n = {n['min'] if n['min'] == n['max'] else f'{n.min()}–{n.max()}'} samples a cell; {INTERVAL}{better}")
    return figure


def _fitted(name: str, size: np.ndarray, cost: np.ndarray) -> str:
    """Legend entry with the exponent of the least-squares power law."""
    label = method_style(name).label
    if len(size) < 2:
        return label
    return f"{label}: ∝ size$^{{{power_law(size, cost)[1]:.2f}}}$"


def _hop_name(hop: int) -> str:
    return f"hop {hop} (the paper's Hop {hop + 1})"
