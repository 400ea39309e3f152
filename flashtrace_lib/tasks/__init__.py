"""Tasks: RULER's cells, and data sets of records. A new data set is one file and one line in `registry.TASKS`."""

from .datasets import task_examples
from .example import Example
from .registry import TASKS, Task
from .responses import Collection, collect
from .ruler import ruler_examples
from .scoring import SCORERS, is_correct, score

__all__ = [
    "SCORERS", "TASKS", "Collection", "Example", "Task", "collect", "is_correct",
    "ruler_examples", "score", "task_examples",
]  # fmt: skip
