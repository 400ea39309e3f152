"""Ablations of sentences: masks, the contexts without what they drop, and how likely the response is in each.

Both the metrics that score a ranking of sentences (LDS, top-k drop) and the method that is fitted to such ablations
(ContextCite) take theirs from here.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import nn

from ..sample import Sample, Span, bounding_span
from .batched_forward import log_odds_of, score_rows
from .context import mask_token

_LISTED = 4096  # up to so many masks are all listed, where drawing the last new one could take for ever


class Effects(NamedTuple):
    """What the response's likelihood is under each of n masks, summed over the tokens of each of S spans.

    Parameters
    ----------
    log_prob : torch.DoubleTensor, shape [n, S]
        Σ_t log p(t), nats.
    log_odds : torch.DoubleTensor, shape [n, S]
        Σ_t log p(t) / (1 − p(t)) = Σ_t (z_t − logsumexp over v ≠ t of z_v), nats.
    """

    log_prob: torch.Tensor
    log_odds: torch.Tensor


def draw_masks(
    n_sources: int, n: int = 64, keep: float = 0.5, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Random masks over the sources, no two of them equal; each source is kept with probability ``keep``.

    Masks are drawn one after the other, each anew where it was drawn before. Where there are no more than ``n``, all
    2^U of them are returned.

    Parameters
    ----------
    n_sources : int
        U.
    n : int
        Number of masks.
    keep : float
        In [0.1, 0.9].
    generator : torch.Generator, optional
        On the CPU, for example `sample.seeded_generator`. Default: torch's own.

    Returns
    -------
    torch.BoolTensor, shape [min(n, 2^U), U]
        True where the source is kept.

    Raises
    ------
    ValueError
        If there is no source, no mask is asked for, or ``keep`` is out of range.
    """
    if n_sources < 1 or n < 1:
        raise ValueError(f"need at least one source and one mask, got {n_sources} sources and n = {n}")
    if not 0.1 <= keep <= 0.9:
        raise ValueError(f"keep is the share of sources that stay, in [0.1, 0.9], got {keep}")
    if 2**n_sources <= max(_LISTED, 4 * n):
        every = torch.arange(2**n_sources)[:, None] >> torch.arange(n_sources) & 1  # [2^U, U]
        n_kept = every.sum(1).double()
        rate = keep**n_kept * (1 - keep) ** (n_sources - n_kept)  # [2^U]
        # A race of exponential clocks finishes in the order of draws without replacement.
        finish = -torch.rand(len(every), generator=generator, dtype=torch.float64).log() / rate
        return every[finish.argsort(stable=True)[:n]].bool()
    drawn: dict[bytes, torch.Tensor] = {}
    while len(drawn) < n:
        mask = torch.rand(n_sources, generator=generator, dtype=torch.float64) < keep
        drawn.setdefault(mask.numpy().tobytes(), mask)
    return torch.stack(list(drawn.values()))


def ablated_rows(sample: Sample, sources: Sequence[Span], masks: torch.Tensor, stop: int) -> Iterator[torch.Tensor]:
    """The context up to token ``stop``, exclusive, once for each mask: the sources that it drops are masked in place.

    Parameters
    ----------
    sample : Sample
        Must have a ``mask_token_id``.
    sources : list of (int, int)
        Token ranges of the context.
    masks : torch.BoolTensor, shape [n, U]
        True where a source is kept.
    stop : int

    Yields
    ------
    torch.LongTensor, shape [stop]

    Raises
    ------
    ValueError
        If the sample has no mask token, or the masks do not fit the sources.
    """
    if masks.dtype != torch.bool or masks.ndim != 2 or masks.shape[1] != len(sources):
        raise ValueError(
            f"masks must be a BoolTensor [n, {len(sources)}], one column for each source, got "
            f"{tuple(masks.shape)} {masks.dtype}"
        )
    token, intact = mask_token(sample), sample.input_ids[:stop].cpu()
    for mask in masks.tolist():
        row = intact.clone()
        for (first, last), kept in zip(sources, mask, strict=True):
            if not kept:
                row[first:last] = token
        yield row


def sentence_effects(
    model: nn.Module, sample: Sample, masks: torch.Tensor, sources: Sequence[Span] | None = None,
    spans: Sequence[Span] | None = None, *, progress: str | None = None,
) -> Effects:  # fmt: skip
    """How likely the response is when only some sentences are kept; one forward pass for each mask.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    sample : Sample
        Must have a ``mask_token_id``: the tokens of a dropped sentence are replaced by it, in place.
    masks : torch.BoolTensor, shape [n, U]
        See `draw_masks`.
    sources : list of (int, int), optional
        Token ranges that the columns of ``masks`` stand for. Default: ``sample.sources``.
    spans : list of (int, int), optional
        Token ranges behind the sources whose likelihood is asked for; an empty one gives 0. Default: T, O and the
        whole response (``sample.response``).
    progress : str, optional
        Label of a progress bar.

    Returns
    -------
    Effects
        Of shape [n, S], float64, on the CPU.

    Raises
    ------
    ValueError
        If the sample has no mask token or no sentences, the masks do not fit, or every span is empty.
    """
    sources = sample.sources if sources is None else list(sources)
    spans = [sample.segments.reasoning, sample.segments.output, sample.response] if spans is None else list(spans)
    if not any(start < stop for start, stop in spans):
        raise ValueError(f"spans {spans} hold no token: give half-open token ranges of the response")
    first, last = bounding_span([span for span in spans if span[0] < span[1]])
    # the last token predicts nothing
    rows, measure = ablated_rows(sample, sources, masks, last - 1), log_odds_of(sample.input_ids[first:last].cpu())
    by_token = score_rows(model, rows, last - first, measure, progress=progress, total=len(masks)).double()  # [n, R]
    log_probs = nn.functional.logsigmoid(by_token)  # exact near p = 1, where log p itself has been rounded
    parts = [slice(start - first, stop - first) if start < stop else slice(0) for start, stop in spans]
    return Effects(
        torch.stack([log_probs[:, part].sum(1) for part in parts], 1),
        torch.stack([by_token[:, part].sum(1) for part in parts], 1),
    )


def logit(log_prob: torch.Tensor) -> torch.Tensor:
    """The logit log p / (1 − p), float64, from log p < 0: the logit-scaled probability of a whole sequence."""
    log_prob = log_prob.double()
    return log_prob - (-torch.expm1(log_prob)).log()
