"""What the figures share: axes, the note above them, intervals, the check of a frame's columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flashtrace_lib.metrics import mean_interval
from flashtrace_lib.metrics.intervals import MIN_SAMPLES
from flashtrace_lib.viewer.colours import WIDTH

FEW = f"none below {MIN_SAMPLES} samples or templates"
INTERVAL = f"whiskers: 95 % t interval of the mean, {FEW}"
BANDS = INTERVAL.replace("whiskers", "bands")
_BESIDE, _PER_CHARACTER = 0.6, 0.047  # inches: the labels left of the axes, and a character of the note


def new_axes(
    title: str, xlabel: str, ylabel: str, *, height: float = 2.8, width: float = WIDTH * 0.75
) -> tuple[Figure, Axes]:
    """A figure with one axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, pad=16)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return figure, axes


def note(axes: Axes, text: str) -> None:
    """Number of samples and meaning of the intervals, between title and axes, in lines no longer than the figure."""
    lines = textwrap.wrap(text, int((axes.figure.get_figwidth() - _BESIDE) / _PER_CHARACTER))
    axes.set_title(axes.get_title(loc="left"), loc="left", pad=16 + 8 * (len(lines) - 1))
    axes.annotate(
        "\n".join(lines), (0, 1), (0, 4), "axes fraction", "offset points", fontsize=6.5, color="#555555", va="bottom"
    )


def spread_of(groups: Sequence[np.ndarray]) -> np.ndarray:
    """Distances from the mean to the ends of its interval, shape [2, groups]; nan is not drawn (few values)."""
    ends = [(g.mean() - low, high - g.mean()) for g in groups for low, high in [mean_interval(g)]]
    return np.array(ends).T.clip(min=0)


def rows_of(frame: pd.DataFrame, metric: str, by: str = "cell") -> pd.DataFrame:
    """Rows of one metric of a summary (`evaluation.summarise`); ValueError where it lacks columns or the metric."""
    require(frame, "method", by, "metric", "mean", "low", "high", "n")
    part = frame[frame["metric"] == metric]
    if part.empty:
        raise ValueError(f"no rows of metric {metric!r}: the frame has {sorted(set(frame['metric']))}")
    return part


def require(frame: pd.DataFrame, *columns: str) -> None:
    """Raise ValueError where a frame lacks columns or rows."""
    missing = [column for column in columns if column not in frame]
    if missing or frame.empty:
        what = f"lacks the columns {missing}" if missing else "is empty"
        raise ValueError(f"the frame {what}: it needs {', '.join(columns)} and at least one row")
