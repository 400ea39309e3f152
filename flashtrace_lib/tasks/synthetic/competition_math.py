r"""Short mathematics with boxed solutions, in the schema of MATH: every text our own, every answer computed."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .splits import draw_in_split, fill, wording
from .worked_arithmetic import worked

Values = dict[str, Any]
_CALCULATION = re.compile(r"(\b(\d+) (\+|-|/|\\cdot) (\d+) = )\d+\b")


@dataclass(frozen=True)
class Kind:
    r"""One problem, in several wordings.

    Parameters
    ----------
    name, subject : str
        Identifier, and MATH's subject.
    level : int
        MATH's difficulty, 1 to 5.
    given : dict of str to (int, int)
        Smallest and largest value of each number the text gives.
    derive : callable
        Given numbers -> all further numbers of the solution, ``x`` the answer; None where they do not fit.
    solution : str
        Steps, one sentence each, before the sentence that holds the box.
    wordings : tuple of str
        The last is held out for evaluation.
    """

    name: str
    subject: str
    level: int
    given: dict[str, tuple[int, int]]
    derive: Callable[..., Values | None]
    solution: str
    wordings: tuple[str, ...]


def _linear(a: int, x: int, b: int) -> Values:
    return {"c": a * x + b, "d": a * x}


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


KINDS: tuple[Kind, ...] = (
    Kind("linear", "Algebra", 1, {"a": (2, 9), "x": (2, 12), "b": (1, 20)}, _linear,
         "Subtracting gives $<c> - <b> = <d>$, so $<a>x = <d>$. Dividing gives $x = <d> / <a> = <x>$.",
         ("Solve for $x$: $<a>x + <b> = <c>$.", "If $<a>x + <b> = <c>$, what is the value of $x$?",
          "Find $x$ if $<a>x + <b> = <c>$.",
          "The equation $<a>x + <b> = <c>$ has one solution. What is it?",
          "Determine the number $x$ with $<a>x + <b> = <c>$.",
          "What must $x$ be so that $<a>x + <b>$ equals $<c>$?",
          "When $<b>$ is added to $<a>x$, the result is $<c>$. Find $x$.",
          "For which number $x$ does the equation $<a>x + <b> = <c>$ hold?")),
    Kind("evaluate", "Algebra", 2, {"a": (2, 9), "b": (2, 9), "n": (2, 9)},
         lambda a, b, n: {"s": n * n, "p": a * n, "q": n * n + a * n, "x": n * n + a * n + b},
         "We have $<n>^2 = <s>$ and $<a> \\cdot <n> = <p>$. Then $<s> + <p> = <q>$ and $<q> + <b> = <x>$.",
         ("Let $f(x) = x^2 + <a>x + <b>$. Find $f(<n>)$.",
          "What is the value of $x^2 + <a>x + <b>$ when $x = <n>$?",
          "If $f(x) = x^2 + <a>x + <b>$, what is $f(<n>)$?",
          "Evaluate $x^2 + <a>x + <b>$ at $x = <n>$.",
          "Given $h(x) = x^2 + <a>x + <b>$, find $h(<n>)$.",
          "Put $x = <n>$ into $x^2 + <a>x + <b>$. What comes out?",
          "The polynomial $p(x) = x^2 + <a>x + <b>$ is given. What is $p(<n>)$?",
          "Compute $g(<n>)$ for the polynomial $g(x) = x^2 + <a>x + <b>$.")),
    Kind("remainder", "Number Theory", 2, {"a": (15, 99), "b": (3, 9)}, _remainder,
         "We have $<b> \\cdot <q> = <p>$. The remainder is $<a> - <p> = <x>$.",
         ("What is the remainder when $<a>$ is divided by $<b>$?", "Find the remainder of $<a>$ divided by $<b>$.",
          "Divide $<a>$ by $<b>$. What is the remainder?",
          "What is left when $<a>$ is divided by $<b>$?",
          "Calculate $<a> \\bmod <b>$.",
          "<a> cards are dealt evenly to <b> players. How many cards remain?",
          "How many eggs are left when <a> eggs are put into boxes of <b>?",
          "When <a> is split into groups of <b>, how many are left over?")),
    Kind("gcd", "Number Theory", 2, {"a": (8, 60), "b": (8, 60)}, _gcd,
         "The smaller is taken from the larger until both are equal: <steps>. Now both are $<x>$.",
         ("Find the greatest common divisor of $<a>$ and $<b>$.", "What is $\\gcd(<a>, <b>)$?",
          "Compute the greatest common factor of $<a>$ and $<b>$.",
          "Which is the greatest number that divides $<a>$ as well as $<b>$?",
          "Find $\\gcd(<a>, <b>)$.",
          "What is the largest common divisor of the numbers $<a>$ and $<b>$?",
          "The numbers $<a>$ and $<b>$ share several divisors. What is the largest of them?",
          "What is the largest whole number that divides both $<a>$ and $<b>$?")),
    Kind("percent", "Prealgebra", 1, {"a": (5, 90), "b": (20, 300)}, _percent,
         "Ten percent of $<b>$ is $<u>$. The question asks for $<t>$ times as much, $<t> \\cdot <u> = <x>$.",
         ("What is $<a>\\%$ of $<b>$?", "Compute $<a>$ percent of $<b>$.",
          "Find $<a>\\%$ of the number $<b>$.",
          "How much is $<a>$ percent of $<b>$?",
          "A school has <b> pupils, and <a> percent of them walk. How many pupils walk?",
          "Of <b> books in a library, <a> percent are on loan. How many are on loan?",
          "A farm of <b> trees loses <a> percent of them. How many trees does it lose?",
          "Of <b> seats, <a> percent are taken. How many seats are taken?")),
    Kind("rectangle", "Prealgebra", 1, {"a": (3, 12), "b": (3, 12)}, lambda a, b: {"s": a + b, "x": 2 * (a + b)},
         "The sides add to $<a> + <b> = <s>$. Twice that is $2 \\cdot <s> = <x>$.",
         ("A rectangle has sides of length $<a>$ and $<b>$. What is its perimeter?",
          "Find the perimeter of a rectangle that is $<a>$ wide and $<b>$ long.",
          "What is the perimeter of a rectangle with sides $<a>$ and $<b>$?",
          "The sides of a rectangle measure $<a>$ and $<b>$. How long is its boundary?",
          "A garden is $<a>$ metres long and $<b>$ metres wide. What is the length of its border?",
          "One walks once around a rectangular yard of $<a>$ by $<b>$ metres. How many metres is that?",
          "Find the distance around a rectangle of width $<a>$ and height $<b>$.",
          "A fence runs once around a field of $<a>$ by $<b>$ metres. How long is the fence, in metres?")),
    Kind("area", "Geometry", 2, {"a": (3, 12), "b": (2, 12)},
         lambda a, b: {"p": a * b, "x": a * b // 2} if a * b % 2 == 0 else None,
         "We have $<a> \\cdot <b> = <p>$. Half of it is $<p> / 2 = <x>$.",
         ("A right triangle has legs of length $<a>$ and $<b>$. Find its area.",
          "What is the area of a triangle with base $<a>$ and height $<b>$?",
          "Find the area of a triangle whose base is $<a>$ and whose height is $<b>$.",
          "The legs of a right triangle measure $<a>$ and $<b>$. How large is the triangle?",
          "A triangle has a base of $<a>$ and a height of $<b>$. Compute its area.",
          "What is the area of a right triangle with legs $<a>$ and $<b>$?",
          "A sail has the shape of a triangle, $<a>$ wide and $<b>$ tall. What is its area?",
          "A triangle stands on a side of $<a>$ and is $<b>$ high. How large is its area?")),
    Kind("angle", "Geometry", 1, {"a": (20, 110), "b": (20, 90)}, _angle,
         "The two angles add to $<a> + <b> = <s>$. The third is $180 - <s> = <x>$.",
         ("Two angles of a triangle measure $<a>$ and $<b>$ degrees. Find the third angle, in degrees.",
          "A triangle has angles of $<a>$ and $<b>$ degrees. How many degrees does the remaining angle have?",
          "In a triangle, two of the angles are $<a>$ and $<b>$ degrees. What is the third angle?",
          "What is the third angle of a triangle with angles of $<a>$ and $<b>$ degrees?",
          "Triangle $PQR$ has angle $P = <a>$ and angle $Q = <b>$ degrees. Find angle $R$.",
          "One angle of a triangle is $<a>$ degrees, another is $<b>$. How large is the last one?",
          "Given two angles $<a>$ and $<b>$ of a triangle, in degrees, compute the other one.",
          "In triangle $ABC$, angle $A$ is $<a>$ degrees and angle $B$ is $<b>$ degrees. What is angle $C$?")),
    Kind("mean", "Prealgebra", 2, {"a": (2, 30), "b": (2, 30), "c": (2, 30)}, _mean,
         "We have $<a> + <b> = <d>$ and $<d> + <c> = <s>$. Then $<s> / 3 = <x>$.",
         ("What is the average of $<a>$, $<b>$ and $<c>$?", "Find the mean of the numbers $<a>$, $<b>$, $<c>$.",
          "Compute the average of the numbers $<a>$, $<b>$ and $<c>$.",
          "What is the mean of $<a>$, $<b>$ and $<c>$?",
          "The marks of three tests are $<a>$, $<b>$ and $<c>$. Find their average.",
          "On three days it rained <a>, <b> and <c> millimetres. What is the daily average?",
          "Three friends are $<a>$, $<b>$ and $<c>$ years old. What is their average age?",
          "Three throws score $<a>$, $<b>$ and $<c>$ points. What is the mean score?")),
    Kind("probability", "Counting & Probability", 2, {"a": (1, 9), "b": (1, 9)}, _probability,
         "In all there are $<a> + <b> = <s>$. Of these, $<a>$ are red, and $<a> / <s>$ in lowest terms is $<x>$.",
         ("A bag holds $<a>$ red and $<b>$ blue balls. What is the probability of drawing a red ball?",
          "From $<a>$ red balls and $<b>$ blue balls one is drawn at random. Find the probability that it is red.",
          "There are $<a>$ red and $<b>$ green balls in a box. What is the chance to draw a red one?",
          "A drawer contains $<a>$ red and $<b>$ grey socks. What is the probability that a random sock is red?",
          "Of all cards, $<a>$ are red and $<b>$ are black. One is drawn. How probable is a red card?",
          "An urn has $<a>$ red and $<b>$ white balls. Find the probability of a red ball.",
          "A child picks one of $<a>$ red and $<b>$ yellow sweets at random. Find the probability of red.",
          "A jar contains $<a>$ red beads and $<b>$ blue beads. How likely is a random bead to be red?")),
    Kind("sequence", "Algebra", 2, {"a": (1, 12), "d": (2, 9), "n": (4, 10)}, _sequence,
         "From the first term there are $<n> - 1 = <m>$ steps. They add $<m> \\cdot <d> = <p>$. "
         "The term is $<a> + <p> = <x>$.",
         ("An arithmetic sequence starts with $<a>$ and has common difference $<d>$. Find term number $<n>$.",
          "A sequence begins at $<a>$, and every term is $<d>$ more than the one before. What is term number $<n>$?",
          "What is term number $<n>$ of the arithmetic sequence with first term $<a>$ and difference $<d>$?",
          "The first term is $<a>$, and each term grows by $<d>$. Find term number $<n>$.",
          "In a row of numbers the first is $<a>$, and one adds $<d>$ each time. What is number $<n>$ in the row?",
          "An arithmetic sequence begins with $<a>$ and rises by $<d>$ each step. Compute its term number $<n>$.",
          "Seat row $1$ has $<a>$ chairs, and every further row has $<d>$ more. How many chairs has row $<n>$?",
          "Counting up from $<a>$ in steps of $<d>$, which number comes at place $<n>$?")),
    Kind("sum_to", "Algebra", 3, {"n": (4, 12)}, _sum_to,
         "We have $<n> + 1 = <m>$ and $<n> \\cdot <m> = <p>$. Half of it is $<p> / 2 = <x>$.",
         ("Find the sum $1 + 2 + \\cdots + <n>$.", "What do the whole numbers from $1$ to $<n>$ add up to?",
          "Add all whole numbers from $1$ to $<n>$. What is the sum?",
          "What is the sum of the first $<n>$ whole numbers?",
          "Compute $1 + 2 + 3 + \\cdots + <n>$.",
          "On day $1$ one coin is saved, on day $2$ two, and so on up to day $<n>$. How many coins is that?",
          "A pile has $<n>$ logs at the bottom, one less in each row, and $1$ at the top. How many logs are there?",
          "A wall has $1$ stone on top, one more in each row, and $<n>$ in the last. How many stones has it?")),
)  # fmt: skip


def math_problem(rng: random.Random, split: str) -> dict[str, Any]:
    r"""One record in the schema of MATH.

    Returns
    -------
    dict
        ``problem``, ``solution`` (its last sentence holds ``\boxed{answer}``), ``answer``, ``subject``, ``level``,
        and, beyond the schema, ``evidence`` (the problem itself: all of it is needed), ``template``, ``numbers``.
        ``unique_id`` is left to `synthetic.standin_records`, which counts.
    """
    kind = rng.choice(KINDS)
    given = draw_in_split(lambda: _given(rng, kind), kind.name, split)
    values = {**given, **kind.derive(**given)}
    index, text = wording(rng, kind.wordings, split)
    problem = fill(text, values)
    return {
        "problem": problem,
        "solution": f"{_worked(fill(kind.solution, values))} The answer is $\\boxed{{{values['x']}}}$.",
        "answer": str(values["x"]),
        "subject": kind.subject,
        "level": kind.level,
        "evidence": [problem],
        "template": f"{kind.name}/{index}",
        "numbers": list(given.values()),
    }


def whole_math_problem(rng: random.Random, split: str) -> dict[str, Any]:
    """The same in the schema of the whole of MATH: ``type`` and ``level`` (a text) for subject and level, no answer."""
    record = math_problem(rng, split)
    record["type"], record["level"] = record.pop("subject"), f"Level {record['level']}"
    del record["answer"]
    return record


def _worked(solution: str) -> str:
    """The same solution with every calculation written out."""
    signs = {"\\cdot": "*"}

    def chain(match: re.Match[str]) -> str:
        statement, a, sign, b = match.groups()
        return statement + worked(int(a), signs.get(sign, sign), int(b)).replace("*", "\\cdot")

    return _CALCULATION.sub(chain, solution)


def _given(rng: random.Random, kind: Kind) -> dict[str, int]:
    """Numbers for which the problem comes out."""
    while True:
        given = {name: rng.randint(*bounds) for name, bounds in kind.given.items()}
        if kind.derive(**given) is not None:
            return given
