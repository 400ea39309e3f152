"""A hop that asks: steps of T, weighted by what the answer loses, and the steps it rests on lose, without them.

What is chosen here was chosen on the first four stored samples of RULER's h2_c3 (embedded reasoner, 1,024 tokens):
lines that the answer rests on took 8 to 33 nats from log p(O), all others 0.2 at most. Two steps that say the same hide
each other: the answer stands without either.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import nn

from ..kernel.activations import Activations
from ..model.batched_forward import SharedPrefix, log_prob_of, score_rows
from ..model.state import evaluating, model_budget
from ..sample import Sample, Span

SHARE = 0.05  # of the greatest fall of log p(O): a smaller fall is no reason
NOISE = 0.1  # nats, a tenth of a probability: so much any change of the text does
MOST_STEPS = 40  # of a T whose steps are removed one by one; the cost grows with their number times what follows them
ROUNDINGS = 16  # of a token's logits, by which a text's log-probabilities may differ between two batches
_BATCH_SHARE = 4  # of the memory that a batched forward may take: keys and values are copied for every row of it


@dataclass
class CausalSteps:
    """Steps of T and what each is worth.

    Parameters
    ----------
    spans : list of (int, int)
        Token ranges of the S steps, in the order of the text.
    falls : torch.DoubleTensor, shape [S, S + 1]
        Nats that log p of each step, and of O in the last column, loses when the text of the step of the row is
        removed; negative where it gains. 0 for what does not stand behind it.
    noise : torch.DoubleTensor, shape [S + 1]
        Nats within which a fall of a step, and of O, says nothing.
    cached : bool
        Whether what stands before a step was computed once for all; False where the model's cache does not allow it.
    """

    spans: list[Span]
    falls: torch.Tensor
    noise: torch.Tensor
    cached: bool

    @property
    def weights(self) -> torch.Tensor:
        """Weight of every step, summing to 1, float64 [S]; all 0 where the answer stands without any of them.

        In units of the greatest fall of log p(O), a step counts as much as what O loses without it, or what a step
        behind it loses, times what that one counts, whichever is most; below `SHARE` nothing.
        """
        falls = self.falls.where(self.falls > self.noise, 0)  # [S, S + 1]
        greatest = falls[:, -1].max()
        if not greatest > 0:
            return torch.zeros(len(self.spans), dtype=torch.float64)
        shares = (falls / greatest).clamp_max(1)
        shares = shares.where(shares >= SHARE, 0)
        weights = shares[:, -1]
        for last in reversed(range(len(weights))):  # a step rests on earlier ones alone: it is settled when it is read
            weights = torch.maximum(weights, shares[:, last] * weights[last])
        weights = weights.where(weights >= SHARE, 0)
        return weights / weights.sum()

    def over(self, span: Span) -> torch.Tensor:
        """Weights of the tokens of a span, every step's shared equally among its own, float32 [span length]."""
        out = torch.zeros(span[1] - span[0])
        for weight, (start, stop) in zip(self.weights.tolist(), self.spans, strict=True):
            out[start - span[0] : stop - span[0]] = weight / (stop - start)
        return out

    def as_metadata(self) -> dict[str, Any]:
        """What an attribution says of them, JSON-ready; falls of O, in nats."""
        return {
            "spans": self.spans, "weights": self.weights.tolist(), "falls": self.falls[:, -1].tolist(),
            "matter": bool(self.weights.any()), "cached": self.cached,
        }  # fmt: skip


def reasoning_steps(sample: Sample) -> list[Span]:
    """Token ranges that tile T: its sentences and lines; of a T in one line also what two blanks part.

    A piece without a letter or digit goes with the step before it. Lines are seen where the sample has display tokens.
    """
    start, stop = sample.segments.reasoning
    starts = {first for first, _ in sample.sentences_in((start, stop))}
    tokens = (sample.tokens or [])[start:stop]
    text = "".join(tokens)
    ends = list(accumulate(map(len, tokens)))  # a token stands where its first letter is
    begins = [end - len(token.lstrip() or token) for end, token in zip(ends, tokens, strict=True)]
    for gap in re.finditer(r"\n+" if "\n" in text.strip() else r" {2,}", text):
        starts.add(start + bisect_left(begins, gap.end()))
    edges = sorted(edge for edge in starts | {start} if edge < stop)
    if tokens:
        edges = [a for a, b in pairwise([*edges, stop]) if re.search(r"\w", "".join(tokens[a - start : b - start]))]
    return list(pairwise([start, *edges[1:], stop])) if start < stop else []


def causal_steps(model: nn.Module, samples: Sequence[Sample], state: Activations) -> list[CausalSteps | None]:
    """Remove every step of T in turn, and see what later steps and O lose.

    The text of a step goes and positions close up: every family reads such a text, and what follows is predicted from
    what stands before the step. (Were its keys masked instead, the next token would still be predicted at its last
    one, which sees it; log p(O) fell alike, within 3 of 33 nats on the samples that were looked at.)

    Of a later step, the tokens up to the first that differs from the removed step do not count: there the model chooses
    which step comes next, and as a rule would write the removed one. With them, every line of a list would seem to rest
    on the line before it.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model; left exactly as it was.
    samples : sequence of Sample
        Of one context; their T and O may differ. A removal that several need is computed once.
    state : Activations
        A captured pass of the context, whose keys and values are what stands before a step.

    Returns
    -------
    list of CausalSteps or None
        In the order of the samples; None for a T that is empty or has more than ``MOST_STEPS``.
    """
    own = [steps if len(steps) <= MOST_STEPS else [] for steps in map(reasoning_steps, samples)]
    removed = sorted(set().union(*own), key=lambda span: span[::-1])
    if not removed:
        return [None] * len(own)
    whole = samples[0].input_ids.cpu()
    ids = whole[: max(sample.segments.output[1] for sample in samples)]
    with evaluating(model), torch.inference_mode():
        prefix = SharedPrefix.captured(model, whole, state.layers)
        lost = _lost(model, ids, removed, prefix)
    rounding = ROUNDINGS * torch.finfo(next(model.parameters()).dtype).eps
    found: list[CausalSteps | None] = []
    for sample, steps in zip(samples, own, strict=True):
        units = [*steps, sample.segments.output]
        noise = torch.tensor([NOISE + rounding * (b - a) ** 0.5 for a, b in units], dtype=torch.float64)
        falls = torch.zeros(len(steps), len(units), dtype=torch.float64)
        for i, step in enumerate(steps):
            for j, (a, b) in enumerate(units[i + 1 :], start=i + 1):
                first = a if j == len(steps) else a + _alike(ids, step, (a, b)) + 1
                falls[i, j] = lost[step][first:b].sum()
        found.append(CausalSteps(steps, falls, noise, prefix.usable) if steps else None)
    return found


def _alike(ids: torch.Tensor, one: Span, other: Span) -> int:
    """Number of tokens with which both spans begin."""
    n = min(one[1] - one[0], other[1] - other[0])
    return int((ids[one[0] : one[0] + n] == ids[other[0] : other[0] + n]).cumprod(0).sum())


def _lost(model: nn.Module, ids: torch.Tensor, spans: list[Span], prefix: SharedPrefix) -> dict[Span, torch.Tensor]:
    """Nats that each token behind a span loses without it, float64 [N] for each span.

    Spans come in the order of their ends, and share a batch with those near them, so that little of what stands before
    a removed one is computed again.
    """
    stop, vocabulary = len(ids), model.config.get_text_config().vocab_size
    none = (spans[0][1], spans[0][1])  # removes nothing; tokens before it lose nothing
    row_bytes = prefix.nbytes + (stop - none[1]) * vocabulary * next(model.parameters()).element_size()
    at_once = max(1, model_budget(model) // _BATCH_SHARE // row_bytes)
    groups: list[list[Span]] = []
    for start, end in [none, *spans]:
        # What is left of a row must hold all targets of its group, and the token before them.
        if not groups or len(groups[-1]) == at_once or end - start >= groups[-1][0][1]:
            groups.append([])
        groups[-1].append((start, end))
    log_probs = {}
    for group in groups:
        n = stop - group[0][1]
        group.sort(key=lambda span: span[1] - span[0])  # longest row first
        rows = [torch.cat([ids[:start], ids[end:-1]]) for start, end in group]
        values = score_rows(model, rows, n, log_prob_of(ids[-n:]), resembling=prefix).double()  # [rows, n]
        log_probs |= zip(group, nn.functional.pad(values, (stop - n, 0)), strict=True)  # [N] each
    return {span: log_probs[none] - log_probs[span] for span in spans}
