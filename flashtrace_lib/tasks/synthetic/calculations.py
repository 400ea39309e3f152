"""The calculations behind a word problem: which numbers its text gives, and what follows from them."""

from __future__ import annotations

import operator
import random
from dataclasses import dataclass

_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
LARGEST = 400  # results stay where a small model can compute them


@dataclass(frozen=True)
class Problem:
    """The numbers of a problem.

    Parameters
    ----------
    ranges : dict of str to (int, int)
        Smallest and largest value of each number that the text gives.
    steps : tuple of str
        Calculations in order, such as ``"c = a + b"``; the last one gives the answer. Names are single letters.
    """

    ranges: dict[str, tuple[int, int]]
    steps: tuple[str, ...]


def draw_numbers(rng: random.Random, problem: Problem, largest: int = LARGEST) -> dict[str, int]:
    """Numbers of which every calculation comes out."""
    while True:
        given = {name: rng.randint(*bounds) for name, bounds in problem.ranges.items()}
        if solve(problem, given, largest) is not None:
            return given


def solve(problem: Problem, given: dict[str, int], largest: int = LARGEST) -> dict[str, int] | None:
    """Given numbers and results; None where a result is not whole, positive and at most ``largest``."""
    values = dict(given)
    for step in problem.steps:
        result, _, left, sign, right = step.split()
        a, b = values[left], values[right]
        if sign == "/" and a % b:
            return None
        values[result] = _OPERATIONS[sign](a, b)
        if not 0 < values[result] <= largest:
            return None
    return values
