"""Does a reasoning use the evidence? And which responses to keep, so that no wording stands for a whole cell."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from ..text.locate import find_thinking
from .example import Example

_WORD = re.compile(r"\w+")
_SHARE = 0.6  # of a passage's words, where it has no number
T = TypeVar("T")


def uses(reasoning: str, passage: str) -> bool:
    """Whether a reasoning quotes or restates a passage.

    Restated is a passage whose every number the reasoning names; of one without numbers, at least 60 % of its words.
    """
    said = Counter(_WORD.findall(reasoning.casefold()))
    words = Counter(_WORD.findall(passage.casefold()))
    numbers = {word for word in words if word[0].isdigit()}
    if numbers:
        return all(number in said for number in numbers)
    return (words & said).total() >= _SHARE * words.total()


def is_grounded(example: Example, response: str) -> bool:
    """Whether the reasoning of a response uses every passage of the example's evidence; False without reasoning."""
    try:
        marks = find_thinking(response)
    except ValueError:  # it does not end
        return False
    if not marks or not example.evidence:
        return False
    reasoning = response[slice(*marks[0])]
    return all(uses(reasoning, example.prompt[start:stop]) for start, stop in example.evidence)


def no_wording_too_often(items: Iterable[T], n: int, wording: Callable[[T], str | None]) -> list[T]:
    """The first ``n`` items, of any wording at most a quarter of ``n``, rounded up; None is no wording."""
    most, taken, kept = math.ceil(n / 4), Counter(), []
    for item in items:
        name = wording(item)
        if len(kept) == n or (name is not None and taken[name] == most):
            continue
        taken[name] += 1
        kept.append(item)
    return kept
