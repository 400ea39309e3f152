"""Word problems in integer arithmetic, in the schema of GSM8K: every text our own, every answer computed."""

from __future__ import annotations

import operator
import random
from typing import Any

from .splits import draw_in_split, fill, pick, wording
from .word_kinds import KINDS, Kind
from .wordlists import FIRST_NAMES, THINGS
from .worked_arithmetic import worked

_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
_LARGEST = 400  # results stay where a small model can compute them
_ASIDES = (
    "<who> likes rainy days.", "The weather was mild.", "A dog slept under the table.", "<other> was singing.",
    "The radio played an old song.", "It was the first week of spring.",
)  # fmt: skip


def word_problem(rng: random.Random, split: str) -> dict[str, Any]:
    """One record in GSM8K's schema.

    Returns
    -------
    dict
        ``question``, ``answer`` (lines with ``<<a+b=c>>`` marks, the last ``#### N``), and, beyond the schema,
        ``evidence`` (the sentences that hold the numbers), ``template`` and ``numbers``.
    """
    kind = rng.choice(KINDS)
    numbers = draw_in_split(lambda: _numbers(rng, kind), kind.name, split)
    index, sentences = wording(rng, kind.wordings, split)
    who = pick(rng, FIRST_NAMES, split)
    names = {"who": who, "other": pick(rng, [n for n in FIRST_NAMES if n != who], split), "things": rng.choice(THINGS)}
    values: dict[str, Any] = {**names, **numbers}
    lines = []
    for result, left, sign, right, before, after in kind.steps:
        a, b = values[left], values[right]
        values[result] = c = _OPERATIONS[sign](a, b)
        steps = worked(a, sign, b).removesuffix(str(c))  # GSM8K marks the result, not the way to it
        marked = f"{a} {sign} {b} = {steps}<<{a}{sign}{b}={c}>>{c}"
        lines.append(f"{fill(before, values)} {marked} {fill(after, values)}")
    told = [fill(s, values) for s in sentences]
    given = [t for s, t in zip(sentences, told, strict=True) if any(f"<{n}>" in s for n in kind.ranges)]
    if rng.random() < 0.3:
        told.insert(rng.randrange(len(told)), fill(rng.choice(_ASIDES), values))
    return {
        "question": " ".join(told),
        "answer": "\n".join([*lines, f"#### {values[kind.steps[-1][0]]}"]),
        "evidence": given,
        "template": f"{kind.name}/{index}",
        "numbers": list(numbers.values()),
    }


def _numbers(rng: random.Random, kind: Kind) -> dict[str, int]:
    """Numbers of which every calculation comes out whole, positive and small."""
    while True:
        numbers = {name: rng.randint(*bounds) for name, bounds in kind.ranges.items()}
        if _comes_out(numbers, kind):
            return numbers


def _comes_out(numbers: dict[str, int], kind: Kind) -> bool:
    values = dict(numbers)
    for result, left, sign, right, _, _ in kind.steps:
        a, b = values[left], values[right]
        if sign == "/" and a % b:
            return False
        values[result] = _OPERATIONS[sign](a, b)
        if not 0 < values[result] <= _LARGEST:
            return False
    return True
