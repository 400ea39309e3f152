"""Programming exercises with loops, conditions, dictionaries and strings, judged by their own unit tests."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..example import Example
from ..records import exercise_example
from .exercises import Exercise, unit_test_file
from .splits import draw_in_split, wording
from .stratified import Drawn, Wordings, check_wordings, draw_wording, numbered_examples
from .template_files import check_names, check_placeholders, fill, placeholders, read_templates, sentences

_JOINTS = ("; ", " | ", ", ", " / ", " + ", " * ", " & ", " - ", " ~ ", " = ")
_MARKS = ("...", "~", "*", "+", "-", "_", "'", "..", "=", "^")
_NUMBERS = ("[1, 5, 80, 12]", "[]", "[-3, 61, 40, 7, -20, 9, 2]", "[100, 0, 33, 18, 64, 27, 5, 11]")
_WORDS = ("['a', 'b', 'a', 'c', 'b', 'a'] * 2", "[]", "['x'] * 7 + ['y'] * 9 + ['z'] * 3", "list('mississippi') * 3")
_SCORES = ("{'Ben': 71, 'Ann': 35, 'Cy': 50}", "{}", "{'Zoe': 90, 'Al': 12}")

EXERCISES: dict[str, Exercise] = {
    "frequent-words": Exercise(
        "words",
        """    counts = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    frequent = []
    for word in counts:
        if counts[word] >= <k>:
            frequent.append(word)
    return frequent
""",
        {"k": range(2, 12)},
        _WORDS,
    ),
    "shorten-words": Exercise(
        "text",
        """    parts = []
    for word in text.split():
        if len(word) > <k>:
            word = word[:<k>] + "<s>"
        parts.append(word)
    return " ".join(parts)
""",
        {"k": range(2, 10), "s": _MARKS},
        ("'a bee sees extraordinary flowers'", "''", "'unbelievably  long expressions'"),
    ),
    "group-by-remainder": Exercise(
        "numbers",
        """    groups = {}
    for number in numbers:
        rest = number % <k>
        if rest not in groups:
            groups[rest] = []
        groups[rest].append(number)
    return groups
""",
        {"k": range(2, 20)},
        ("[1, 5, 80, 12, 6]", "[]", "list(range(40))"),
    ),
    "steps-to-one": Exercise(
        "number",
        """    steps = 0
    while number > 1:
        if number % <k> == 0:
            number = number // <k>
        else:
            number = number - 1
        steps = steps + 1
    return steps
""",
        {"k": range(2, 15)},
        ("1", "17", "100", "365"),
    ),
    "label-scores": Exercise(
        "scores",
        """    lines = []
    for name in sorted(scores):
        if scores[name] >= <k>:
            lines.append(name + ": pass")
        else:
            lines.append(name + ": fail")
    return "<s>".join(lines)
""",
        {"k": range(20, 90), "s": _JOINTS},
        _SCORES,
    ),
    "signed-total": Exercise(
        "numbers",
        """    total = 0
    for place, number in enumerate(numbers, 1):
        if place % <k> == 0:
            total = total - number
        else:
            total = total + number
    return total
""",
        {"k": range(2, 20)},
        (*_NUMBERS[:3], "list(range(1, 41))"),
    ),
    "capped-sum": Exercise(
        "numbers",
        """    total = 0
    for number in numbers:
        if number > <k>:
            total = total + <k>
        elif number > 0:
            total = total + number
    return total
""",
        {"k": range(3, 60)},
        _NUMBERS,
    ),
}


@dataclass(frozen=True)
class ExerciseTexts(Wordings):
    """An exercise: its wordings, ``names`` of the function, and ``plan``, the way to the solution in sentences."""

    names: tuple[str, ...]
    plan: tuple[str, ...]


@dataclass(frozen=True)
class Texts:
    """The file ``long_exercises.yaml``."""

    asides: Wordings
    exercises: dict[str, ExerciseTexts]


def read_texts(file: str = "long_exercises.yaml") -> Texts:
    """The texts, each with the placeholders it needs; ValueError names file and line otherwise."""
    texts: Texts = read_templates(file, Texts)
    check_wordings(texts.asides)
    for text in texts.asides.all:
        check_placeholders(text, ())
    check_names(texts.exercises, EXERCISES, "exercise")
    for slug, found in texts.exercises.items():
        constants = EXERCISES[slug].constants
        check_wordings(found)
        for text in found.all:
            check_placeholders(text, constants, needed=constants)
        for text in found.plan:
            check_placeholders(text, constants)
        if missing := constants.keys() - set().union(*map(placeholders, found.plan)):
            raise ValueError(f"{found.plan[0].where}: the plan lacks the placeholder <{min(missing)}>")
    return texts


TEXTS = read_texts()


def long_exercises(n: int, seed: int = 0, split: str = "eval", kinds: Sequence[str] | None = None) -> list[Example]:
    """Exercises whose solution has at least five lines; example ``i`` does not depend on ``n``.

    Parameters
    ----------
    n : int
        Examples wanted.
    seed : int
        Another seed gives other examples.
    split : {"train", "eval"}
        The two share no wording, no name of a function, and no constants of a kind.
    kinds : sequence of str, optional
        Of `EXERCISES`; all in turn where it is not given.

    Returns
    -------
    list of Example
        In the prompt of the task ``exercism``; an answer is right if it passes the unit tests in ``files``, which are
        run in `sandbox`. ``metadata`` gives ``template``, ``file`` and ``numbers`` (the constants).

    Raises
    ------
    ValueError
        If a kind or the split is unknown, or ``n`` is negative.
    """

    def make(key: str, i: int, id: str) -> Example:
        return _example(draw_wording(key, i, TEXTS.exercises, split, kinds), random.Random(f"{key}|{i}"), id, split)

    return numbered_examples("long_exercises", n, seed, split, make)


def _example(drawn: Drawn, rng: random.Random, id: str, split: str) -> Example:
    slug = drawn.kind
    code, texts = EXERCISES[slug], TEXTS.exercises[slug]
    constants = draw_in_split(lambda: {k: rng.choice(v) for k, v in code.constants.items()}, slug, split)
    _, name = wording(rng, texts.names, split)
    signature = f"def {name}({code.argument}):\n"
    solution = signature + fill(code.body, constants)
    specification = [fill(sentence, constants) for sentence in sentences(drawn.wording)]
    aside = rng.choice(TEXTS.asides.of(split))
    told = rng.choice(([aside, *specification], [*specification, aside]))

    module = slug.replace("-", "_")
    record = {
        "slug": slug,
        "files": {
            ".docs/instructions.md": f"# Instructions\n\n{' '.join(told)}\n",
            ".meta/config.json": json.dumps({"files": {"solution": [f"{module}.py"], "test": [f"{module}_test.py"]}}),
            ".meta/example.py": solution,
            f"{module}.py": f"{signature}    pass\n",
            f"{module}_test.py": unit_test_file(slug, name, code.calls, solution),
        },
        "evidence": specification,
        "template": drawn.label,
        "numbers": [str(value) for value in constants.values()],
    }
    example = exercise_example(record, id)
    quoted = " ".join(specification)
    return replace(
        example,
        task="long_exercises",
        cell="long_exercises",
        haystack=(0, example.prompt.index("\n####\n")),
        reasoning="\n".join([f"The task: {quoted}", *(fill(sentence, constants) for sentence in texts.plan)]),
        scorer="unit_tests",
    )
