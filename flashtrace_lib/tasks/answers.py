r"""Scorers of answers that have a form: a box, a function."""

from __future__ import annotations

import ast
import re

from ..locate import find_boxed
from .base import Example

_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)


def boxed(example: Example, response_text: str) -> float:
    r"""1.0 where the last ``\boxed{…}`` of the response holds an answer, spaces and thousands commas aside."""
    box = find_boxed(response_text)
    if box is None:
        return 0.0
    inside = response_text[slice(*box)].partition("{")[2][:-1]
    return float(_plain(inside) in {_plain(answer) for answer in example.answers})


def same_code(example: Example, response_text: str) -> float:
    """1.0 where the response's code is the reference solution, layout, comments and docstrings aside.

    Nothing is run. Code that works but is written in another way counts as wrong, so the mean is a lower bound.
    """
    fenced = _FENCE.findall(response_text)
    written = _tree(fenced[-1] if fenced else response_text)
    return float(written is not None and written in {_tree(answer) for answer in example.answers})


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
