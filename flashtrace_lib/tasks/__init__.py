"""Tasks, one file each; a new one is one file and one line in ``TASKS``."""

from collections.abc import Callable

from .base import Example
from .ruler import ruler_examples
from .scoring import SCORERS, is_correct, score

TASKS: dict[str, Callable[..., list[Example]]] = {
    "ruler": ruler_examples,
}

__all__ = ["SCORERS", "TASKS", "Example", "is_correct", "ruler_examples", "score"]
