"""Tasks: RULER's cells, and data sets of records. A new data set is one file and one line in `registry.TASKS`."""

from .counterfactual import Swap, ruler_swaps
from .datasets import task_examples
from .example import Example
from .registry import TASKS, Task
from .responses import Collection, collect
from .ruler import ruler_examples
from .scoring import SCORERS, is_correct, score
from .swap_effects import example_swaps, swap_effects

__all__ = [
    "SCORERS",
    "TASKS",
    "Collection",
    "Example",
    "Swap",
    "Task",
    "collect",
    "example_swaps",
    "is_correct",
    "ruler_examples",
    "ruler_swaps",
    "score",
    "swap_effects",
    "task_examples",
]
