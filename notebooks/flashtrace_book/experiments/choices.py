"""Choices that the paper leaves open, each with the option of FlashTrace that takes the other reading."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_PUNCTUATION = re.compile(r"[\s,.]+")  # comma, full stop and white space


@dataclass(frozen=True)
class Choice:
    """One open choice.

    Parameters
    ----------
    question : str
        What is open; the paper's reading stands first.
    other : str
        The other reading in a few words, for figures.
    options : dict
        Options of `FlashTrace` that take the other reading.
    skips_punctuation : bool
        Whether the other reading skips the tokenizer's tokens of punctuation.
    """

    question: str
    other: str
    options: dict[str, Any] = field(default_factory=dict)
    skips_punctuation: bool = False


CHOICES: dict[str, Choice] = {
    "predictor": Choice(
        "the state at a token, or at its predictor", "state at the predictor", {"target_state": "predictor"}
    ),
    "heads_summed": Choice("proximity per head, or of the sum over heads", "heads summed", {"heads": "sum"}),
    "residual": Choice("the residual divides, or is propagated", "residual propagated", {"residual": "propagated"}),
    "raw_hops": Choice("hops as distributions, or as raw layer sums", "hops as raw sums", {"hop_scale": "raw"}),
    "recursion": Choice("recursion over T, or over T ∪ O", "recursion over T ∪ O", {"recursion": "generation"}),
    "punctuation": Choice("punctuation counts, or is skipped", "punctuation skipped", skips_punctuation=True),
    "first_hop": Choice("hop 0 on O, or on T ∪ O", "hop 0 on T ∪ O", {"first_hop": "generation"}),
    "value_bias": Choice("values with their bias, or without", "value bias left out", {"value_bias": "left_out"}),
    "sink": Choice("the first token counts, or is removed", "first token removed", {"sink": "removed"}),
}
# What `open_questions.chosen` takes from the stored results of profile laptop.
CHOSEN: tuple[str, ...] = ("first_hop", "heads_summed", "sink")


def choice_options(names: Iterable[str], tokenizer: Any = None) -> dict[str, Any]:
    """Options of FlashTrace that take the other reading of each named choice.

    Parameters
    ----------
    names : iterable of str
        Keys of ``CHOICES``.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        Needed where one of them skips punctuation.

    Raises
    ------
    ValueError
        If a choice is unknown, or needs a tokenizer and there is none.
    """
    options: dict[str, Any] = {}
    for name in names:
        if name not in CHOICES:
            raise ValueError(f"unknown choice {name!r}: known are {', '.join(CHOICES)}")
        options |= CHOICES[name].options
        if CHOICES[name].skips_punctuation:
            if tokenizer is None:
                raise ValueError(f"the choice {name!r} skips tokens of punctuation: pass the model's tokenizer")
            options["skip_tokens"] = punctuation_tokens(tokenizer)
    return options


def punctuation_tokens(tokenizer: Any) -> tuple[int, ...]:
    """Ids of the tokens that hold nothing but commas, full stops and white space, ascending."""
    special = set(tokenizer.all_special_ids)
    texts = tokenizer.batch_decode([[i] for i in range(len(tokenizer))])
    return tuple(i for i, text in enumerate(texts) if i not in special and _PUNCTUATION.fullmatch(text))
