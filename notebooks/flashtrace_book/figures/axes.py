"""Parts of every figure: axes, the note above them, legends and ticks."""

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import ConnectionPatch
from matplotlib.ticker import LogLocator
from matplotlib.transforms import Affine2D, ScaledTranslation, Transform, blended_transform_factory
from scipy.optimize import isotonic_regression

from flashtrace_lib.metrics.intervals import MIN_SAMPLES
from flashtrace_lib.viewer.colours import WIDTH

from .palette import DARK

FEW = f"none below {MIN_SAMPLES} samples or templates"
INTERVAL = f"whiskers: 95 % t interval of the mean, {FEW}"
_LABEL_SIZE = 6.5  # points: the font of labels at line ends
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


def label_ends(axes: Axes) -> None:
    """Write the name of each labelled line at its right end, with its marker, instead of a legend.

    Call it when the limits of the axes are final. Labels that would overlap are moved apart, in the order in which the
    lines end; a thin line leads from each end to its label.
    """
    lines = {label: _line_of(handle) for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    ends = np.array([_end(axes, line) for line in lines.values()])  # [lines, 2]
    gap = 1.35 * _LABEL_SIZE / (72 * 0.65 * axes.figure.get_figheight())  # the axes are about 0.65 of the height
    heights, beside = moved_apart(ends[:, 1], gap), _beside(axes)
    for (label, line), end, height in zip(lines.items(), ends, heights, strict=True):
        lead = {"color": line.get_color(), "lw": 0.5, "alpha": 0.6, "clip_on": False}
        axes.add_artist(ConnectionPatch(end, (5, height), axes.transAxes, beside, **lead))
        key = Line2D([5, 14, 23], [height] * 3, markevery=[1])
        key.update_from(line)
        key.set(transform=beside, clip_on=False, label="_key")
        axes.add_artist(key)
        axes.annotate(label, (26, height), xycoords=beside, va="center", fontsize=_LABEL_SIZE, color=DARK)


def moved_apart(places: np.ndarray, gap: float) -> np.ndarray:
    """The nearest places, in the least squares, that keep the order and lie ``gap`` or more apart, within 0 and 1.

    Parameters
    ----------
    places : array, shape [n]
        In any order; equal ones keep theirs.
    gap : float
        Where n - 1 gaps do not fit between 0 and 1, the places are spread evenly.

    Returns
    -------
    array, shape [n]
    """
    order = np.argsort(-places, kind="stable")  # the first on top
    steps = -np.arange(len(places)) * min(gap, 1 / max(len(places) - 1, 1))
    # Without the steps the gaps are gone and the order alone is left to keep: an isotonic regression.
    fitted, moved = isotonic_regression(places[order] - steps, increasing=False).x, np.empty(len(places))
    moved[order] = np.clip(fitted, -steps[-1], 1) + steps
    return moved


def _beside(axes: Axes) -> Transform:
    """Coordinates right of the axes: x in points from their right edge, y in fractions of their height."""
    right_edge = ScaledTranslation(1, 0, axes.transAxes)
    points = Affine2D().scale(1 / 72) + axes.figure.dpi_scale_trans + right_edge
    return blended_transform_factory(points, axes.transAxes)


def _line_of(handle: Line2D | ErrorbarContainer) -> Line2D:
    """The line of a legend's handle."""
    return handle[0] if isinstance(handle, ErrorbarContainer) else handle


def _end(axes: Axes, line: Line2D) -> np.ndarray:
    """Last point of a line that has both coordinates, in fractions of the axes; the right foot where there is none."""
    points = np.ma.masked_invalid(np.asarray(line.get_xydata(), dtype=float))
    whole = points[~np.ma.getmaskarray(points).any(axis=1)]
    if not len(whole):
        return np.array([1.0, 0.0])
    return np.clip(axes.transAxes.inverted().transform(line.get_transform().transform(np.asarray(whole[-1]))), 0, 1)


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
