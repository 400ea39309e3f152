"""Why this answer and not that: scores of the output minus those of another answer in its place."""

from dataclasses import replace
from typing import Any

import torch

from .attribution import Attribution, Method
from .sample import Sample
from .text.offsets import tokenise


def other_answer(tokenizer: Any, sample: Sample, words: str) -> Sample:
    """The sample with other words in the output's place, and nothing behind them; ValueError where they are none."""
    start, stop = sample.segments.output
    before, own = "".join(sample.tokens[:start]), "".join(sample.tokens[start:stop])
    if not words.strip() or words.strip() == own.strip():
        raise ValueError("contrast must be another answer than the one that is explained, and not empty")
    text = own[: len(own) - len(own.lstrip())] + words.strip()  # the answer's first token may hold the blank before it
    # As it is spelled behind what stands before; alone where its beginning would melt into that.
    ids, spans = tokenise(tokenizer, before + text)
    first = next((i for i, (_, stop) in enumerate(spans) if stop > len(before)), None)
    ids = tokenise(tokenizer, text)[0] if first is None or spans[first][0] < len(before) else ids[first:]
    end = start + len(ids)
    return replace(
        sample, input_ids=torch.cat([sample.input_ids[:start], torch.tensor(ids)]), response=(sample.response[0], end),
        segments=replace(sample.segments, output=(start, end)), gold=None,
        sentences=[*(span for span in sample.sentences or () if span[1] <= start), (start, end)],
        tokens=[*sample.tokens[:start], *tokenizer.batch_decode([[i] for i in ids])],
    )  # fmt: skip


def contrasted(method: Method, model: torch.nn.Module, tokenizer: Any, sample: Sample, words: str) -> Attribution:
    """Scores of the output minus those of ``words`` in its place, after the same prompt and reasoning.

    Both are explained by the method as it is, and the two are subtracted. Of a method with signed scores those
    are, before anything is cut at 0: for a gradient method on the targets' logits that is the attribution of the
    logits' difference. Their absolute values then sum to 1. FlashTrace and IFR give each answer
    a distribution over the context, so that the difference says which tokens carry more of the one answer than of the
    other. With the residual propagated and smoothed (`FlashTrace.best`) the right sentence need not come out above the
    wrong one.
    """
    minus, found = method.attribute(model, other_answer(tokenizer, sample, words)), method.attribute(model, sample)
    metadata = {k: v for k, v in found.metadata.items() if k not in ("signed", "mass")}  # of the one answer alone
    metadata["options"] = found.metadata.get("options", {}) | {"contrast": words}
    scores = found.scores - minus.scores
    if "signed" in found.metadata:
        signed = torch.tensor(found.metadata["signed"]) - torch.tensor(minus.metadata["signed"])
        scores = signed / signed.abs().sum().clamp_min(1e-30)
    return replace(found, scores=scores, seconds=found.seconds + minus.seconds, hops=[], flow=[], metadata=metadata)
