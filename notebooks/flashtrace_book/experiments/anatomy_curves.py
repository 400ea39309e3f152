"""One deletion curve: the order of the tokens, what stands in for them, and the likelihood that is left.

Curves of one sample share contexts, at both ends and wherever two rankings agree: none is scored twice.
"""

from __future__ import annotations

from typing import Any

import torch

from flashtrace_lib.metrics import masked_counts, ranking
from flashtrace_lib.model.batched_forward import log_prob_of, score_rows
from flashtrace_lib.model.context import mask_token
from flashtrace_lib.sample import Sample
from flashtrace_lib.text.offsets import tokenise

MASKS = {
    "pad": "padding",
    "word": "“the”",
    "end": "end token",
    "hidden": "hidden",
    "deleted": "deleted",
}


def masked_order(sample: Sample, scores: torch.Tensor, keeps_question: bool = False) -> torch.Tensor:
    """Positions in I in the order in which they are masked; LongTensor [|I|], or [tokens of the haystack]."""
    order = ranking(scores)
    if not keeps_question:
        return order
    first = sample.segments.prompt[0]
    start, stop = (position - first for position in sample.haystack)
    return order[(order >= start) & (order < stop)]


def curve_sums(
    network: torch.nn.Module,
    sample: Sample,
    order: torch.Tensor,
    mask: str | torch.Tensor,
    steps: int,
    tokenizer: Any = None,
    known: dict[tuple[bytes, bytes], torch.Tensor] | None = None,
) -> dict[str, list[float]]:
    """Log-probability (nats) of T, O and the whole response with the first k of ``steps`` groups masked.

    Parameters
    ----------
    network : transformers.PreTrainedModel
    order : torch.LongTensor
        From `masked_order`.
    mask : str or torch.LongTensor
        Of `MASKS`, or the tokens [N] of another context, each of which stands in at its place.
    tokenizer : optional
        Knows the neutral word and the end of a text.
    known : dict, optional
        What contexts of this network and sample have scored before, and will: curves share their ends.

    Returns
    -------
    dict of str to list of float
        ``T``, ``O``, ``T ∪ O`` (the whole response, end token included), steps + 1 values each.
    """
    counts = masked_counts(len(order), steps).tolist()
    start, stop = sample.response
    masks = {n: _mask_of(sample, order[:n])[: stop - 1] for n in dict.fromkeys(counts)}
    ids, visible = sample.input_ids[: stop - 1].cpu(), None
    if isinstance(mask, torch.Tensor):
        rows = [torch.where(hit, mask[: stop - 1], ids) for hit in masks.values()]
    elif mask == "deleted":
        rows = [ids[~hit] for hit in masks.values()]  # the fewer are masked, the longer: longest first
    elif mask == "hidden":
        rows, visible = [ids] * len(masks), [~hit for hit in masks.values()]
    else:
        rows = [torch.where(hit, _replacement(sample, mask, tokenizer), ids) for hit in masks.values()]
    picked = _scored(network, sample, rows, visible, {} if known is None else known)
    by_count = dict(zip(masks, picked, strict=True))
    parts = {"T": sample.segments.reasoning, "O": sample.segments.output, "T ∪ O": sample.response}
    return {
        name: [float(by_count[n][first - start : last - start].sum()) for n in counts]
        for name, (first, last) in parts.items()
    }


def _scored(
    network: torch.nn.Module, sample: Sample, rows: list[torch.Tensor], visible: list[torch.Tensor] | None, known: dict
) -> list[torch.Tensor]:
    """Log-probabilities of the response in each context, float64 [R]; those that are ``known`` are not scored again."""
    seen = visible or [torch.tensor([])] * len(rows)
    keys = [(row.numpy().tobytes(), shown.numpy().tobytes()) for row, shown in zip(rows, seen, strict=True)]
    new = [i for i, key in enumerate(keys) if key not in known]
    if new:
        start, stop = sample.response
        part = None if visible is None else [visible[i] for i in new]
        measure = log_prob_of(sample.input_ids[start:stop])
        picked = score_rows(network, [rows[i] for i in new], stop - start, measure, visible=part)
        known.update(zip((keys[i] for i in new), picked.double(), strict=True))
    return [known[key] for key in keys]


def _mask_of(sample: Sample, positions: torch.Tensor) -> torch.Tensor:
    """True at the masked tokens of the context; BoolTensor [N]."""
    hit = torch.zeros(len(sample), dtype=torch.bool)
    hit[positions + sample.segments.prompt[0]] = True
    return hit


def _replacement(sample: Sample, mask: str, tokenizer: Any) -> int:
    if mask == "pad":
        return mask_token(sample)
    return tokenise(tokenizer, " the")[0][0] if mask == "word" else end_of_text(tokenizer)


def end_of_text(tokenizer: Any) -> int:
    """The special token that is not the padding token and has the lowest id: SmolLM2's ``<|endoftext|>``."""
    return min(set(tokenizer.all_special_ids) - {tokenizer.pad_token_id})
