"""Word problems in integer arithmetic, in the schema of GSM8K: every text our own, every answer computed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from .calculations import Problem, draw_numbers, solve
from .splits import draw_in_split, pick, wording
from .template_files import check_names, check_placeholders, fill, placeholders, read_templates, sentences
from .wordlists import WORDS
from .worked_arithmetic import worked

PROBLEMS: dict[str, Problem] = {
    "gather": Problem({"a": (5, 60), "b": (5, 39)}, ("c = a + b",)),
    "give_away": Problem({"a": (25, 90), "b": (4, 24)}, ("c = a - b",)),
    "packs": Problem({"a": (2, 12), "b": (3, 12)}, ("c = a * b",)),
    "share": Problem({"a": (12, 96), "b": (2, 9)}, ("c = a / b",)),
    "gather_then_give": Problem({"a": (10, 50), "b": (5, 40), "c": (4, 30)}, ("d = a + b", "e = d - c")),
    "packs_plus": Problem({"a": (2, 9), "b": (3, 12), "c": (2, 30)}, ("d = a * b", "e = d + c")),
    "change": Problem({"a": (2, 8), "b": (2, 9), "c": (20, 99)}, ("d = a * b", "e = c - d")),
    "sell_rest": Problem({"a": (12, 40), "b": (3, 11), "c": (2, 6)}, ("d = a - b", "e = d * c")),
    "times_as_many": Problem({"a": (3, 25), "k": (2, 6)}, ("b = a * k", "c = a + b")),
    "share_after": Problem({"a": (5, 50), "b": (5, 40), "c": (2, 8)}, ("d = a + b", "e = d / c")),
    "compare_packs": Problem(
        {"a": (4, 12), "b": (4, 12), "c": (2, 8), "d": (2, 8)}, ("e = a * b", "f = c * d", "g = e - f")
    ),
    "saving": Problem({"a": (20, 99), "b": (5, 60), "c": (2, 9)}, ("d = a - b", "e = d / c")),
    "reading": Problem({"a": (60, 99), "b": (4, 12), "c": (3, 7)}, ("d = b * c", "e = a - d")),
}


@dataclass(frozen=True)
class ProblemTexts:
    """``solution``: a sentence for each step. ``wordings``: the last one is held out for evaluation."""

    solution: tuple[str, ...]
    wordings: tuple[str, ...]


@dataclass(frozen=True)
class Texts:
    """The file ``word_problems.yaml``."""

    asides: tuple[str, ...]
    problems: dict[str, ProblemTexts]


def read_texts(file: str = "word_problems.yaml") -> Texts:
    """The texts, each with the placeholders it needs; ValueError names file and line otherwise."""
    texts: Texts = read_templates(file, Texts)
    names = {"who", "other", "things"}
    for aside in texts.asides:
        check_placeholders(aside, names)
    check_names(texts.problems, PROBLEMS, "problem")
    for name, found in texts.problems.items():
        problem = PROBLEMS[name]
        if len(found.solution) != len(problem.steps):
            raise ValueError(f"{found.solution[0].where}: {name} takes {len(problem.steps)} steps")
        for step, sentence in zip(problem.steps, found.solution, strict=True):
            check_placeholders(sentence, {step[0], *names}, needed={step[0]})
        for text in found.wordings:
            check_placeholders(text, {*problem.ranges, *names}, needed=problem.ranges)
    return texts


TEXTS = read_texts()


def word_problem(rng: random.Random, split: str) -> dict[str, Any]:
    """One record in GSM8K's schema.

    Returns
    -------
    dict
        ``question``, ``answer`` (lines with ``<<a+b=c>>`` marks, the last ``#### N``), and, beyond the schema,
        ``evidence`` (the sentences that hold the numbers), ``template`` and ``numbers``.
    """
    name = rng.choice(list(PROBLEMS))
    problem, texts = PROBLEMS[name], TEXTS.problems[name]
    given = draw_in_split(lambda: draw_numbers(rng, problem), name, split)
    index, text = wording(rng, texts.wordings, split)
    who = pick(rng, WORDS.first_names, split)
    other = pick(rng, [n for n in WORDS.first_names if n != who], split)
    names = {"who": who, "other": other, "things": rng.choice(WORDS.things)}

    told = [fill(sentence, names | given) for sentence in sentences(text)]
    evidence = [t for t, sentence in zip(told, sentences(text), strict=True) if placeholders(sentence) & given.keys()]
    if rng.random() < 0.3:
        told.insert(rng.randrange(len(told)), fill(rng.choice(TEXTS.asides), names))

    values = solve(problem, given)
    steps = zip(problem.steps, texts.solution, strict=True)
    lines = [fill(sentence, names | {step[0]: _calculation(step, values)}) for step, sentence in steps]
    answer = values[problem.steps[-1][0]]
    return {
        "question": " ".join(told),
        "answer": "\n".join([*lines, f"#### {answer}"]),
        "evidence": evidence,
        "template": f"{name}/{index}",
        "numbers": list(given.values()),
    }


def _calculation(step: str, values: dict[str, int]) -> str:
    """A step as GSM8K writes it, ``"7 * 12 = 7 * 10 + 7 * 2 = 70 + 14 = <<7*12=84>>84"``."""
    result, _, left, sign, right = step.split()
    a, b, c = values[left], values[right], values[result]
    way = worked(a, sign, b).removesuffix(str(c))  # GSM8K marks the result, not the way to it
    return f"{a} {sign} {b} = {way}<<{a}{sign}{b}={c}>>{c}"
