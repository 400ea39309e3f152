r"""Scorers of answers that have a form: a box, a function."""

from __future__ import annotations

import ast
import logging
import re
import threading

from ..locate import find_boxed
from .base import Example
from .sandbox import run_tests

_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)


def boxed(example: Example, response_text: str) -> float:
    r"""1.0 where the last ``\boxed{…}`` of the response holds an answer.

    Either letter by letter, spaces and thousands commas aside, or as mathematics (math-verify): ``\frac12`` is ``0.5``.
    """
    box = find_boxed(response_text)
    if box is None:
        return 0.0
    inside = response_text[slice(*box)].partition("{")[2][:-1]
    if _plain(inside) in {_plain(answer) for answer in example.answers}:
        return 1.0
    return float(any(_same_mathematics(answer, inside) for answer in example.answers))


def _same_mathematics(answer: str, written: str, seconds: int = 5) -> bool:
    """Whether two expressions are equal; False where one cannot be read, or comparing them takes too long."""
    import math_verify  # imported late: it brings sympy

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # a timeout is an answer here, not an event
    if threading.current_thread() is not threading.main_thread():
        seconds = None  # its limit is an alarm, which only the main thread may set
    sides = [
        math_verify.parse(f"$\\boxed{{{side}}}$", parsing_timeout=seconds) for side in (answer, written)
    ]
    return all(sides) and math_verify.verify(*sides, timeout_seconds=seconds)


def same_code(example: Example, response_text: str) -> float:
    """1.0 where the response's code is the reference solution, layout, comments and docstrings aside.

    Nothing is run. Code that works but is written in another way counts as wrong, so the mean is a lower bound.
    """
    written = _tree(_code(response_text))
    return float(written is not None and written in {_tree(answer) for answer in example.answers})


def unit_tests(example: Example, response_text: str) -> float:
    """1.0 where the response's code passes the exercise's own tests, run in `sandbox`."""
    tests = [name for name in example.files if name.endswith("_test.py")]
    if len(tests) != 1 or "file" not in example.metadata:
        raise ValueError(
            f"example {example.id}: unit_tests needs one file *_test.py among its files and metadata['file'], the name "
            f"of the solution; it has {sorted(example.files)}"
        )
    files = {**example.files, example.metadata["file"]: _code(response_text)}
    return float(run_tests(files, tests[0].removesuffix(".py")).passed)


def _code(text: str) -> str:
    """The last fenced block; the whole text where there is none."""
    fenced = _FENCE.findall(text)
    return fenced[-1] if fenced else text


def _plain(text: str) -> str:
    return re.sub(r"\s|(?<=\d),(?=\d{3})|[$]", "", text)


def _tree(code: str) -> str | None:
    """The code's syntax tree as text; None where it is not Python."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)
