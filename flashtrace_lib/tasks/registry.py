"""The data sets of records by name, a line each: what `task_examples` may be asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .example import Example
from .record_files import Record, read_exercise, read_problem
from .records import (
    exercise_example,
    gsm8k_example,
    hotpotqa_example,
    math500_example,
    math_example,
    morehopqa_example,
)


@dataclass(frozen=True)
class HubSet:
    """Where a data set lies on the hub.

    Parameters
    ----------
    id : str
        Repository.
    configs : tuple of (str or None)
        Arguments of ``datasets.load_dataset``; several are read one behind the other.
    split : str
    file : str
        A file to download instead, where the repository's loading script is gone.
    """

    id: str
    configs: tuple[str | None, ...] = (None,)
    split: str = "test"
    file: str | None = None


@dataclass(frozen=True)
class Layout:
    """A published repository whose folder holds one record a file or folder.

    Parameters
    ----------
    folder : str
        Where the records lie in it.
    pattern : str
        Which of its paths are records.
    read : callable
        Path -> record.
    origin : str
        Address to clone it from; empty where it is an archive.
    """

    folder: str
    pattern: str
    read: Callable[[Path], Record]
    origin: str = ""


@dataclass(frozen=True)
class Task:
    """A data set: how a record becomes an example, and where its records come from.

    Parameters
    ----------
    example : callable
        (record, name) -> `Example`.
    files : tuple of str
        Names under which a folder may hold the data set; the first that is there is read.
    hub : HubSet, optional
        Where it lies on the hub.
    layout : Layout, optional
        A repository that a folder may be a clone of.
    """

    example: Callable[[Record, str], Example]
    files: tuple[str, ...] = ()
    hub: HubSet | None = None
    layout: Layout | None = None


_SUBJECTS = (
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra",
    "precalculus",
)  # fmt: skip
_HOTPOTQA_FILES = ("validation_hub_format.json", "train_original_format.json", "hotpot_dev_distractor_v1.json")
_MOREHOPQA_FILE = "with_human_verification.json"
_MATH_LAYOUT = Layout("MATH/test", "*/*.json", read_problem)  # as its authors publish it
_EXERCISM_LAYOUT = Layout("exercises/practice", "*", read_exercise, origin="https://github.com/exercism/python")
TASKS: dict[str, Task] = {
    "math500": Task(math500_example, ("math500/test.jsonl",), HubSet("HuggingFaceH4/MATH-500")),
    "math": Task(math_example, ("math/test.jsonl",), HubSet("EleutherAI/hendrycks_math", _SUBJECTS), _MATH_LAYOUT),
    "gsm8k": Task(gsm8k_example, ("gsm8k/test.jsonl",), HubSet("openai/gsm8k", ("main",))),
    "morehopqa": Task(
        morehopqa_example,
        (f"morehopqa/{_MOREHOPQA_FILE}",),
        HubSet("alabnii/morehopqa", file=f"data/{_MOREHOPQA_FILE}"),
    ),
    "hotpotqa": Task(
        hotpotqa_example,
        tuple(f"hotpotqa/{name}" for name in _HOTPOTQA_FILES),
        HubSet("hotpotqa/hotpot_qa", ("distractor",), "validation"),
    ),
    "exercism": Task(exercise_example, ("exercism_python/exercises.jsonl",), layout=_EXERCISM_LAYOUT),
}
