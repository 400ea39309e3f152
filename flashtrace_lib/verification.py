"""Is it so? The sentences that a trace names are removed, and random ones of the same length, and the answer scored."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from math import comb
from typing import Any

import torch

from .metrics.deletion import Scorer
from .sample import Sample, Span, seeded_generator

DRAWS, FEWEST, MOST = 10, 3, 3  # random removals; fewer than FEWEST say nothing; most sentences removed at once
CONFIRMED, CHANCE, QUESTION, SHORT = VERDICTS = (
    "confirmed", "no more than chance", "rather the question", "the text is too short to tell",
)  # fmt: skip
_TRIED = 10 * DRAWS  # sets of sentences of which the nearest in length are taken


@dataclass(frozen=True)
class Verification:
    """How much less likely the response becomes without the sentences that matter most.

    Parameters
    ----------
    verdict : str
        ``"confirmed"``: it falls by more than under every random removal. ``"no more than chance"``: it does not.
        ``"rather the question"``: it does not, and the scores put the question above every sentence of the content.
        ``"the text is too short to tell"``: fewer than three other removals exist.
    sentences : list of (int, int)
        Token ranges of the k sentences that matter most, k a third of the content's, 1 to 3.
    fall : float, optional
        By how many nats the response's log-probability falls without them; None where the text is too short.
    random_falls : list of float
        The same without k other sentences of about the same length, nats; at most ten draws.
    forward_passes : int
        At most 12.
    """

    verdict: str
    sentences: list[Span]
    fall: float | None
    random_falls: list[float]
    forward_passes: int

    def __str__(self) -> str:
        n = len(self.sentences)
        what = "sentence that matters" if n == 1 else f"{n} sentences that matter"
        if self.verdict == SHORT:
            return f"not verified: {SHORT} ({len(self.random_falls)} other removals to compare with)"
        low, high = min(self.random_falls), max(self.random_falls)
        others = "another, at random," if n == 1 else f"{n} others, at random,"
        return (
            f"{self.verdict}: without the {what} most, the log-probability of the answer and its reasoning falls by "
            f"{self.fall:.2f} nats; without {others} by {low:.2f} to {high:.2f} ({len(self.random_falls)} draws)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Its fields, JSON-ready."""
        return asdict(self)


def verify(model: torch.nn.Module, sample: Sample, ranked: Sequence[tuple[Span, float]]) -> Verification:
    """Remove what an attribution ranks highest, and random sentences, and compare what the response loses.

    Removed tokens become the sample's mask token, as in deletion curves (appendix F.2). The removals share one batch.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    sample : Sample
        Must have a ``mask_token_id``.
    ranked : sequence of ((int, int), float)
        Sentences of the input as token ranges of the context, and their scores.

    Raises
    ------
    ValueError
        If the sample has no mask token.
    """
    first = sample.segments.prompt[0]
    content = sorted((item for item in ranked if sample.is_content(item[0])), key=lambda item: -item[1])
    chosen = [span for span, _ in content[: min(MOST, max(1, len(content) // 3))]]
    others = _alike([span for span, _ in content], chosen, sample)
    if len(others) < FEWEST:
        return Verification(SHORT, chosen, None, [], 0)
    removed = [[], chosen, *others]
    masks = torch.zeros(len(removed), len(sample.prompt_ids), dtype=torch.bool)  # [B, |I|]
    for mask, spans in zip(masks, removed, strict=True):
        for start, stop in spans:
            mask[start - first : stop - first] = True
    log_probs = (scorer := Scorer(model)).log_probs(sample, masks)  # [B]
    falls = (log_probs[0] - log_probs[1:]).tolist()
    question = max((score for span, score in ranked if not sample.is_content(span)), default=float("-inf"))
    verdict = CONFIRMED if falls[0] > max(0.0, *falls[1:]) else (QUESTION if question > content[0][1] else CHANCE)
    return Verification(verdict, chosen, falls[0], falls[1:], scorer.n_contexts)


def _alike(content: Sequence[Span], chosen: Sequence[Span], sample: Sample) -> list[list[Span]]:
    """Up to ``DRAWS`` sets of as many other sentences: of the sets drawn, those of the nearest number of tokens."""
    rest, generator = sorted(set(content) - set(chosen)), seeded_generator("verification", sample)
    if comb(len(rest), len(chosen)) <= _TRIED:
        sets = list(combinations(rest, len(chosen)))
    else:
        draws = (torch.randperm(len(rest), generator=generator)[: len(chosen)] for _ in range(_TRIED))
        sets = sorted({tuple(rest[i] for i in sorted(draw.tolist())) for draw in draws})
    order = torch.randperm(len(sets), generator=generator).tolist()  # which of equally long ones come first
    wanted = sum(b - a for a, b in chosen)
    sets = sorted((sets[i] for i in order), key=lambda spans: abs(sum(b - a for a, b in spans) - wanted))
    return [list(spans) for spans in sets[:DRAWS]]
