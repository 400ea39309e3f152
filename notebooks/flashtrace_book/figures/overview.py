"""The paper's Fig. 2, drawn from a real sample: attention rows of a span, their sum, and the proximity."""

from collections.abc import Sequence
from textwrap import shorten
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch

from flashtrace_lib.sample import Segments
from flashtrace_lib.viewer.colours import INK, SEGMENT_COLOURS, SEGMENT_NAMES, WIDTH, rc_params
from flashtrace_lib.viewer.tokens import visible

from .axes import name_rows, new_axes, note
from .palette import BLUE, GREY, VERMILION
from .style import styled

_LABELLED_ROWS = 24  # a longer span gets no label for each token
_NAMED = 6  # tokens named in each of the two lower panels


def span_overview(
    attention: Any, aggregated: Any, proximity: Any, tokens: Sequence[str], segments: Segments, *, title: str
) -> Figure:
    """Attention rows of the output O, the row of their sum and the proximity, from top to bottom (Fig. 2).

    Parameters
    ----------
    attention : array, shape [M, N]
        α_ij, rows i of O, columns j of the context; one layer, one head.
    aggregated : array, shape [N]
        a_j = Σ_i w_i α_ij (eq. 8), with w_i = 1.
    proximity : array, shape [N]
        e_j, the proximity of a_j f_j to the aggregated target (eq. 7).
    tokens : sequence of str, length N
    segments : Segments
    title : str
        Names the sample, layer and head.

    Raises
    ------
    ValueError
        If shapes do not fit each other, or ``aggregated`` is not the sum of ``attention``.
    """
    start, stop = segments.output
    n, m = len(tokens), stop - start
    rows, total, near = _array(attention), _array(aggregated), _array(proximity)
    _check(rows, total, near, n, m)
    with mpl.rc_context(rc_params() | {"axes.grid": False}):
        figure = Figure(figsize=(WIDTH, 5.2), layout="none")
        grid = figure.add_gridspec(
            3, 2, height_ratios=(1.6, 1, 1), width_ratios=(12, 1), hspace=0.62, wspace=0.04,
            left=0.17, right=0.97, top=0.86, bottom=0.07,
        )  # fmt: skip
        matrix = figure.add_subplot(grid[0, 0])
        side = figure.add_subplot(grid[0, 1], sharey=matrix)
        summed = figure.add_subplot(grid[1, 0], sharex=matrix)
        near_axes = figure.add_subplot(grid[2, 0], sharex=matrix)
        figure.suptitle(title, x=0.02, y=0.985, ha="left", fontsize=9.5, weight="bold")
        _draw_matrix(matrix, rows, tokens[start:stop], n)
        _draw_weights(side, np.ones(m))
        _draw_row(summed, total, tokens, BLUE, "$a_j$ (attention)")
        _draw_row(near_axes, near, tokens, VERMILION, "$e_j$ (L1 norm)")
        near_axes.set_xlabel(f"context token $j$ (0 … {n - 1})", labelpad=2)
        for axes in (matrix, summed, near_axes):
            _shade(axes, segments, n, named=axes is matrix)
            axes.tick_params(axis="x", labelbottom=axes is near_axes)
        weighted_sum = r"weighted sum over the span: $a_j = \sum_i w_i\,\alpha_{ij}$"
        _arrow(figure, matrix, summed, weighted_sum, f"{m} rows → 1 row")
        _arrow(figure, summed, near_axes, r"$e_j = \max(0,\|Y\|_1 - \|Y - a_j f_j\|_1)$", "one vector a source token")
    return figure


def _check(rows: np.ndarray, total: np.ndarray, near: np.ndarray, n: int, m: int) -> None:
    """Raise ValueError where shapes do not fit, or ``total`` is not the sum of ``rows``."""
    if rows.shape != (m, n) or total.shape != (n,) or near.shape != (n,):
        raise ValueError(
            f"for a span of {m} tokens in a context of {n}, attention must be [{m}, {n}], aggregated and proximity "
            f"[{n}]; got {rows.shape}, {total.shape}, {near.shape}"
        )
    if not np.allclose(rows.sum(0), total, rtol=1e-3, atol=1e-5 * max(1.0, np.abs(total).max())):
        raise ValueError("aggregated is not Σ_i α_ij of the given attention: they are of different heads")


def _draw_matrix(axes: Axes, rows: np.ndarray, names: Sequence[str], n: int) -> None:
    """Attention rows, shaded by their square root so that one attention sink does not hide all other tokens."""
    axes.imshow(
        rows, aspect="auto", cmap="Greys", norm=PowerNorm(0.5, 0, max(rows.max(), 1e-12)), interpolation="nearest",
        extent=(-0.5, n - 0.5, len(rows) - 0.5, -0.5),
    )  # fmt: skip
    if len(rows) <= _LABELLED_ROWS:
        axes.set_yticks(range(len(rows)), [_name(name) for name in names], fontsize=max(3.5, min(6, 110 / len(rows))))
        axes.tick_params(axis="y", length=0)
    axes.set_ylabel(f"span token $i$\n({len(rows)} of them)", labelpad=4)
    axes.set_title(r"attention $\alpha_{ij}$ (shade $\propto\sqrt{\alpha}$)", fontsize=7.5, weight="normal", pad=15)


def _draw_weights(axes: Axes, weights: np.ndarray) -> None:
    """Weight of each target token, beside its row."""
    axes.barh(np.arange(len(weights)), weights, color=GREY, height=0.8)
    axes.set_title("$w_i$", fontsize=7.5, weight="normal", pad=15)
    axes.tick_params(axis="y", left=False, labelleft=False)
    axes.set_xlim(0, weights.max() * 1.05)
    axes.set_xticks([0, weights.max()], ["0", f"{weights.max():.2g}"], fontsize=6)


def _draw_row(axes: Axes, values: np.ndarray, tokens: Sequence[str], colour: str, label: str) -> None:
    """One value for each context token, the highest named where their names do not overlap."""
    axes.bar(np.arange(len(values)), values, width=1.0, color=colour, lw=0)
    axes.set_ylabel(label)
    axes.set_ylim(0, max(values.max(), 1e-12) * 1.42)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    axes.yaxis.get_offset_text().set_fontsize(6)
    named: list[int] = []
    for j in np.argsort(-values, kind="stable"):
        if len(named) == _NAMED or values[j] <= 0:
            break
        if any(abs(j - other) < len(values) * 0.06 for other in named):
            continue
        named.append(int(j))
        align = "left" if j < 0.05 * len(values) else "center"  # centred there, a long name would cover the axis
        style = {"ha": align, "fontsize": 6, "color": INK, "parse_math": False}
        axes.annotate(_name(tokens[j]), (j, values[j]), (0, 3), textcoords="offset points", **style)


def _shade(axes: Axes, segments: Segments, n: int, named: bool) -> None:
    """Segments as coloured bars on top of the axes, named once."""
    for name, (start, stop) in segments.named():
        colour = SEGMENT_COLOURS[name]
        axes.axvspan(start - 0.5, stop - 0.5, ymin=1.01, ymax=1.05, color=colour, clip_on=False, lw=0)
        axes.axvspan(start - 0.5, stop - 0.5, color=colour, alpha=0.06, lw=0, zorder=0)
        if named:
            wide = (stop - start) / n > 0.15
            text = SEGMENT_NAMES[name] if wide else SEGMENT_NAMES[name][-1]
            middle = ((start + stop - 1) / 2, 1.06)
            style = {"ha": "center", "va": "bottom", "fontsize": 6.5, "color": INK}
            axes.annotate(text, middle, xycoords=("data", "axes fraction"), **style)
    axes.set_xlim(-0.5, n - 0.5)


def _arrow(figure: Figure, upper: Axes, lower: Axes, left: str, right: str) -> None:
    """Arrow from one panel to the next, with a text on either side."""
    ends = {"xyA": (0.5, -0.13), "coordsA": upper.transAxes, "xyB": (0.5, 1.12), "coordsB": lower.transAxes}
    figure.add_artist(ConnectionPatch(**ends, arrowstyle="-|>", lw=1.2, color="#444444", mutation_scale=9))
    a, b = upper.get_position(), lower.get_position()
    middle, centre = (a.y0 + b.y1) / 2, (a.x0 + a.x1) / 2
    figure.text(centre - 0.015, middle, left, ha="right", va="center", fontsize=7, color=INK)
    figure.text(centre + 0.015, middle, right, ha="left", va="center", fontsize=7, color="#555555")


def _array(values: Any) -> np.ndarray:
    return np.asarray(values.detach().float().cpu() if hasattr(values, "detach") else values, dtype=np.float64)


def _name(token: str, limit: int = 12) -> str:
    """A token in one short line."""
    text = visible(token).replace("\n", "").strip() or "␣"
    return text if len(text) <= limit else text[: limit - 1] + "…"


@styled
def steps_heatmap(table: pd.DataFrame, *, title: str) -> Figure:
    """Which sentence of the response used what (`Trace.matrix`); empty where a column does not stand before the row."""
    figure, axes = new_axes(title, "", "", height=0.35 * len(table) + 2.2, width=WIDTH)
    axes.imshow(np.ma.masked_invalid(table), cmap="Oranges", vmin=0, vmax=1.6 * np.nanmax(table), aspect="auto")
    for row, column in zip(*np.nonzero(table.notna().to_numpy()), strict=True):
        axes.text(column, row, f"{table.iloc[row, column]:.2f}", ha="center", va="center", fontsize=7)
    rows, columns = ([shorten(name, 30, placeholder="…") for name in names] for names in (table.index, table.columns))
    axes.set_xticks(range(len(columns)), columns, rotation=25, ha="right", fontsize=7)
    name_rows(axes, rows)
    axes.grid(visible=False)
    note(axes, "share of hop 0's mass, one answer: a row is a sentence explained, a column one that stands before it")
    return figure
