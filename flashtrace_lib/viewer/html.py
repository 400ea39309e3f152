"""Token heatmaps as HTML: inline styles and tooltips, no ids, no scripts, the same bytes every time.

GitHub strips the styles, so keep a figure of each (`heatmap_figure`, `hops_figure`) beside it.
"""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from .colours import INK, SEGMENT_COLOURS
from .figure import heatmap_figure, hops_figure
from .tokens import Panel, TokenBox, make_panel, visible

__all__ = ["heatmap_figure", "hops_figure", "token_heatmap"]

_BOX = f"background:#ffffff;color:{INK};font:13px/1.7 monospace;padding:8px;overflow-wrap:anywhere"
_TOKENS = "white-space:pre-wrap;unicode-bidi:plaintext"  # each line runs as its own first letter does
_TOP = "text-decoration:underline 2px;font-weight:bold"


def token_heatmap(tokens: Sequence[str], scores: Any, **options: Any) -> str:
    """Heatmap of tokens as HTML, one ``<div>``.

    Parameters
    ----------
    tokens : sequence of str, length n
        Display text; any text is safe.
    scores : array or tensor, shape [n]
        NaN: not scored. The colour grows linearly up to the 99th percentile of the magnitudes.
    **options
        ``title, labels, top_k, diverging, budget`` of `tokens.make_panel`, which checks them.
    """
    return _wrap([make_panel(tokens, scores, **options)])


def _wrap(panels: list[Panel]) -> str:
    """Panels side by side in one box."""
    width = f"flex:1 1 {90 // len(panels)}%;min-width:220px"
    body = "".join(f'<div style="{width}">{_panel(panel)}</div>' for panel in panels)
    return f'<div style="{_BOX};display:flex;flex-wrap:wrap;gap:16px">{body}</div>'


def _panel(panel: Panel) -> str:
    """Title, legend and blocks of one panel."""
    title = f'<div style="font-weight:bold">{escape(visible(panel.title))}</div>' if panel.title else ""
    blocks = "".join(_block(caption, boxes) for caption, boxes in panel.blocks())
    swatch = '<span style="background:{1};padding:0 4px">{0:.2g}</span>'.format
    swatches = "".join(swatch(score, colour) for score, colour in panel.legend())
    return f'{title}<div style="font-size:10px">{swatches} underlined: highest scores</div>{blocks}'


def _block(caption: str, boxes: list[TokenBox]) -> str:
    """One segment, set apart by a coloured edge and its name."""
    colour = SEGMENT_COLOURS.get(boxes[0].label, "#8C8C8C")
    edge = f"border-left:4px solid {colour};padding-left:6px;margin-top:6px"
    name = f'<div style="font-size:10px;font-weight:bold">{escape(caption)}</div>' if caption else ""
    return f'<div style="{edge}">{name}<div style="{_TOKENS}">{"".join(map(_token, boxes))}</div></div>'


def _token(box: TokenBox) -> str:
    """One token with its tooltip."""
    score = "not scored" if np.isnan(box.score) else f"score {box.score:.3g}"
    where = f"tokens {box.start}–{box.stop - 1}" if box.folded else f"token {box.start}"
    rank = f" · rank {box.rank}" if box.rank else ""
    tip = escape(f"{where} · {score}{rank}" + (f" · {box.label}" if box.label else ""))
    styles = {"color:#5c5c5c": box.folded, f"background:{box.colour}": box.colour != "#ffffff", _TOP: box.rank}
    style = ";".join(style for style, applies in styles.items() if applies)
    attribute = f' style="{style}"' if style else ""
    return f'<span{attribute} title="{tip}">{escape(visible(box.text))}</span>'
