"""Small programming exercises in the layout of Exercism: instructions, stub, tests and solution, all our own."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from .splits import draw_in_split, fill, wording


@dataclass(frozen=True)
class Kind:
    """One exercise, in several wordings.

    Parameters
    ----------
    slug : str
        Name, words joined by hyphens.
    names : tuple of str
        Names of the function; the last is held out for evaluation.
    arguments : str
        Of the function.
    body : str
        The expression that the function returns.
    constants : dict of str to tuple
        Values that the instructions ask for, and the body holds.
    calls : tuple of str
        Arguments of the calls in the tests.
    hint : str
        What to do, in a sentence.
    wordings : tuple of str
        Instructions; the last is held out for evaluation.
    """

    slug: str
    names: tuple[str, ...]
    arguments: str
    body: str
    constants: dict[str, tuple]
    calls: tuple[str, ...]
    hint: str
    wordings: tuple[str, ...]


KINDS: tuple[Kind, ...] = (
    Kind("scale-numbers", ("scale_numbers", "multiply_all", "stretch"), "numbers", "[n * <k> for n in numbers]",
         {"k": tuple(range(2, 30))}, ("[1, 2, 3]", "[]", "[10, -4]"),
         "Go through the numbers and multiply each one by <k>.",
         ("Write a function that multiplies every number of a list by <k> and returns the new list.",
          "Given a list of numbers, return a list in which each number is <k> times as large.",
          "Every number in the list grows by a factor of <k>. Return the list of results.")),
    Kind("keep-larger", ("keep_larger", "above", "filter_large"), "numbers", "[n for n in numbers if n > <k>]",
         {"k": tuple(range(2, 60))}, ("[1, 5, 80]", "[]", "[3, 61, 40, 7]"),
         "Go through the numbers and keep each one that is greater than <k>.",
         ("Write a function that returns the numbers of a list that are greater than <k>, in their order.",
          "Given a list of numbers, drop all that are <k> or less and return the rest.",
          "Only numbers over <k> may stay. Return the list of those that do.")),
    Kind("join-words", ("join_words", "connect", "glue"), "words", '"<k>".join(words)',
         {"k": ("-", "+", "/", ", ", ":", "; ", " and ", "_", " or ", "=", "*", "--", " | ", "->", "~", ".")},
         ('["a", "b", "c"]', "[]", '["only"]'), 'Put "<k>" between the words.',
         ('Write a function that joins a list of words into one text, with "<k>" between them.',
          'Given a list of words, return a single string in which "<k>" separates them.',
          'The words become one line. Between two neighbours stands "<k>". Return the line.')),
    Kind("is-multiple", ("is_multiple", "divides_evenly", "fits"), "number", "number % <k> == 0",
         {"k": tuple(range(2, 40))}, ("12", "0", "35", "78"),
         "The number is a multiple when the remainder of the division by <k> is 0.",
         ("Write a function that tells whether a number is a multiple of <k>.",
          "Given a whole number, return True if it can be divided by <k> without remainder, else False.",
          "Return True for numbers in the table of <k>, and False for all others.")),
    Kind("straight-line", ("straight_line", "convert", "fare"), "x", "<a> * x + <b>",
         {"a": tuple(range(2, 12)), "b": tuple(range(1, 40))}, ("0", "3", "-2"),
         "Multiply x by <a> and add <b>.",
         ("Write a function that multiplies its argument by <a> and then adds <b>.",
          "Given x, return <a> times x plus <b>.",
          "A ride costs <a> coins a mile and <b> coins at the start. Return the price of x miles.")),
    Kind("count-long-words", ("count_long_words", "long_words", "how_many_long"), "text",
         "sum(len(word) > <k> for word in text.split())", {"k": tuple(range(2, 12))},
         ('"a bee sees extraordinary flowers"', '""', '"one two three"'),
         "Split the text at white space and count the words with more than <k> letters.",
         ("Write a function that counts the words of a text that have more than <k> letters.",
          "Given a text, return how many of its words are longer than <k> letters.",
          "Words of up to <k> letters are short. Return the number of words that are not short.")),
    Kind("take-every", ("take_every", "sample_items", "skip_through"), "items", "items[::<k>]",
         {"k": tuple(range(2, 20))}, ("[1, 2, 3, 4, 5, 6, 7]", '"abcdefghij"', "[]"),
         "Slice the items with a step of <k>.",
         ("Write a function that returns every item at a position divisible by <k>, the first one included.",
          "Given a sequence, return a slice that starts at the first item and goes in steps of <k>.",
          "Take the first item, then skip ahead <k> places at a time. Return what was taken.")),
    Kind("first-and-rest", ("first_items", "head", "opening"), "items", "items[:<k>]", {"k": tuple(range(1, 20))},
         ("[1, 2, 3, 4, 5]", '"programming"', "[]"), "Slice the items up to position <k>.",
         ("Write a function that returns the first <k> items of a sequence.",
          "Given a sequence, cut it off after <k> items and return what is left.",
          "Return a sequence that holds nothing but the leading <k> items.")),
)  # fmt: skip

_TEST = """import unittest

from <module> import <name>


class <title>Test(unittest.TestCase):
<cases>

if __name__ == "__main__":
    unittest.main()
"""
_CASE = "    def test_<number>(self):\n        self.assertEqual(<name>(<call>), <expected>)\n"


def exercise(rng: random.Random, split: str) -> dict[str, Any]:
    """One record: ``slug`` and ``files`` by path; beyond the schema ``evidence``, ``template``, ``numbers``."""
    kind = rng.choice(KINDS)
    constants = draw_in_split(lambda: {k: rng.choice(v) for k, v in kind.constants.items()}, kind.slug, split)
    index, text = wording(rng, kind.wordings, split)
    _, name = wording(rng, kind.names, split)
    module = kind.slug.replace("-", "_")
    signature = f"def {name}({kind.arguments}):\n"
    solution = f"{signature}    return {fill(kind.body, constants)}\n"
    instructions = fill(text, constants)
    files = {
        ".docs/instructions.md": f"# Instructions\n\n{instructions}\n",
        ".docs/hints.md": f"# Hints\n\n{fill(kind.hint, constants)}\n",
        ".meta/config.json": json.dumps(
            {"files": {"solution": [f"{module}.py"], "test": [f"{module}_test.py"], "example": [".meta/example.py"]}}
        ),
        ".meta/example.py": solution,
        f"{module}.py": f"{signature}    pass\n",
        f"{module}_test.py": _tests(kind, module, name, solution),
    }
    return {
        "slug": kind.slug,
        "files": files,
        "evidence": [instructions],
        "template": f"{kind.slug}/{index}",
        "numbers": [str(value) for value in constants.values()],
    }


def _tests(kind: Kind, module: str, name: str, solution: str) -> str:
    """Unit tests whose expected values are what our own solution returns."""
    space: dict[str, Any] = {}
    exec(solution, space)  # noqa: S102 - text of this file, no input
    cases = [
        fill(_CASE, {"number": i, "name": name, "call": call, "expected": repr(eval(f"{name}({call})", space))})
        for i, call in enumerate(kind.calls)
    ]
    title = kind.slug.title().replace("-", "")
    return fill(_TEST, {"module": module, "name": name, "title": title, "cases": "\n".join(cases)})
