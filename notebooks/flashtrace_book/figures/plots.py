"""Figures from tidy frames: each states its units, its n and what its intervals are."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flashtrace_lib.metrics import HIGHER_IS_BETTER
from flashtrace_lib.viewer.colours import SEGMENT_COLOURS, SEGMENT_NAMES, SEGMENTS, WIDTH

from ..statistics import power_law
from .axes import INTERVAL, dense_ticks, legend_below, legend_beside, n_range, name_groups, new_axes, note
from .checks import require, rows_of
from .marks import grouped_bars, means_of, whiskers
from .palette import DARK, DASHED, SEGMENT_HATCHES
from .style import better_side, method_order, method_style, metric_name, styled


@styled
def mass_by_segment(frame: pd.DataFrame, *, title: str = "Where each hop's mass lies", seed: int = 0) -> Figure:
    """Share of mass on I, T, O and context, per hop (Fig. 1a, Fig. 7).

    Parameters
    ----------
    frame : DataFrame
        ``sample, hop, segment, mass`` (`mass.mass_frame`).
    seed : int
        Jitter of the dots, one a sample.
    """
    require(frame, "sample", "hop", "segment", "mass")
    hops, segments = sorted(frame["hop"].unique()), [s for s in SEGMENTS if s in set(frame["segment"])]
    figure, axes = new_axes(title, "", "share of the hop's mass (fraction)", height=2.9)
    width = 0.8 / len(segments)  # of a bar
    rng = np.random.default_rng(seed)
    for i, segment in enumerate(segments):
        part = frame[frame["segment"] == segment]
        groups = [part[part["hop"] == hop] for hop in hops]
        mean, spread = means_of(groups, "mass")
        style = {"color": SEGMENT_COLOURS[segment], "alpha": 0.75, "hatch": SEGMENT_HATCHES[segment]}
        label = SEGMENT_NAMES[segment]
        x = grouped_bars(axes, mean, spread, series=i, n_series=len(segments), label=label, **style)
        for centre, group in zip(x, groups, strict=True):
            jitter = rng.uniform(-0.3, 0.3, len(group)) * width
            axes.scatter(centre + jitter, group["mass"], s=4, color=DARK, alpha=0.35, lw=0, zorder=3)
    name_groups(axes, [_hop_name(hop).replace(" (", "\n(") for hop in hops])
    axes.set_ylim(0, 1)
    legend_below(axes, ncols=len(segments), gap=0.16)
    note(axes, f"n = {frame['sample'].nunique()} samples (dots); {INTERVAL}")
    return figure


@styled
def cost_curve(
    frame: pd.DataFrame, x: str, y: str, by: str = "method", *, title: str = "", xlabel: str = "", ylabel: str = ""
) -> Figure:
    """Cost against size on two logarithmic axes, with the exponent of a power law fitted to each line.

    Parameters
    ----------
    frame : DataFrame
        One row for each measurement; a missing ``y`` is a run that failed (out of memory) and is marked by a cross.
    x, y : str
        Columns of size and cost, both positive.
    by : str
        Column of the lines; method names get their fixed style.
    title, xlabel, ylabel : str
        With the units.

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
    for name in method_order(list(frame[by].astype(str))):
        _cost_line(axes, frame[frame[by].astype(str) == name], name, x, y)
    sizes = sorted(frame[x].unique())
    axes.set_xticks(sizes, [f"{v / 1000:g}k" if v >= 1000 else f"{v:g}" for v in sizes])
    dense_ticks(axes.yaxis)
    legend_beside(axes)
    runs = frame.dropna(subset=[y]).groupby([by, x]).size()
    crosses = "; cross: failed (out of memory)" if frame[y].isna().any() else ""
    note(axes, f"n = {n_range(runs) if len(runs) else 0} runs a point: median, and from the least to the most{crosses}")
    return figure


def _cost_line(axes: Axes, part: pd.DataFrame, name: str, x: str, y: str) -> None:
    """Median cost of one method by size, with its range, and a cross at the first size that failed."""
    style, groups = method_style(name), dict(iter(part.dropna(subset=[y]).groupby(x)))
    failed = sorted(set(part[x]) - set(groups))
    if not groups:
        axes.plot([], [], label=f"{style.label}: failed everywhere", **style.plot_options)
        return
    sizes = np.array(list(groups))
    low, middle, high = np.array([np.quantile(group[y], (0, 0.5, 1)) for group in groups.values()]).T
    label = style.label if len(sizes) < 2 else f"{style.label}: ∝ size$^{{{power_law(sizes, middle)[1]:.2f}}}$"
    axes.errorbar(sizes, middle, yerr=(middle - low, high - middle), capsize=2, label=label, **style.plot_options)
    if failed:
        axes.plot([sizes[-1], failed[0]], [middle[-1], middle[-1]], color=style.colour, ls=DASHED, lw=0.9)
        axes.plot(failed[0], middle[-1], marker="x", ms=7, color=style.colour, ls="")


@styled
def metric_bars(frame: pd.DataFrame, metric: str, *, cells: Sequence[str] | None = None, title: str = "") -> Figure:
    """Bars of one metric, the methods side by side in every cell, with intervals and the values of the paper.

    Parameters
    ----------
    frame : DataFrame
        ``method, cell, metric, mean, low, high, n`` (`evaluation.summarise` or `tables.comparison_table`);
        a column ``paper`` is drawn as hollow diamonds.
    metric : str
        A value of the column ``metric``.
    cells : sequence of str, optional
        Cells and their order. Default: as they come.

    Raises
    ------
    ValueError
        If a column or the metric is missing.
    """
    part = rows_of(frame, metric)
    cells = list(cells) if cells is not None else list(dict.fromkeys(part["cell"]))
    methods, name = method_order(list(part["method"])), metric_name(metric)
    width = min(2 * WIDTH, max(WIDTH * 0.75, 0.24 * len(cells) * len(methods) + 1.6))
    figure, axes = new_axes(title or name, "", name, height=2.9, width=width)
    told = part.loc[part["paper"].notna(), "method"].tolist()[:1] if "paper" in part else []
    for i, method in enumerate(methods):
        rows, style = part[part["method"] == method].set_index("cell").reindex(cells), method_style(method)
        spread = whiskers(rows["mean"], rows["low"], rows["high"])
        bar = {"color": style.colour, "label": style.label, "lw": 0.4}
        x = grouped_bars(axes, rows["mean"], spread, series=i, n_series=len(methods), group=0.84, **bar)
        at_foot = np.full(len(cells), 0.012)
        axes.plot(x, at_foot, ls="", marker=style.marker, ms=3, color="white", mew=0.6)
        if "paper" in rows and rows["paper"].notna().any():
            label = "paper" if method in told else None
            axes.plot(x, rows["paper"], ls="", marker="D", ms=4, mfc="none", mec=DARK, mew=0.9, label=label)
    name_groups(axes, [cell.replace("_", " ") for cell in cells])
    axes.set_ylim(bottom=0)
    # inches of a legend entry; a legend wider than the figure would squeeze the axes away
    legend_below(axes, ncols=min(int(width // 1.05), len(methods) + 1))
    better = f"; {better_side(metric)}" if metric in HIGHER_IS_BETTER else ""
    note(axes, f"n = {n_range(part['n'])} samples a cell; {INTERVAL}{better}")
    return figure


def _hop_name(hop: int) -> str:
    return f"hop {hop} (the paper's Hop {hop + 1})"
