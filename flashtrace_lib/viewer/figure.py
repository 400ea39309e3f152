"""Token heatmaps as matplotlib figures: the text flows in lines, a coloured box behind every token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.textpath import TextPath

from ..attribution import Attribution
from ..sample import Sample
from .colours import INK, SEGMENT_COLOURS, WIDTH, rc_params
from .tokens import Panel, TokenBox, hop_panels, make_panel, visible

_FONT = "DejaVu Sans Mono"  # comes with matplotlib; every glyph is 0.602 em wide
_ADVANCE = 0.602
_LEADING = 1.55  # line height, em
_TITLE_LINES = 1.8
_EM = 100.0  # size at which outlines are cached, points


@dataclass
class _Piece:
    """Part of a token on one line, in character columns; a caption has no box."""

    line: float
    column: int
    text: str
    box: TokenBox | None = None
    label: str = ""


def heatmap_figure(
    tokens: Sequence[str], scores: Any, *, budget: int | None = 400, width: float = WIDTH, **options: Any
) -> Figure:
    """Heatmap of tokens as a figure.

    Parameters
    ----------
    tokens, scores, **options
        As `html.token_heatmap`.
    budget : int or None
        Show about this many tokens and fold runs of low scores; None shows all.
    width : float
        Inches; the height follows from the text.

    Raises
    ------
    ValueError
        As `tokens.make_panel`, or if the figure is too narrow.
    """
    return _draw([make_panel(tokens, scores, budget=budget, **options)], width)


def hops_figure(
    sample: Sample, attribution: Attribution, *, top_k: int = 10, budget: int | None = 260, width: float = 2 * WIDTH
) -> Figure:
    """Hop 0, hop 1 and their difference side by side (Fig. 3); parameters as `heatmap_figure` and `hops_heatmap`."""
    return _draw(hop_panels(sample, attribution, top_k=top_k, budget=budget), width)


def _draw(panels: list[Panel], width: float, size: float = 7.0) -> Figure:
    """Lay every panel out in its column and draw it; axes are in points, y downwards."""
    gap = 0.2  # inches between and around panels
    column = (width - gap * (len(panels) + 1)) / len(panels)
    columns = int(column * 72 / (size * _ADVANCE)) - 2  # two characters for the coloured edge
    if columns < 40:
        raise ValueError(f"width {width} in leaves {columns} characters a panel: make the figure wider")
    layouts = [_layout(panel, columns) for panel in panels]
    lines = max(pieces[-1].line for pieces in layouts) + 1.2
    height = lines * size * _LEADING / 72  # inches
    total = height + 2 * gap
    with mpl.rc_context(rc_params()):
        figure = Figure(figsize=(width, total), layout="none")
        for k, (panel, pieces) in enumerate(zip(panels, layouts, strict=True)):
            left = gap + k * (column + gap)
            axes = figure.add_axes((left / width, gap / total, column / width, height / total))
            axes.set(xlim=(0, column * 72), ylim=(height * 72, 0))
            axes.set_axis_off()
            canvas = _Canvas(axes, size)
            canvas.head(panel, column * 72)
            for piece in pieces:
                canvas.add(piece)
            canvas.finish()
    return figure


def _layout(panel: Panel, columns: int) -> list[_Piece]:
    """Break the boxes of a panel into lines of at most ``columns`` characters."""
    pieces: list[_Piece] = []
    line = _TITLE_LINES
    for caption, boxes in panel.blocks():
        if caption:
            pieces.append(_Piece(line, 0, caption, label=boxes[0].label))
            line += 1
        column = 0
        for box in boxes:
            for part in _parts(box.text, columns):
                text = part.rstrip("\n")
                if column + len(text) > columns:
                    line, column = line + 1, 0
                pieces.append(_Piece(line, column, text, box, box.label))
                column += len(text)
                if part.endswith("\n"):
                    line, column = line + 1, 0
        line += (1 if column else 0) + (0.4 if caption else 0)
    return pieces


def _parts(token: str, columns: int) -> list[str]:
    """A token's text in parts that fit a line; a part that ends a line ends with a newline."""
    drawable = "".join(map(_drawable, visible(token)))
    return re.findall(rf".{{1,{columns}}}\n?|\n", drawable)


@lru_cache(maxsize=4096)
def _drawable(char: str) -> str:
    """A box in place of a character that the font lacks."""
    font = get_font(findfont(FontProperties(family=_FONT)))
    return char if char == "\n" or font.get_char_index(ord(char)) else "▯"


class _Canvas:
    """Collects boxes and glyph outlines in points and draws them as a few artists.

    Outlines, because a renderer rounds the advance of hinted text to whole pixels and the boxes would not fit.
    """

    def __init__(self, axes: Axes, size: float) -> None:
        self.axes, self.size = axes, size
        self.advance, self.leading = size * _ADVANCE, size * _LEADING
        self.rectangles: dict[str, list[Path]] = {}
        self.glyphs: dict[str, list[Path]] = {}

    def head(self, panel: Panel, width: float) -> None:
        """Title on the left, colour scale on the right."""
        self._write(panel.title, 0, 0.95 * self.leading, INK, "bold", "DejaVu Sans", self.size + 2)
        scale = f"0 … {panel.limit:.2g}" if not panel.diverging else f"−{panel.limit:.2g} … {panel.limit:.2g}"
        swatches, side = panel.legend(), 0.7 * self.leading
        left = width - side * len(swatches)
        for i, (_, colour) in enumerate(swatches):
            self._rectangle(colour, left + i * side, 0.35 * self.leading, side, side)
        small = 0.75 * self.size
        self._write(scale, left - (len(scale) + 1) * small * _ADVANCE, 0.9 * self.leading, "#444444", size=small)

    def add(self, piece: _Piece) -> None:
        """One part of a token, or a caption."""
        top, box = piece.line * self.leading, piece.box
        base = top + 0.68 * self.leading
        if piece.label:
            edge = SEGMENT_COLOURS.get(piece.label, "#8C8C8C")
            self._rectangle(edge, 0, top, 0.5 * self.advance, 1.01 * self.leading)
        if box is None:
            self._write(piece.text, 1.3 * self.advance, base, "#444444", "bold", "DejaVu Sans", self.size - 1)
            return
        left, width = (piece.column + 2) * self.advance, len(piece.text) * self.advance
        if box.colour != "#ffffff":
            self._rectangle(box.colour, left, top + 0.06 * self.leading, width, 0.88 * self.leading)
        if box.rank:
            blank = (len(piece.text) - len(piece.text.lstrip())) * self.advance
            blank = 0 if blank == width else blank
            self._rectangle(INK, left + blank, top + 0.84 * self.leading, width - blank, 0.08 * self.leading)
        grey = box.folded or box.label == "context"
        self._write(piece.text, left, base, "#5c5c5c" if grey else INK, "bold" if box.rank else "normal")

    def finish(self) -> None:
        """Put everything on the axes: boxes first, text over them, underlines with the text."""
        for store, order in ((self.rectangles, 1), (self.glyphs, 2)):
            for colour, shapes in store.items():
                over = order + (colour == INK)
                self.axes.add_patch(PathPatch(Path.make_compound_path(*shapes), color=colour, lw=0, zorder=over))

    def _rectangle(self, colour: str, x: float, y: float, width: float, height: float) -> None:
        corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)]
        self.rectangles.setdefault(colour, []).append(Path(corners, closed=True))

    def _write(
        self, text: str, x: float, y: float, colour: str, weight: str = "normal", family: str = _FONT, size: float = 0
    ) -> None:
        """Outline of ``text`` with its baseline at ``y``."""
        if text.strip():
            vertices, codes = _outline(text, weight, family)
            scale = (size or self.size) / _EM
            self.glyphs.setdefault(colour, []).append(Path(vertices * (scale, -scale) + (x, y), codes))


@lru_cache(maxsize=8192)
def _outline(text: str, weight: str, family: str) -> tuple[np.ndarray, np.ndarray]:
    """Vertices [n, 2] and codes [n] of ``text`` at ``_EM`` points, baseline at 0, y upwards."""
    text = text.replace("$", r"\$")  # dollars are dollars, not mathematics
    path = TextPath((0, 0), text, size=_EM, prop=FontProperties(family=family, weight=weight), usetex=False)
    return path.vertices, path.codes
