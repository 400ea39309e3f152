"""Token heatmaps as HTML: inline styles and tooltips, no ids, no scripts, the same bytes every time.

GitHub strips the styles, so keep a figure of each (`heatmap_figure`, `hops_figure`) beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from ..attribution import Attribution
from ..sample import Sample
from .colours import INK, SEGMENT_COLOURS
from .figure import heatmap_figure, hops_figure
from .tokens import Cell, Panel, as_scores, colour_of, hop_panels, make_panel, shown_tokens, visible

__all__ = ["heatmap_figure", "hops_figure", "hops_heatmap", "token_heatmap"]

_BOX = f"background:#ffffff;color:{INK};font:13px/1.7 monospace;padding:8px;overflow-wrap:anywhere"
_TOKENS = "white-space:pre-wrap;unicode-bidi:plaintext"  # each line runs as its own first letter does
_TOP = "text-decoration:underline 2px;font-weight:bold"


def token_heatmap(
    tokens: Sequence[str],
    scores: Any,
    *,
    labels: Sequence[str] | None = None,
    top_k: int = 10,
    title: str = "",
    diverging: bool = False,
    budget: int | None = None,
) -> str:
    """Heatmap of tokens as HTML.

    Parameters
    ----------
    tokens : sequence of str, length n
        Display text; any text is safe.
    scores : array or tensor, shape [n]
        NaN: not scored. The colour grows linearly up to the 99th percentile of the magnitudes.
    labels : sequence of str, length n, optional
        Segment of each token (``Segments.labels``); segments are set apart and named.
    top_k : int
        Highest scores outside the context, underlined.
    title : str
        Heading.
    diverging : bool
        Signed scores: teal above zero, brown below.
    budget : int, optional
        Show about this many tokens and fold runs of low scores. Default: show all.

    Returns
    -------
    str
        One ``<div>``.

    Raises
    ------
    ValueError
        If lengths differ, a score is infinite, or one is negative without ``diverging``.
    """
    values = as_scores(scores, len(tokens), diverging)
    keep = shown_tokens(values, labels if labels is not None else [""] * len(tokens), budget)
    return _wrap([make_panel(title, tokens, values, labels, top_k=top_k, diverging=diverging, keep=keep)])


def hops_heatmap(sample: Sample, attribution: Attribution, *, top_k: int = 10, budget: int | None = None) -> str:
    """Hop 1, hop 2 and their difference side by side, as HTML (Fig. 3).

    Parameters
    ----------
    sample : Sample
        With display tokens.
    attribution : Attribution
        With hops. ``attribution.hops[0]`` is the paper's Hop 1.
    top_k, budget
        See `token_heatmap`.

    Returns
    -------
    str
        One ``<div>``.

    Raises
    ------
    ValueError
        If there are no hops or no display tokens.
    """
    return _wrap(hop_panels(sample, attribution, top_k=top_k, budget=budget))


def _wrap(panels: list[Panel]) -> str:
    """Panels side by side in one box."""
    width = f"flex:1 1 {90 // len(panels)}%;min-width:220px"
    body = "".join(f'<div style="{width}">{_panel(panel)}</div>' for panel in panels)
    return f'<div style="{_BOX};display:flex;flex-wrap:wrap;gap:16px">{body}</div>'


def _panel(panel: Panel) -> str:
    """Title, legend and blocks of one panel."""
    title = f'<div style="font-weight:bold">{escape(visible(panel.title))}</div>' if panel.title else ""
    blocks = "".join(_block(caption, cells) for caption, cells in panel.blocks())
    return title + _legend(panel) + blocks


def _legend(panel: Panel) -> str:
    """Colour scale in words and swatches."""
    marks = np.linspace(-1 if panel.diverging else 0, 1, 5) * panel.limit
    swatches = "".join(
        f'<span style="background:{colour_of(m, panel.limit, panel.diverging)};padding:0 4px">{m:.1e}</span>'
        for m in marks
    )
    return f'<div style="font-size:10px">{swatches} underlined: highest scores</div>'


def _block(caption: str, cells: list[Cell]) -> str:
    """One segment, set apart by a coloured edge and its name."""
    colour = SEGMENT_COLOURS.get(cells[0].label, "#8C8C8C")
    edge = f"border-left:4px solid {colour};padding-left:6px;margin-top:6px"
    name = f'<div style="font-size:10px;font-weight:bold">{escape(caption)}</div>' if caption else ""
    return f'<div style="{edge}">{name}<div style="{_TOKENS}">{"".join(map(_token, cells))}</div></div>'


def _token(cell: Cell) -> str:
    """One token with its tooltip."""
    score = "not scored" if np.isnan(cell.score) else f"score {cell.score:.3g}"
    where = f"tokens {cell.start}–{cell.stop - 1}" if cell.folded else f"token {cell.start}"
    rank = f" · rank {cell.rank}" if cell.rank else ""
    tip = escape(f"{where} · {score}{rank}" + (f" · {cell.label}" if cell.label else ""))
    style = ["color:#5c5c5c"] if cell.folded else []
    if cell.colour != "#ffffff":
        style.append(f"background:{cell.colour}")
    if cell.rank:
        style.append(_TOP)
    look = f' style="{";".join(style)}"' if style else ""
    return f'<span{look} title="{tip}">{escape(visible(cell.text))}</span>'
