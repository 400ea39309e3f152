"""A trace as one HTML page: a reader chooses a sentence of the response and sees its scores.

The page holds its text, its quantised scores and its script; a content security policy keeps it from loading anything
and from running any script but its own. Text enters as JSON and is drawn as text nodes, so no prompt can become markup.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np
import torch

from ..attribution import Attribution, holds_copies
from ..sample import Sample, Span
from .cautions import cautions
from .colours import SEGMENT_NAMES
from .message_shares import parts
from .tokens import visible

# One after the other, as one script.
_PARTS = "scores units lines page methods export picture events"
SCRIPTS = tuple(f"trace_{part}.js" for part in _PARTS.split())
STEPS, DECADES = 2**17 - 1, 6  # of the quantised scores
_ALPHABET = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))


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

    html: str = field(repr=False)
    title: str
    height: int

    def __post_init__(self) -> None:
        if not isinstance(self.height, int) or self.height < 200:
            raise ValueError(f"height must be a whole number of at least 200 pixels, got {self.height!r}")

    def _repr_html_(self) -> str:
        title = " ".join(visible(self.title).replace("⏎", " ").split())
        # References for all that is not ASCII: a host page read in another encoding would change the script, whose hash
        # the page's policy holds, and the frame would stay empty.
        page = escape(self.html).encode("ascii", "xmlcharrefreplace").decode("ascii")
        style = f"box-sizing:border-box;width:100%;height:{self.height}px;border:1px solid #8c8c8c;border-radius:6px"
        return (
            f'<iframe title="{escape(title)}" sandbox="allow-scripts allow-forms allow-downloads" '
            f'allow="clipboard-write" style="{style}" srcdoc="{page}"></iframe>'
        )


def trace_page(sample: Sample, targets: Sequence[tuple[Span, Attribution]], title: str, verified: str = "") -> str:
    """The page as HTML.

    Parameters
    ----------
    targets : sequence of ((int, int), Attribution)
        Passages that a reader may choose: tokens of the response and the attribution of ``sample.with_output(span)``.
        The whole answer first, then the sentences of the response.
    title, verified : str
        The method and, after " · ", the model; what a verification found, above the text.

    Raises
    ------
    ValueError
        If the sample has no display tokens.
    """
    if sample.tokens is None:
        raise ValueError(f"sample {sample.id} has no display tokens: build it with text.build_sample, or set tokens")
    method, title = visible(title.split(" · ")[0]), escape(visible(title))
    form = sample.metadata.get("format")
    told = f" · reasoning and answer told apart by: {escape(visible(form))}" if form else ""
    script = "".join(_read(name) for name in SCRIPTS)
    data = json.dumps(_payload(sample, targets, method), ensure_ascii=False, separators=(",", ":"))
    return Template(_read("page_head.html") + _read("trace_page.html")).substitute(
        title=title,
        about=f"{title} · {len(sample)} tokens{told}",
        verified=f'<section id="verified" aria-label="Verification">{escape(verified)}</section>' if verified else "",
        style=_read("trace_page.css"),
        data=data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"),  # ends no element
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii"),
    )


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


def _payload(sample: Sample, targets: Sequence[tuple[Span, Attribution]], method: str) -> dict[str, Any]:
    """Data of the script; trace_scores.js describes its fields."""
    first = sample.segments.prompt[0]
    return {
        "method": method,
        "tokens": [visible(token) if token else "" for token in sample.tokens],
        "parts": [
            {"name": visible(SEGMENT_NAMES.get(part.name, part.name)), "kind": part.kind, "span": list(part.span)}
            for part in parts(sample)
        ],
        "response": list(sample.response),
        "blank": [i for i, says in enumerate(sample.not_blank) if not says],
        "sentences": [list(span) for span in sorted(sample.sentences or ())],
        "targets": [
            {
                "span": list(span),
                "notes": cautions(sample.with_output(span), attribution),
                "copies": holds_copies(attribution.metadata),
                "scores": quantised(attribution.scores, first),
                # Attention is causal: nothing behind the passage has a score.
                "hops": [quantised(hop.scores[: span[1]]) for hop in attribution.hops],
                "others": [
                    {**other, "name": visible(name), "scores": quantised(torch.tensor(other["scores"]), first)}
                    for name, other in attribution.metadata.get("compared", {}).items()
                ],
            }
            for span, attribution in targets
        ],
    }


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
