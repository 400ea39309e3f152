"""Tasks, one file each; a new one is one file and one line in ``TASKS``."""

from collections.abc import Callable

from .datasets import task_examples
from .example import Example
from .responses import Collection, collect
from .ruler import ruler_examples
from .scoring import SCORERS, is_correct, score

TASKS: dict[str, Callable[..., list[Example]]] = {
    "ruler": ruler_examples,
}

__all__ = [
    "SCORERS",
    "TASKS",
    "Collection",
    "Example",
    "collect",
    "is_correct",
    "ruler_examples",
    "score",
    "task_examples",
]
