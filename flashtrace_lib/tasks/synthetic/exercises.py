"""Small programming exercises in the layout of Exercism: instructions, stub, tests and solution, all our own."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .splits import draw_in_split, wording
from .template_files import check_names, check_placeholders, fill, read_templates


@dataclass(frozen=True)
class Exercise:
    """The code of an exercise.

    Parameters
    ----------
    argument : str
        Of the function.
    body : str
        The expression that the function returns.
    constants : dict of str to sequence
        Values to draw from: the instructions ask for one, and the body holds it.
    calls : tuple of str
        Arguments of the calls in the tests.
    """

    argument: str
    body: str
    constants: dict[str, Sequence[int | str]]
    calls: tuple[str, ...]


_SEPARATORS = ("-", "+", "/", ", ", ":", "; ", " and ", "_", " or ", "=", "*", "--", " | ", "->", "~", ".")
EXERCISES: dict[str, Exercise] = {
    "scale-numbers": Exercise(
        "numbers", "[n * <k> for n in numbers]", {"k": range(2, 30)}, ("[1, 2, 3]", "[]", "[10, -4]")
    ),
    "keep-larger": Exercise(
        "numbers", "[n for n in numbers if n > <k>]", {"k": range(2, 60)}, ("[1, 5, 80]", "[]", "[3, 61, 40, 7]")
    ),
    "join-words": Exercise(
        "words", '"<k>".join(words)', {"k": _SEPARATORS}, ('["a", "b", "c"]', "[]", '["only"]')
    ),
    "is-multiple": Exercise("number", "number % <k> == 0", {"k": range(2, 40)}, ("12", "0", "35", "78")),
    "straight-line": Exercise("x", "<a> * x + <b>", {"a": range(2, 12), "b": range(1, 40)}, ("0", "3", "-2")),
    "count-long-words": Exercise(
        "text", "sum(len(word) > <k> for word in text.split())", {"k": range(2, 12)},
        ('"a bee sees extraordinary flowers"', '""', '"one two three"'),
    ),
    "take-every": Exercise(
        "items", "items[::<k>]", {"k": range(2, 20)}, ("[1, 2, 3, 4, 5, 6, 7]", '"abcdefghij"', "[]")
    ),
    "first-and-rest": Exercise(
        "items", "items[:<k>]", {"k": range(1, 20)}, ("[1, 2, 3, 4, 5]", '"programming"', "[]")
    ),
}  # fmt: skip

_TEST = """import unittest

from <module> import <name>


class <title>Test(unittest.TestCase):
<cases>

if __name__ == "__main__":
    unittest.main()
"""
_CASE = "    def test_<number>(self):\n        self.assertEqual(<name>(<call>), <expected>)\n"


@dataclass(frozen=True)
class ExerciseTexts:
    """``names`` of the function, and ``wordings`` of the instructions: the last ones are held out for evaluation."""

    names: tuple[str, ...]
    hint: str
    wordings: tuple[str, ...]


def read_texts(file: str = "exercises.yaml") -> dict[str, ExerciseTexts]:
    """The texts by slug, each with the placeholders it needs; ValueError names file and line otherwise."""
    texts: dict[str, ExerciseTexts] = read_templates(file, dict[str, ExerciseTexts])
    check_names(texts, EXERCISES, "exercise")
    for slug, found in texts.items():
        for text in (found.hint, *found.wordings):
            check_placeholders(text, EXERCISES[slug].constants, needed=EXERCISES[slug].constants)
    return texts


TEXTS = read_texts()


def exercise(rng: random.Random, split: str) -> dict[str, Any]:
    """One record: ``slug`` and ``files`` by path; beyond the schema ``evidence``, ``template``, ``numbers``."""
    slug = rng.choice(list(EXERCISES))
    code, texts = EXERCISES[slug], TEXTS[slug]
    constants = draw_in_split(lambda: {k: rng.choice(v) for k, v in code.constants.items()}, slug, split)
    index, text = wording(rng, texts.wordings, split)
    _, name = wording(rng, texts.names, split)

    module = slug.replace("-", "_")
    signature = f"def {name}({code.argument}):\n"
    solution = f"{signature}    return {fill(code.body, constants)}\n"
    instructions = fill(text, constants)
    files = {
        ".docs/instructions.md": f"# Instructions\n\n{instructions}\n",
        ".docs/hints.md": f"# Hints\n\n{fill(texts.hint, constants)}\n",
        ".meta/config.json": json.dumps(
            {"files": {"solution": [f"{module}.py"], "test": [f"{module}_test.py"], "example": [".meta/example.py"]}}
        ),
        ".meta/example.py": solution,
        f"{module}.py": f"{signature}    pass\n",
        f"{module}_test.py": unit_test_file(slug, name, EXERCISES[slug].calls, solution),
    }
    return {
        "slug": slug,
        "files": files,
        "evidence": [instructions],
        "template": f"{slug}/{index}",
        "numbers": [str(value) for value in constants.values()],
    }


def unit_test_file(slug: str, name: str, calls: Sequence[str], solution: str) -> str:
    """Unit tests of a function, whose expected values are what our own solution returns.

    Parameters
    ----------
    slug : str
        Of the exercise; with underscores the module of the function.
    name : str
        Of the function.
    calls : sequence of str
        Arguments, a test for each.
    solution : str
        Source of the function.
    """
    space: dict[str, Any] = {}
    exec(solution, space)  # noqa: S102 - text of this package, no input
    cases = [
        fill(_CASE, {"number": i, "name": name, "call": call, "expected": repr(eval(f"{name}({call})", space))})
        for i, call in enumerate(calls)
    ]
    module, title = slug.replace("-", "_"), slug.title().replace("-", "")
    return fill(_TEST, {"module": module, "name": name, "title": title, "cases": "\n".join(cases)})
