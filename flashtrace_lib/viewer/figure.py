"""Token heatmaps as matplotlib figures: the text flows in lines, a coloured box behind every token."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import Rectangle

from ..attribution import Attribution
from ..sample import Sample
from .colours import INK, SEGMENT_COLOURS, WIDTH, rc_params
from .tokens import Panel, TokenBox, hop_panels, make_panel, visible

_FONT = "DejaVu Sans Mono"  # comes with matplotlib; every glyph is 0.602 em wide
_ADVANCE = 0.602
_LEADING = 1.55  # line height, em
_TITLE_LINES = 1.8


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
    """Hop 0, hop 1 and their difference side by side (Fig. 3); parameters as `heatmap_figure`."""
    return _draw(hop_panels(sample, attribution, top_k=top_k, budget=budget), width)


def _draw(panels: list[Panel], width: float, size: float = 7.0) -> Figure:
    """Lay every panel out in its column and draw it; axes are in points, y downwards."""
    gap = 0.2  # inches between and around panels
    column = (width - gap * (len(panels) + 1)) / len(panels)
    columns = int(column * 72 / (size * _ADVANCE)) - 2  # two characters for the coloured edge
    if columns < 40:
        raise ValueError(f"width {width} in leaves {columns} characters a panel: make the figure wider")
    layouts = [_layout(panel, columns) for panel in panels]
    height = (max(pieces[-1].line for pieces in layouts) + 1.2) * size * _LEADING / 72  # inches
    total = height + 2 * gap
    with mpl.rc_context(rc_params()):
        figure = Figure(figsize=(width, total), layout="none")
        for k, (panel, pieces) in enumerate(zip(panels, layouts, strict=True)):
            axes = figure.add_axes(((gap + k * (column + gap)) / width, gap / total, column / width, height / total))
            axes.set(xlim=(0, column * 72), ylim=(height * 72, 0))
            axes.set_axis_off()
            _draw_panel(axes, panel, pieces, column * 72, size)
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
    return re.findall(rf".{{1,{columns}}}\n?|\n", "".join(map(_drawable, visible(token))))


@lru_cache(maxsize=4096)
def _drawable(char: str) -> str:
    """A box in place of a character that the font lacks."""
    return char if char == "\n" or get_font(findfont(FontProperties(family=_FONT))).get_char_index(ord(char)) else "▯"


def _draw_panel(axes: Axes, panel: Panel, pieces: list[_Piece], width: float, size: float) -> None:
    """Title on the left, colour scale on the right, and every part of a token in its place; in points."""
    advance, leading = size * _ADVANCE, size * _LEADING

    def write(
        text: str, x: float, y: float, colour: str = INK, font: str = _FONT, points: float = size, **style
    ) -> None:
        text = text.replace("$", r"\$")  # dollars are dollars, not mathematics
        axes.text(x, y, text, color=colour, family=font, fontsize=points, va="baseline", **style)

    def fill(colour: str, x: float, y: float, width: float, height: float) -> None:
        axes.add_patch(Rectangle((x, y), width, height, color=colour, lw=0))

    write(panel.title, 0, 0.95 * leading, font="DejaVu Sans", points=size + 2, weight="bold")
    side, swatches = 0.7 * leading, panel.legend()
    left = width - side * len(swatches)
    for i, (_, colour) in enumerate(swatches):
        fill(colour, left + i * side, 0.35 * leading, side, side)
    scale = f"0 … {panel.limit:.2g}" if not panel.diverging else f"−{panel.limit:.2g} … {panel.limit:.2g}"
    write(scale, left - size, 0.9 * leading, "#444444", points=0.75 * size, ha="right")
    for piece in pieces:
        top, box = piece.line * leading, piece.box
        base = top + 0.68 * leading
        if piece.label:
            fill(SEGMENT_COLOURS.get(piece.label, "#8C8C8C"), 0, top, 0.5 * advance, 1.01 * leading)
        if box is None:
            write(piece.text, 1.3 * advance, base, "#444444", "DejaVu Sans", size - 1, weight="bold")
            continue
        left, length = (piece.column + 2) * advance, len(piece.text) * advance
        if box.colour != "#ffffff":
            fill(box.colour, left, top + 0.06 * leading, length, 0.88 * leading)
        blank = (len(piece.text) - len(piece.text.lstrip())) * advance if piece.text.strip() else 0
        if box.rank:
            fill(INK, left + blank, top + 0.84 * leading, length - blank, 0.08 * leading)
        grey = box.folded or box.label == "context"
        # A renderer rounds the advance of letters to pixels: each token begins where its box does.
        write(
            piece.text.lstrip(), left + blank, base, "#5c5c5c" if grey else INK, weight="bold" if box.rank else "normal"
        )
