"""A trace as one HTML page: a reader chooses a sentence of the response and sees its scores.

The page holds its text, its quantised scores and its script; a content security policy keeps it from loading anything
and from running any script but its own. Text enters as JSON and is drawn as text nodes, so no prompt can become markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np
import torch

from ..attribution import Attribution, holds_copies
from ..sample import Sample, Span
from .colours import SEGMENT_NAMES
from .message_shares import Part
from .tokens import visible

# One after the other, as one script.
SCRIPTS = ("trace_scores.js", "trace_units.js", "trace_page.js", "trace_export.js", "trace_picture.js",
           "trace_events.js")  # fmt: skip
STEPS, DECADES = 2**17 - 1, 6  # of the quantised scores
_ALPHABET = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))


@dataclass(frozen=True)
class PageTarget:
    """A passage that a reader may choose, and its attribution."""

    span: Span  # tokens of the response
    attribution: Attribution  # of ``sample.with_output(span)``
    notes: list[str]  # reasons to doubt its scores


@dataclass(frozen=True)
class EmbeddedPage:
    """A page in a frame of its own: what a notebook, or the HTML made of it, shows of a trace.

    The frame is sandboxed: the page's script runs in it and reaches neither the notebook nor the network.

    Parameters
    ----------
    html : str
        The page as `trace_page` writes it.
    title : str
        Name of the frame, for those who hear the page.
    height : int
        Pixels.
    """

    html: str
    title: str
    height: int

    def __post_init__(self) -> None:
        if not isinstance(self.height, int) or self.height < 200:
            raise ValueError(f"height must be a whole number of at least 200 pixels, got {self.height!r}")

    def _repr_html_(self) -> str:
        title = " ".join(visible(self.title).replace("⏎", " ").split())
        style = f"box-sizing:border-box;width:100%;height:{self.height}px;border:1px solid #8c8c8c;border-radius:6px"
        return (
            f'<iframe title="{escape(title)}" sandbox="allow-scripts allow-forms allow-downloads" '
            f'allow="clipboard-write" style="{style}" srcdoc="{_ascii(escape(self.html))}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"EmbeddedPage({self.title!r})"


def _ascii(text: str) -> str:
    """References for all that is not ASCII: a host page read in another encoding would change the script, whose hash
    the page's policy holds, and the frame would stay empty.
    """
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def trace_page(sample: Sample, parts: Sequence[Part], targets: Sequence[PageTarget], model_name: str) -> str:
    """The page as HTML.

    Parameters
    ----------
    parts : sequence of Part
        Messages, reasoning, answer and template, as they tile the context (`message_shares.parts`).
    targets : sequence of PageTarget
        The whole answer first, then the sentences of the response.

    Raises
    ------
    ValueError
        If the sample has no display tokens.
    """
    if sample.tokens is None:
        raise ValueError(f"sample {sample.id} has no display tokens: build it with text.build_sample, or set tokens")
    method = targets[0].attribution.method
    return fill_page(
        _read("trace_page.html"),
        shared_style(),
        "".join(_read(name) for name in SCRIPTS),
        _payload(sample, parts, targets),
        title=f"{method} · {model_name}",
        about=f"{method} · {model_name} · {len(sample)} tokens",
    )


def fill_page(body: str, style: str, script: str, data: dict[str, Any], **texts: str) -> str:
    """A page that holds all it needs: its policy allows one script, by hash, and no request.

    Parameters
    ----------
    body : str
        HTML from ``<body>`` on, with ``$script``, ``$data`` and the names of ``texts``; ``title`` is always one.
    style, script : str
        CSS and JavaScript, as they stand in the page.
    data : dict
        What the script reads from the JSON element ``#data``.
    **texts : str
        Plain text; whatever it holds is shown, never run.
    """
    return Template(_read("page_head.html") + body).substitute(
        {name: escape(visible(text)) for name, text in texts.items()},
        style=style,
        data=_as_script_data(data),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii"),
    )


def shared_style() -> str:
    """CSS of the page of a trace: colours of scores and segments, light and dark."""
    return _read("trace_page.css")


def quantised(scores: torch.Tensor, first: int = 0) -> dict[str, Any]:
    """Scores as three letters each: a sign and 131071 logarithmic steps, from a millionth of the largest up to it.

    The relative error is at most 0.006 %, fine enough to rank as the scores do; magnitudes below a millionth of the
    largest become zero.

    Parameters
    ----------
    scores : torch.Tensor, shape [n]
    first : int
        Position of the first score in the context.

    Returns
    -------
    dict
        ``from, max, codes``, JSON-ready.
    """
    values = scores.detach().double().cpu().numpy()
    size = np.abs(values)
    largest = float(f"{size.max(initial=0.0):.9g}")
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.round(STEPS + np.log10(size / largest) * (STEPS - 1) / DECADES)
    steps = np.where(size > 0, np.clip(steps, 0, STEPS), 0).astype(np.int64)
    codes = steps + (STEPS + 1) * ((values < 0) & (steps > 0))
    letters = _ALPHABET[np.stack([codes // 64**2, codes // 64 % 64, codes % 64], axis=1)]
    return {"from": first, "max": largest, "codes": "".join(letters.ravel())}


def _payload(sample: Sample, parts: Sequence[Part], targets: Sequence[PageTarget]) -> dict[str, Any]:
    """Data of the script; trace_scores.js describes its fields."""
    return {
        "tokens": [visible(token) if token else "" for token in sample.tokens],
        "parts": [
            {"name": visible(SEGMENT_NAMES.get(part.name, part.name)), "kind": part.kind, "span": list(part.span)}
            for part in parts
        ],
        "response": list(sample.response),
        "sentences": [list(span) for span in sorted(sample.sentences or ())],
        "targets": [
            {
                "span": list(target.span),
                "notes": target.notes,
                "copies": holds_copies(target.attribution.metadata),
                "scores": quantised(target.attribution.scores, sample.segments.prompt[0]),
                # Attention is causal: nothing behind the passage has a score.
                "hops": [quantised(hop.scores[: target.span[1]]) for hop in target.attribution.hops],
            }
            for target in targets
        ],
    }


def _as_script_data(payload: dict[str, Any]) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
