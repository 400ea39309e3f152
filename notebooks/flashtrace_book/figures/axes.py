"""Parts of every figure: axes, the note above them, legends and ticks."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from flashtrace_lib.metrics.intervals import MIN_SAMPLES
from flashtrace_lib.viewer.colours import WIDTH

FEW = f"none below {MIN_SAMPLES} samples or templates"
INTERVAL = f"whiskers: 95 % t interval of the mean, {FEW}"
BANDS = INTERVAL.replace("whiskers", "bands")
_BESIDE, _PER_CHARACTER = 0.6, 0.047  # inches: the labels left of the axes, and a character of the note


def new_axes(
    title: str, xlabel: str, ylabel: str, *, height: float = 2.8, width: float = WIDTH * 0.75
) -> tuple[Figure, Axes]:
    """A figure of ``width`` by ``height`` inches with one axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, pad=16)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return figure, axes


def new_panels(
    title: str, rows: int, columns: int, *, height: float, sharex: bool = False, sharey: bool = False
) -> tuple[Figure, np.ndarray]:
    """A figure of the page's width and ``height`` inches, and its axes under one title, shape [rows, columns]."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=9, fontweight="bold")
    return figure, figure.subplots(rows, columns, sharex=sharex, sharey=sharey, squeeze=False)


def note(axes: Axes, text: str, beside: float = _BESIDE) -> None:
    """Write the number of samples and the meaning of the intervals between title and axes, wrapped to the figure.

    ``beside`` is the width of the labels left of the axes, inches.
    """
    lines = textwrap.wrap(text, int((axes.figure.get_figwidth() - beside) / _PER_CHARACTER))
    axes.set_title(axes.get_title(loc="left"), loc="left", pad=16 + 8 * (len(lines) - 1))
    axes.annotate(
        "\n".join(lines), (0, 1), (0, 4), "axes fraction", "offset points", fontsize=6.5, color="#555555", va="bottom"
    )


def n_range(counts: pd.Series, to: str = "–") -> str:
    """The least and the greatest of ``counts``, ``6–8``; one number where they are equal."""
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low}{to}{high}"


def legend_beside(axes: Axes) -> None:
    """Place the legend to the right of the axes."""
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def legend_below(axes: Axes, ncols: int, gap: float = 0.1) -> None:
    """Place the legend under the axes, ``gap`` of their height below them."""
    axes.legend(ncols=ncols, loc="upper center", bbox_to_anchor=(0.5, -gap))


def name_groups(axes: Axes, names: Sequence[str], **text: object) -> None:
    """Write the names of the groups of `grouped_bars` on the x axis; ``text`` is passed on to the labels."""
    axes.set_xticks(np.arange(len(names)), names, **text)
    axes.grid(axis="x", visible=False)


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Write the names of the rows 0, 1, 2, … on the y axis, the first on top."""
    axes.set_yticks(np.arange(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)


def plain_numbers(axis: Axis) -> None:
    """Write the ticks of a logarithmic axis as plain numbers."""
    axis.set_major_formatter(lambda value, _: f"{value:g}")


def dense_ticks(axis: Axis, at_most: int | None = None) -> None:
    """Put ticks at 1, 2 and 5 in each decade of a logarithmic axis, which might show a single number otherwise."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=at_most))
    plain_numbers(axis)
    axis.axes.minorticks_off()
