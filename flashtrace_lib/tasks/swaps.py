"""One value of a prompt replaced, and the model asked again: does its answer depend on that value?"""

from __future__ import annotations

import re
from typing import Any

import torch

from ..model.generate import answer_text, generate
from ..sample import Sample


def answers_after_swap(
    model: torch.nn.Module, tokenizer: Any, sample: Sample, old: str, new: str, max_new_tokens: int = 192
) -> tuple[str, str]:
    """The model's answer to a sample's prompt as it is, and with one value in the input replaced.

    Parameters
    ----------
    sample : Sample
        With display tokens, as `text.build_sample` gives them.
    old, new : str
        The value, wherever it stands as a whole word in the input I, and what takes its place.
    max_new_tokens : int
        Longest answer, tokens.

    Returns
    -------
    (str, str)
        Greedy answers of one batch, without their reasoning.

    Raises
    ------
    ValueError
        If the value does not stand in the input, or the sample has no display tokens.
    """
    tokens, (start, stop) = sample.tokens or [], sample.segments.prompt
    before, words, after = (
        "".join(part) for part in (tokens[:start], tokens[start:stop], tokens[stop : sample.response[0]])
    )
    swapped, found = re.subn(rf"(?<!\w){re.escape(old)}(?!\w)", lambda _: new, words)
    if not old or not found:
        raise ValueError(f"sample {sample.id}: {old!r} does not stand in its input, so it cannot be replaced")
    first, second = generate(model, tokenizer, [before + words + after, before + swapped + after], max_new_tokens)
    return answer_text(tokenizer, first).strip(), answer_text(tokenizer, second).strip()
