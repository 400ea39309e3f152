r"""Short mathematics with boxed solutions, in the schema of MATH: every text our own, every answer computed."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .splits import draw_in_split, wording
from .template_files import check_names, check_placeholders, fill, placeholders, read_templates
from .worked_arithmetic import worked

Values = dict[str, Any]
_CALCULATION = re.compile(r"(\b(\d+) (\+|-|/|\\cdot) (\d+) = )\d+\b")


def _linear(a: int, x: int, b: int) -> Values:
    return {"c": a * x + b, "d": a * x}


def _evaluate(a: int, b: int, n: int) -> Values:
    return {"s": n * n, "p": a * n, "q": n * n + a * n, "x": n * n + a * n + b}


def _remainder(a: int, b: int) -> Values | None:
    q, r = divmod(a, b)
    return {"q": q, "p": q * b, "x": r} if r and q <= 10 else None


def _gcd(a: int, b: int) -> Values | None:
    x = math.gcd(a, b)
    if not 1 < x < min(a, b):
        return None
    steps, large, small = [], max(a, b), min(a, b)
    while large != small:  # Euclid's way: the smaller from the larger, until they are equal
        steps.append(f"${large} - {small} = {large - small}$")
        large, small = max(small, large - small), min(small, large - small)
    return {"x": x, "steps": ", ".join(steps)} if len(steps) <= 5 else None


def _percent(a: int, b: int) -> Values | None:
    return {"t": a // 10, "u": b // 10, "x": a * b // 100} if a % 10 == 0 and b % 10 == 0 and b != 100 else None


def _rectangle(a: int, b: int) -> Values:
    return {"s": a + b, "x": 2 * (a + b)}


def _area(a: int, b: int) -> Values | None:
    return {"p": a * b, "x": a * b // 2} if a * b % 2 == 0 else None


def _angle(a: int, b: int) -> Values | None:
    return {"s": a + b, "x": 180 - a - b} if a + b < 170 and a != b else None


def _mean(a: int, b: int, c: int) -> Values | None:
    s = a + b + c
    return {"d": a + b, "s": s, "x": s // 3} if s % 3 == 0 else None


def _probability(a: int, b: int) -> Values | None:
    f = Fraction(a, a + b)
    return {"s": a + b, "x": rf"\frac{{{f.numerator}}}{{{f.denominator}}}"} if f.denominator > 1 and a != b else None


def _sequence(a: int, d: int, n: int) -> Values:
    return {"m": n - 1, "p": (n - 1) * d, "x": a + (n - 1) * d}


def _sum_to(n: int) -> Values:
    return {"m": n + 1, "p": n * (n + 1), "x": n * (n + 1) // 2}


@dataclass(frozen=True)
class Problem:
    """The numbers of a problem.

    Parameters
    ----------
    subject : str
        MATH's subject.
    level : int
        MATH's difficulty, 1 to 5.
    ranges : dict of str to (int, int)
        Smallest and largest value of each number that is drawn.
    solve : callable
        Drawn numbers -> all further numbers of problem and solution, ``x`` the answer; None where they do not fit.
    """

    subject: str
    level: int
    ranges: dict[str, tuple[int, int]]
    solve: Callable[..., Values | None]


PROBLEMS: dict[str, Problem] = {
    "linear": Problem("Algebra", 1, {"a": (2, 9), "x": (2, 12), "b": (1, 20)}, _linear),
    "evaluate": Problem("Algebra", 2, {"a": (2, 9), "b": (2, 9), "n": (2, 9)}, _evaluate),
    "remainder": Problem("Number Theory", 2, {"a": (15, 99), "b": (3, 9)}, _remainder),
    "gcd": Problem("Number Theory", 2, {"a": (8, 60), "b": (8, 60)}, _gcd),
    "percent": Problem("Prealgebra", 1, {"a": (5, 90), "b": (20, 300)}, _percent),
    "rectangle": Problem("Prealgebra", 1, {"a": (3, 12), "b": (3, 12)}, _rectangle),
    "area": Problem("Geometry", 2, {"a": (3, 12), "b": (2, 12)}, _area),
    "angle": Problem("Geometry", 1, {"a": (20, 110), "b": (20, 90)}, _angle),
    "mean": Problem("Prealgebra", 2, {"a": (2, 30), "b": (2, 30), "c": (2, 30)}, _mean),
    "probability": Problem("Counting & Probability", 2, {"a": (1, 9), "b": (1, 9)}, _probability),
    "sequence": Problem("Algebra", 2, {"a": (1, 12), "d": (2, 9), "n": (4, 10)}, _sequence),
    "sum_to": Problem("Algebra", 3, {"n": (4, 12)}, _sum_to),
}


def _draw(rng: random.Random, problem: Problem) -> dict[str, int]:
    """Numbers for which the problem comes out."""
    while True:
        drawn = {name: rng.randint(*bounds) for name, bounds in problem.ranges.items()}
        if problem.solve(**drawn) is not None:
            return drawn


@dataclass(frozen=True)
class ProblemTexts:
    """``solution``: the steps before the answer. ``wordings``: the last one is held out for evaluation."""

    solution: str
    wordings: tuple[str, ...]


@dataclass(frozen=True)
class Texts:
    """The file ``competition_math.yaml``."""

    answer: str
    problems: dict[str, ProblemTexts]


def read_texts(file: str = "competition_math.yaml") -> Texts:
    """The texts, each with the placeholders it needs; ValueError names file and line otherwise."""
    texts: Texts = read_templates(file, Texts)
    check_placeholders(texts.answer, {"x"}, needed={"x"})
    check_names(texts.problems, PROBLEMS, "problem")
    for name, found in texts.problems.items():
        drawn = _draw(random.Random(0), PROBLEMS[name])
        known = drawn | PROBLEMS[name].solve(**drawn)
        check_placeholders(found.solution, known, needed={"x"})
        for text in found.wordings:  # every wording gives the same numbers
            check_placeholders(text, known, needed=placeholders(found.wordings[0]))
    return texts


TEXTS = read_texts()


def math_problem(rng: random.Random, split: str) -> dict[str, Any]:
    r"""One record in the schema of MATH.

    Returns
    -------
    dict
        ``problem``, ``solution`` (its last sentence holds ``\boxed{answer}``), ``answer``, ``subject``, ``level``,
        and, beyond the schema, ``evidence`` (the problem itself: all of it is needed), ``template``, ``numbers``.
        ``unique_id`` is left to `synthetic.synthetic_records`, which counts.
    """
    name = rng.choice(list(PROBLEMS))
    problem, texts = PROBLEMS[name], TEXTS.problems[name]
    drawn = draw_in_split(lambda: _draw(rng, problem), name, split)
    values = drawn | problem.solve(**drawn)
    index, text = wording(rng, texts.wordings, split)
    question = fill(text, values)
    return {
        "problem": question,
        "solution": f"{_written_out(fill(texts.solution, values))} {fill(TEXTS.answer, values)}",
        "answer": str(values["x"]),
        "subject": problem.subject,
        "level": problem.level,
        "evidence": [question],
        "template": f"{name}/{index}",
        "numbers": list(drawn.values()),
    }


def whole_math_problem(rng: random.Random, split: str) -> dict[str, Any]:
    """The same in the schema of the whole of MATH: ``type`` and ``level`` (a text) for subject and level, no answer."""
    record = math_problem(rng, split)
    record["type"], record["level"] = record.pop("subject"), f"Level {record['level']}"
    del record["answer"]
    return record


def _written_out(solution: str) -> str:
    """The same solution with every calculation written out."""
    signs = {"\\cdot": "*"}

    def chain(match: re.Match[str]) -> str:
        statement, a, sign, b = match.groups()
        return statement + worked(int(a), signs.get(sign, sign), int(b)).replace("*", "\\cdot")

    return _CALCULATION.sub(chain, solution)
