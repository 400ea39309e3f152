"""Token heatmaps as data: which tokens are shown, with which text, colour and rank. HTML and figures draw it."""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

import numpy as np

from ..attribution import Attribution
from ..sample import Sample
from .colours import SEGMENT_NAMES, colour_of, saturation

_SIGNS = {"\n": "⏎\n", "\t": "⇥"}
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # controls, zero-width and direction marks, lone surrogates


@dataclass(frozen=True)
class TokenBox:
    """One token of a heatmap, or a run of tokens folded into one."""

    text: str
    start: int  # position in the context
    stop: int  # start + 1 unless tokens are folded
    score: float  # of a folded run the sum; NaN where the token is not scored
    label: str = ""  # segment, empty where none was given
    rank: int = 0  # 1 for the highest score; 0 outside the top k
    colour: str = "#ffffff"  # of the background

    @property
    def folded(self) -> bool:
        """Whether the box stands for a run of tokens."""
        return self.stop - self.start > 1


@dataclass(frozen=True)
class Panel:
    """One heatmap: a title and the boxes under it."""

    title: str
    boxes: list[TokenBox]
    diverging: bool  # signed scores
    limit: float  # score at which the colour saturates

    def legend(self) -> list[tuple[float, str]]:
        """Five scores over the scale, and their colours."""
        scores = np.linspace(-1 if self.diverging else 0, 1, 5) * self.limit
        return [(score, colour_of(score, self.limit, self.diverging)) for score in scores]

    def blocks(self) -> list[tuple[str, list[TokenBox]]]:
        """Runs of boxes of one segment, with a caption each (empty where boxes have no label)."""
        total = np.nansum([abs(box.score) for box in self.boxes]) or 1.0
        runs = [(label, list(run)) for label, run in groupby(self.boxes, key=lambda box: box.label)]
        return [(self._caption(label, boxes, total) if label else "", boxes) for label, boxes in runs]

    def _caption(self, label: str, boxes: list[TokenBox], total: float) -> str:
        """Name, size and share of a block."""
        n = sum(box.stop - box.start for box in boxes)
        text = f"{SEGMENT_NAMES.get(label, label)} · {n} token{'s' if n > 1 else ''}"
        scores = [box.score for box in boxes if not np.isnan(box.score)]
        if not scores:
            return f"{text} · not scored"
        if self.diverging:
            change = round(100 * sum(scores), 1) + 0.0  # no minus zero
            return f"{text} · {change:+.1f} points".replace("-", "−")
        return f"{text} · {100 * sum(scores) / total:.1f} % of the total"


def visible(text: str) -> str:
    """``text`` with everything made visible that would hide, reorder or break a line of tokens.

    Newlines become ``⏎`` and a newline; zero-width, direction, control and unpaired surrogate characters their code
    point in brackets; an empty token a middle dot. Letters of right-to-left scripts stay as they are.
    """
    if not text:
        return "·"
    return "".join(_visible(char) for char in text.replace("\r\n", "\n"))


@lru_cache(maxsize=4096)
def _visible(char: str) -> str:
    if char in _SIGNS:
        return _SIGNS[char]
    return f"⟨U+{ord(char):04X}⟩" if unicodedata.category(char) in _HIDDEN else char


def as_scores(scores: Any, n: int, diverging: bool) -> np.ndarray:
    """``scores`` as float64 [n]; NaN means "not scored".

    Raises
    ------
    ValueError
        If there is not one score per token, one is infinite, or one is negative in a sequential map.
    """
    values = np.asarray(scores.detach().cpu() if hasattr(scores, "detach") else scores, dtype=np.float64)
    if values.shape != (n,):
        raise ValueError(f"scores have shape {values.shape} for {n} tokens: give one score a token")
    if np.isinf(values).any():
        raise ValueError("scores hold an infinite value: nothing can be coloured in proportion to it")
    if not diverging and (values < 0).any():
        raise ValueError("scores hold negative values: pass diverging=True, which has a colour for them")
    return values


def top_ranks(scores: np.ndarray, labels: Sequence[str], top_k: int) -> np.ndarray:
    """Rank of each token, int64 [n]: 1 for the highest of ``scores`` [n] by magnitude, 0 outside the ``top_k``.

    Context and zero scores have no rank.
    """
    size = np.where(np.isnan(scores) | (np.asarray(labels) == "context"), 0.0, np.abs(scores))
    order, ranks = np.argsort(-size, kind="stable")[:top_k], np.zeros(len(scores), dtype=np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    ranks[size == 0] = 0
    return ranks


def shown_tokens(importance: np.ndarray, labels: Sequence[str], budget: int | None, reach: int = 5) -> np.ndarray:
    """Which tokens to show in full, bool [n]: high scores with their neighbours, and the ends of segments.

    Parameters
    ----------
    importance : float64 [n]
    labels : sequence of str, length n
        Segment of each token.
    budget : int or None
        Number of tokens to show, about; None shows all.
    reach : int
        Neighbours shown on each side of a high score, tokens.
    """
    n = len(importance)
    if budget is None or n <= budget:
        return np.ones(n, dtype=bool)
    labels = np.asarray(labels)
    context, shown = labels == "context", np.zeros(n, dtype=bool)
    for edge in (0, *np.flatnonzero(labels[1:] != labels[:-1]) + 1, n):
        shown[max(0, edge - 3) : edge + 3] = True
    shown &= ~context
    weight = np.where(context, -1.0, np.nan_to_num(np.abs(importance)))
    for i in np.argsort(-weight, kind="stable"):
        if shown.sum() >= budget or weight[i] <= 0:
            break
        shown[max(0, i - reach) : i + reach + 1] = True
    edges = np.flatnonzero(np.diff(np.concatenate([[True], shown, [True]]).astype(int)))
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        if stop - start < 8:  # folding fewer would save no room
            shown[start:stop] = True
    return shown


def _sets_scale(labels: Sequence[str]) -> np.ndarray:
    """Tokens whose scores set the colour scale, bool [n]: those of I and T, or of O where there is nothing else."""
    explaining = ~np.isin(labels, ("context", "output"))
    return explaining if explaining.any() else np.asarray(labels) != "context"


def make_panel(
    tokens: Sequence[str], scores: Any, labels: Sequence[str] | None = None, *, title: str = "",
    top_k: int = 10, diverging: bool = False, limit: float | None = None, budget: int | None = None,
    keep: np.ndarray | None = None,
) -> Panel:  # fmt: skip
    """Panel of n tokens with their ``scores`` [n] and segment ``labels``.

    Parameters
    ----------
    top_k : int
        Tokens marked by an underline.
    diverging : bool
        Signed scores.
    limit : float, optional
        Score at which the colour saturates. Default: the 99th percentile of the magnitudes in I and T, so that neither
        an attention sink nor the output, which explains itself best, bleaches all others.
    budget, keep : int or None, bool [n]
        Tokens shown in full, by default `shown_tokens` of the budget; runs of the others are folded.

    Raises
    ------
    ValueError
        As `as_scores`, and if there is not one label per token.
    """
    n = len(tokens)
    values = as_scores(scores, n, diverging)
    labels = list(labels) if labels is not None else [""] * n
    if len(labels) != n:
        raise ValueError(f"{len(labels)} labels for {n} tokens: give one segment name a token")
    if limit is None:
        limit = saturation(values[_sets_scale(labels)])
    ranks = top_ranks(values, labels, top_k)
    keep = shown_tokens(values, labels, budget) if keep is None else keep
    boxes = []
    for (in_full, label), run in groupby(range(n), key=lambda i: (bool(keep[i]), labels[i])):
        positions = list(run)
        if in_full or len(positions) == 1:
            for i in positions:
                colour = colour_of(values[i], limit, diverging)
                boxes.append(TokenBox(tokens[i], i, i + 1, values[i], label, int(ranks[i]), colour))
        else:  # the sum of those that are scored
            score = math.nan if np.isnan(values[positions]).all() else float(np.nansum(values[positions]))
            boxes.append(TokenBox(f" [… {len(positions)} tokens …] ", positions[0], positions[-1] + 1, score, label))
    return Panel(title, boxes, diverging, limit)


def hop_panels(sample: Sample, attribution: Attribution, *, top_k: int = 10, budget: int | None = None) -> list[Panel]:
    """Hop 0, hop 1 and their difference, as in Fig. 3, where the paper counts them as Hop 1 and Hop 2.

    The hops share one colour scale and show the same tokens. Where T is empty there is hop 0 alone.

    Raises
    ------
    ValueError
        If the method has no hops or the sample no display tokens.
    """
    if not attribution.hops:
        raise ValueError(f"{attribution.method} has no hops to show: use a method that recurses, such as FlashTrace")
    if sample.tokens is None:
        raise ValueError(f"sample {sample.id} has no display tokens: build it with text.build_sample, or set tokens")
    labels = sample.segments.labels(len(sample))
    values = [as_scores(hop.scores, len(sample), False) for hop in attribution.hops[:2]]  # [N] each
    keep = shown_tokens(np.max(values, axis=0), labels, budget)
    limit = saturation(*(v[_sets_scale(labels)] for v in values))
    panel = partial(make_panel, sample.tokens, labels=labels, top_k=top_k, keep=keep)
    titles = ("Hop 0 (explains O)", "Hop 1 (explains T)")
    panels = [panel(scores, title=title, limit=limit) for title, scores in zip(titles, values, strict=False)]
    if len(values) == 2:
        panels.append(panel(values[1] - values[0], title="Δ (Hop 1 − Hop 0)", diverging=True))
    return panels
