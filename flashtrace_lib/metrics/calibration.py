"""RISE on a scale of its own sample: 0 is a random ranking, 1 the best that can be reached.

How far a likelihood can fall, and how soon, differs by sample and by model, so that raw areas under deletion curves do
not compare across them (Edin et al. 2025, "Normalized AOPC", arXiv 2408.08137).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from tqdm import tqdm

from ..sample import Sample, Span
from .curve import is_flagged, normalise_response, rise
from .deletion import Scorer

MOST_SENTENCES = 12  # a beam of five then scores some 340 contexts


def rise_floor(steps: int = 20) -> float:
    """Lowest RISE of any curve on ``steps`` groups, 1 / (2 K): all is lost with the first group."""
    if steps < 1:
        raise ValueError(f"need at least one step, got {steps}")
    return 1 / (2 * steps)


def calibrated(value: float, random: float, best: float | None = None) -> float:
    """Random-calibrated RISE: (random - value) / (random - best), for RISE or any other area where lower is better.

    Parameters
    ----------
    value : float
        Of the method.
    random : float
        Mean over random rankings of the same sample, ten or more.
    best : float, optional
        Lowest value to be reached on the sample, such as `best_order` finds. Default: `rise_floor` of 20 steps, which
        few samples allow; the scale is then the same, and the numbers lower.

    Returns
    -------
    float
        0 for a random ranking, 1 for the best, negative for worse than random; above 1 where ``best`` was not the best.
        NaN where ``random`` is not above ``best``: nothing lies between the two to be explained.
    """
    best = rise_floor() if best is None else best
    return (random - value) / (random - best) if random > best else math.nan


@dataclass
class BestOrder:
    """The order of sentences that loses the response soonest, as `best_order` found it.

    Parameters
    ----------
    order : list of int
        Indices into the sentences, the first masked first.
    scores : torch.DoubleTensor, shape [|I|]
        Scores of the tokens of I that rank them in this order.
    area : float
        Under the normalised response, over the share of I that is masked, a point after each sentence.
    rise : float
        RISE of ``scores`` on the grid of `deletion_curve`: what the ``best`` of `calibrated` asks for.
    contexts : int
        Contexts that the search and the curve scored.
    """

    order: list[int]
    scores: torch.Tensor
    area: float
    rise: float
    contexts: int


def best_order(
    scorer: Scorer, sample: Sample, beam: int = 5, spans: Iterable[Span] | None = None, steps: int = 20
) -> BestOrder:
    """Search the order in which to mask the sentences of I so that the response is lost soonest.

    Beam search over the orders: after each sentence the ``beam`` beginnings stay that would have the smallest area if
    the response fell no further. Exact where the beam holds all orders; each set of masked sentences is scored once.

    Parameters
    ----------
    scorer : Scorer
        Scores the contexts, in its arithmetic.
    sample : Sample
        Must have a ``mask_token_id``.
    beam : int
        Beginnings that are kept.
    spans : iterable of (int, int), optional
        Token ranges of the context to order, at most 12, such as ``sample.sources``; what they leave of I is masked
        last. Default: the sentences of I.
    steps : int
        Groups of the curve of the order that was found.

    Returns
    -------
    BestOrder
        Of a sample whose likelihood masking does not lower (`is_flagged`), the order of the text with RISE 1.

    Raises
    ------
    ValueError
        If there are no sentences or more than 12, spans overlap or leave I, the beam is not positive or the sample has
        no mask token.
    """
    if beam < 1:
        raise ValueError(f"beam is a number of orders to keep, 1 or more, got {beam}")
    before = scorer.n_contexts
    spans = _checked(sample, sample.sentences_in(sample.segments.prompt) if spans is None else spans)
    found = _search(_Responses(scorer, sample, spans), beam)
    order = list(found.order[:-1])
    scores = torch.zeros(len(sample.prompt_ids), dtype=torch.float64)
    first = sample.segments.prompt[0]
    for rank, unit in enumerate(order):
        scores[spans[unit][0] - first : spans[unit][1] - first] = len(spans) - rank
    reached = rise(normalise_response(scorer.curve(sample, scores, steps).log_probs))
    return BestOrder(order, scores, found.area, reached, scorer.n_contexts - before)


def _checked(sample: Sample, spans: Iterable[Span]) -> list[Span]:
    """The spans in the order of the text, if they can be ordered."""
    spans = sorted((int(start), int(stop)) for start, stop in spans)
    if not spans:
        raise ValueError(
            f"sample {sample.id} has no sentences in its input: build it with text.build_sample, or pass `spans`"
        )
    if len(spans) > MOST_SENTENCES:
        raise ValueError(
            f"sample {sample.id} has {len(spans)} sentences, more than the {MOST_SENTENCES} whose orders can be "
            "searched: calibrate with rise_floor(steps) as the best instead"
        )
    first, last = sample.segments.prompt
    edges = [first, *(edge for span in spans for edge in span), last]
    if edges != sorted(edges) or any(start == stop for start, stop in spans):
        raise ValueError(f"sample {sample.id}: the spans {spans} are empty, overlap or leave the input {first, last}")
    return spans


class _Responses:
    """Normalised response of any set of masked spans, each set scored once."""

    def __init__(self, scorer: Scorer, sample: Sample, spans: Sequence[Span]) -> None:
        self.scorer, self.sample = scorer, sample
        first, last = sample.segments.prompt
        n = last - first
        self.units = torch.zeros(len(spans), n, dtype=torch.bool)  # [U, |I|]
        for unit, (start, stop) in zip(self.units, spans, strict=True):
            unit[start - first : stop - first] = True
        self.shares = (self.units.sum(1) / n).tolist()  # of I
        nothing, everything = torch.zeros(1, n, dtype=torch.bool), torch.ones(1, n, dtype=torch.bool)
        self.ends = scorer.log_probs(sample, torch.cat([nothing, everything]))  # s_0, s_K
        self._known: dict[frozenset[int], float] = {}
        if self.units.any(0).all():
            self._known[frozenset(range(len(spans)))] = 1.0 if is_flagged(self.ends) else 0.0

    def of(self, sets: Iterable[frozenset[int]]) -> dict[frozenset[int], float]:
        """Response in [0, 1] with each set of spans masked, before any running minimum."""
        sets = list(dict.fromkeys(sets))
        todo = [chosen for chosen in sets if chosen not in self._known]
        if is_flagged(self.ends):
            self._known.update(dict.fromkeys(todo, 1.0))
        elif todo:
            masks = torch.stack([self.units[sorted(chosen)].any(0) for chosen in todo])  # [B, |I|]
            start, end = self.ends.tolist()
            response = ((self.scorer.log_probs(self.sample, masks) - end) / (start - end)).clamp(0, 1)
            self._known.update(zip(todo, response.tolist(), strict=True))
        return {chosen: self._known[chosen] for chosen in sets}


@dataclass(frozen=True)
class _Beginning:
    """Spans masked so far: their share of I, the lowest response and the area under it up to there."""

    order: tuple[int, ...] = ()
    share: float = 0.0
    low: float = 1.0
    area: float = 0.0

    @property
    def outlook(self) -> tuple[float, tuple[int, ...]]:
        """Area if the response fell no further; of equal ones the earlier in the text goes first."""
        return self.area + (1 - self.share) * self.low, self.order

    def then(self, unit: int, share: float, response: float) -> _Beginning:
        """With one more span, its share of I, and the response behind it."""
        low = min(self.low, response)
        area = self.area + (self.low + low) / 2 * share
        return _Beginning((*self.order, unit), self.share + share, low, area)


def _search(responses: _Responses, beam: int) -> _Beginning:
    """The whole order with the smallest area that a beam of so many finds; its last entry is what no span holds."""
    kept, n = [_Beginning()], len(responses.shares)
    for _ in tqdm(range(n), desc=f"best order {responses.sample.id}", leave=False, unit="sentence"):
        longer = [(begun, unit) for begun in kept for unit in range(n) if unit not in begun.order]
        found = responses.of(frozenset((*begun.order, unit)) for begun, unit in longer)
        grown = [
            begun.then(unit, responses.shares[unit], found[frozenset((*begun.order, unit))]) for begun, unit in longer
        ]
        kept = _best(grown, beam)
    end = 1.0 if is_flagged(responses.ends) else 0.0
    whole = [begun.then(n, 1 - begun.share, end) for begun in kept]  # with what of I lies in no span, behind all others
    return min(whole, key=lambda begun: begun.outlook)


def _best(beginnings: Iterable[_Beginning], beam: int) -> list[_Beginning]:
    """The best few, without those that can only end worse than another with the same spans masked."""
    kept: list[_Beginning] = []
    low_of: dict[frozenset[int], list[_Beginning]] = {}
    for one in sorted(beginnings, key=lambda begun: begun.outlook):
        same = low_of.setdefault(frozenset(one.order), [])
        if len(kept) < beam and not any(other.area <= one.area and other.low <= one.low for other in same):
            same.append(one)
            kept.append(one)
    return kept
