"""Generated problems that belong to no data set of records, by name: for training and its evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.synthetic.documents_qa import documents_qa
from flashtrace_lib.tasks.synthetic.long_exercises import long_exercises
from flashtrace_lib.tasks.synthetic.long_word_problems import long_word_problems
from flashtrace_lib.text.offsets import tokenise

from .reading.plain_questions import plain_questions
from .reading.questions import reading_questions
from .reading.stories import reading_stories


@dataclass(frozen=True)
class Generator:
    """Where a family of problems comes from.

    Parameters
    ----------
    make : callable
        (n, seed, split) -> examples; with ``has_length``: (n, length, count, seed, split) -> examples.
    has_length : bool
        Its prompts are as long as they are asked to be; ``count`` counts the tokens of a text.
    trains : bool
        False: it has problems for evaluation alone.
    """

    make: Callable[..., list[Example]]
    has_length: bool = False
    trains: bool = True

    def examples(self, n: int, seed: int, split: str, tokenizer: Any, length: int) -> list[Example]:
        """The first ``n`` problems; ValueError where none are made for this split or a tokenizer is missing."""
        if split == "train" and not self.trains:
            raise ValueError("these problems are for evaluation alone (split 'eval')")
        if not self.has_length:
            return self.make(n, seed, split)
        if tokenizer is None:
            raise ValueError("a prompt is as long as a tokenizer counts: give the model's")
        return self.make(n, length, lambda text: len(tokenise(tokenizer, text)[0]), seed, split)


def _plain_questions(n: int, seed: int, split: str) -> list[Example]:
    """The first ``n`` of the questions written by hand, which no seed changes."""
    found = plain_questions()
    if n > len(found):
        raise ValueError(f"there are {len(found)} plain questions, not {n}")
    return found[:n]


GENERATORS: dict[str, Generator] = {
    "documents_qa": Generator(documents_qa, has_length=True),
    "long_word_problems": Generator(long_word_problems),
    "long_exercises": Generator(long_exercises),
    "reading_questions": Generator(reading_questions),
    "reading_stories": Generator(reading_stories),
    "plain_questions": Generator(_plain_questions, trains=False),
}
