"""What the HTML and the matplotlib heatmap share: which tokens are shown, how, and in which colour."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex

from ..attribution import Attribution
from ..sample import Sample
from .colours import DIVERGING, DIVERGING_RANGE, SEGMENT_NAMES, SEQUENTIAL, SEQUENTIAL_RANGE

_LEVELS = 24  # colours are steps, so that the last digit of a score cannot change a stored output
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # controls, zero-width and direction marks, lone surrogates


@dataclass(frozen=True)
class Cell:
    """One token of a heatmap, or a run of tokens folded into one.

    Parameters
    ----------
    text : str
        The token's own text.
    start, stop : int
        Positions in the context; ``stop - start`` is 1 unless tokens are folded.
    score : float
        Score of the token, or the sum of a folded run; NaN where the token is not scored.
    label : str
        Segment, or ``""`` where none was given.
    rank : int
        1 for the highest score; 0 outside the top k.
    colour : str
        Background, ``#rrggbb``.
    """

    text: str
    start: int
    stop: int
    score: float
    label: str
    rank: int
    colour: str

    @property
    def folded(self) -> bool:
        """Whether the cell stands for a run of tokens."""
        return self.stop - self.start > 1


@dataclass(frozen=True)
class Panel:
    """One heatmap: a title and the cells under it."""

    title: str
    cells: list[Cell]
    diverging: bool
    limit: float  # score at which the colour saturates

    def blocks(self) -> list[tuple[str, list[Cell]]]:
        """Runs of cells of one segment, with a caption each (empty where cells have no label)."""
        total = np.nansum([abs(cell.score) for cell in self.cells]) or 1.0
        out = []
        for label, run in groupby(self.cells, key=lambda cell: cell.label):
            cells = list(run)
            out.append((self._caption(label, cells, total) if label else "", cells))
        return out

    def _caption(self, label: str, cells: list[Cell], total: float) -> str:
        """Name, size and share of a block."""
        n = sum(cell.stop - cell.start for cell in cells)
        text = f"{SEGMENT_NAMES.get(label, label)} · {n} token{'s' if n > 1 else ''}"
        scores = [cell.score for cell in cells if not np.isnan(cell.score)]
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
    out = []
    for char in text.replace("\r\n", "\n"):
        if char == "\n":
            out.append("⏎\n")
        elif char == "\t":
            out.append("⇥")
        elif unicodedata.category(char) in _HIDDEN:
            out.append(f"⟨U+{ord(char):04X}⟩")
        else:
            out.append(char)
    return "".join(out)


def colour_of(score: float, limit: float, diverging: bool) -> str:
    """Background of a score: a step of the colour map, in the part of it that dark text can be read on."""
    if np.isnan(score):
        return "#ffffff"
    share = float(np.clip(score / limit, -1, 1)) if limit > 0 else 0.0
    low, high = DIVERGING_RANGE if diverging else SEQUENTIAL_RANGE
    where = (share + 1) / 2 if diverging else share
    where = round(where * _LEVELS) / _LEVELS
    if where == (0.5 if diverging else 0.0):
        return "#ffffff"
    return to_hex(mpl.colormaps[DIVERGING if diverging else SEQUENTIAL](low + where * (high - low)))


def as_scores(scores: Any, n: int, diverging: bool) -> np.ndarray:
    """``scores`` as float64 [n]; NaN means "not scored".

    Raises
    ------
    ValueError
        If there is not one score a token, one is infinite, or one is negative in a sequential map.
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
    """Rank (1 = highest magnitude) of the ``top_k`` tokens, 0 elsewhere; context and zero scores get none.

    Parameters
    ----------
    scores : float64 [n]
    labels : n segment names, or empty strings
    top_k : int

    Returns
    -------
    int64 [n]
    """
    free = np.array([label == "context" for label in labels], dtype=bool)
    size = np.where(np.isnan(scores) | free, 0.0, np.abs(scores))
    order = np.argsort(-size, kind="stable")[:top_k]
    ranks = np.zeros(len(scores), dtype=np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    ranks[size == 0] = 0
    return ranks


def shown_tokens(importance: np.ndarray, labels: Sequence[str], budget: int | None, reach: int = 5) -> np.ndarray:
    """Which tokens to show in full when at most about ``budget`` fit: high scores and their neighbours, segment ends.

    Parameters
    ----------
    importance : float64 [n]
    labels : n segment names
    budget : int or None
        None shows everything.
    reach : int
        Neighbours kept on each side of a high score, tokens.

    Returns
    -------
    bool [n]
    """
    n = len(importance)
    if budget is None or n <= budget:
        return np.ones(n, dtype=bool)
    keep = np.zeros(n, dtype=bool)
    for i in range(n):
        inner = labels[max(0, i - 3) : i + 4]
        keep[i] = labels[i] != "context" and (len(set(inner)) > 1 or i < 3 or i >= n - 3)
    weight = np.where([label == "context" for label in labels], -1.0, np.nan_to_num(np.abs(importance)))
    for i in np.argsort(-weight, kind="stable"):
        if keep.sum() >= budget or weight[i] <= 0:
            break
        keep[max(0, i - reach) : i + reach + 1] = True
    edges = np.flatnonzero(np.diff(np.concatenate([[True], keep, [True]]).astype(int)))
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        if stop - start < 8:  # folding fewer would save no room
            keep[start:stop] = True
    return keep


def make_panel(
    title: str,
    tokens: Sequence[str],
    scores: np.ndarray,
    labels: Sequence[str] | None = None,
    *,
    top_k: int = 10,
    diverging: bool = False,
    limit: float | None = None,
    keep: np.ndarray | None = None,
) -> Panel:
    """Cells of one heatmap.

    Parameters
    ----------
    title : str
    tokens : n texts
    scores : [n]
    labels : n segment names, optional
    top_k : int
        Tokens marked by an underline.
    diverging : bool
        Signed scores.
    limit : float, optional
        Score at which the colour saturates. Default: the 99th percentile of the magnitudes outside the context,
        so that an attention sink does not bleach all others.
    keep : bool [n], optional
        Tokens shown in full; runs of the others are folded.
    """
    values = as_scores(scores, len(tokens), diverging)
    labels = list(labels) if labels is not None else [""] * len(tokens)
    if len(labels) != len(tokens):
        raise ValueError(f"{len(labels)} labels for {len(tokens)} tokens: give one segment name a token")
    scored = np.array([label != "context" for label in labels], dtype=bool)
    limit = saturation(values[scored]) if limit is None else limit
    ranks = top_ranks(values, labels, top_k)
    keep = np.ones(len(tokens), dtype=bool) if keep is None else keep
    cells = []
    for (kept, label), run in groupby(range(len(tokens)), key=lambda i: (bool(keep[i]), labels[i])):
        where = list(run)
        if kept or len(where) == 1:
            cells += [
                Cell(tokens[i], i, i + 1, values[i], label, int(ranks[i]), colour_of(values[i], limit, diverging))
                for i in where
            ]
        else:
            scored = values[where][~np.isnan(values[where])]
            score = float(scored.sum()) if len(scored) else float("nan")
            cells.append(Cell(f" [… {len(where)} tokens …] ", where[0], where[-1] + 1, score, label, 0, "#ffffff"))
    return Panel(title, cells, diverging, limit)


def saturation(*scores: np.ndarray) -> float:
    """Largest 99th percentile of the magnitudes (the maximum, for fewer than 100 tokens)."""
    found = [np.abs(values[~np.isnan(values)]) for values in scores]
    return max((float(v.max() if len(v) < 100 else np.quantile(v, 0.99)) for v in found if len(v)), default=0.0)


def hop_panels(sample: Sample, attribution: Attribution, *, top_k: int = 10, budget: int | None = None) -> list[Panel]:
    """Hop 1, hop 2 and their difference, as in Fig. 3; the paper counts the hop with index 0 as Hop 1.

    The hops share one colour scale and show the same tokens. Where T is empty there is hop 1 alone.

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
    values = [as_scores(hop.scores, len(sample), False) for hop in attribution.hops[:2]]
    scored = np.array([label != "context" for label in labels], dtype=bool)
    limit = saturation(*(v[scored] for v in values))
    keep = shown_tokens(np.max(values, axis=0), labels, budget)
    names = ["Hop 1 (explains O)", "Hop 2 (explains T)"]
    shared = {"labels": labels, "top_k": top_k, "keep": keep}
    panels = [make_panel(name, sample.tokens, v, limit=limit, **shared) for name, v in zip(names, values, strict=False)]
    if len(values) == 2:
        change = values[1] - values[0]
        panels.append(
            make_panel(
                "Δ (Hop 2 − Hop 1)", sample.tokens, change, diverging=True, limit=saturation(change[scored]), **shared
            )
        )
    return panels
