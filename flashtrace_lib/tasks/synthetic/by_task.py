"""Which generator stands for a data set where its records are not there: its problems, under the data set's name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ..example import Example
from .documents_qa import documents_qa
from .long_exercises import long_exercises
from .long_word_problems import long_word_problems

# As the two benchmarks ask: MoreHopQA for something made of the name or number at the end of the path.
MOREHOPQA_KINDS = ("birth_digits", "town_letter", "river_letter", "elder_last_name")
HOTPOTQA_KINDS = ("birthplace", "birth_year", "river", "founded", "elder")
_WORDS = {"morehopqa": 450, "hotpotqa": 800}  # of a prompt, punctuation marks among them; about 1.2 tokens each
_WORD = re.compile(r"\w+|[^\w\s]")


def count_words(text: str) -> int:
    """Words and punctuation marks of a text: a length that belongs to no tokenizer."""
    return len(_WORD.findall(text))


def _documents(kinds: tuple[str, ...], length: int, n: int, seed: int, split: str) -> list[Example]:
    return documents_qa(n, length, count_words, seed, split, kinds)


GENERATORS: dict[str, Callable[[int, int, str], list[Example]]] = {
    "gsm8k": long_word_problems,
    "morehopqa": partial(_documents, MOREHOPQA_KINDS, _WORDS["morehopqa"]),
    "hotpotqa": partial(_documents, HOTPOTQA_KINDS, _WORDS["hotpotqa"]),
    "exercism": long_exercises,
}


def generated_examples(kind: str, n: int, seed: int = 0, split: str = "eval") -> list[Example]:
    """The first ``n`` problems in the style of a data set; example ``i`` does not depend on ``n``.

    Parameters
    ----------
    kind : {"gsm8k", "morehopqa", "hotpotqa", "exercism"}
        The data set.
    n, seed : int
    split : {"train", "eval"}
        The two share no wording, name or number.

    Raises
    ------
    ValueError
        If no generator stands for this data set, the split is unknown or ``n`` is negative.
    """
    if kind not in GENERATORS:
        raise ValueError(f"no generator stands for {kind!r}: choose one of {', '.join(GENERATORS)}")
    return [under_name(example, kind) for example in GENERATORS[kind](n, seed, split)]


def generated_documents(n: int, length: int, count: Callable[[str], int], seed: int = 0) -> list[Example]:
    """Questions in the style of HotpotQA whose prompts have ``length`` tokens, as ``count`` counts them."""
    return [under_name(example, "hotpotqa") for example in documents_qa(n, length, count, seed, "eval", HOTPOTQA_KINDS)]


def under_name(example: Example, kind: str) -> Example:
    """The example with the data set's name in place of its generator's."""
    return replace(example, id=example.id.replace(example.task, kind, 1), task=kind, cell=kind)
