"""The data sets of records by name, a line each: what `task_examples`, the chapters and the training may ask for."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .counterfactual import Swap
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
from .synthetic.competition_math import math_problem, whole_math_problem
from .synthetic.exercises import exercise
from .synthetic.multihop_qa import bridge_question, documents_question
from .synthetic.multihop_swaps import multihop_swaps
from .synthetic.word_problems import word_problem


@dataclass(frozen=True)
class HubSet:
    """Where a data set lies on the hub.

    Parameters
    ----------
    id : str
        Repository.
    config, split : str
        Arguments of ``datasets.load_dataset``; several configs are read one behind the other.
    file : str
        A file to download instead, where the repository's loading script is gone.
    """

    id: str
    config: str | tuple[str, ...] | None = None
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
    synthetic : callable
        (rng, split) -> a record in the same schema; the splits ``"train"`` and ``"eval"`` share no template, name or
        number.
    files : tuple of str
        Names under which a folder may hold the data set; the first that is there is read.
    hub : HubSet, optional
        Where it lies on the hub.
    layout : Layout, optional
        A repository that a folder may be a clone of.
    id_field : str
        Field of the schema that identifies a record; empty where it has none.
    swaps : callable, optional
        (example, tokenizer, seed) -> list of `counterfactual.Swap`: its facts replaced by others, with the new answers.
    """

    example: Callable[[Record, str], Example]
    synthetic: Callable[[random.Random, str], dict[str, Any]]
    files: tuple[str, ...] = ()
    hub: HubSet | None = None
    layout: Layout | None = None
    id_field: str = ""
    swaps: Callable[[Example, Any, int], list[Swap]] | None = None


_SUBJECTS = (
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra",
    "precalculus",
)  # fmt: skip
_HOTPOTQA_FILES = (
    "hotpotqa/validation_hub_format.json",
    "hotpotqa/train_original_format.json",
    "hotpotqa/hotpot_dev_distractor_v1.json",
)
TASKS: dict[str, Task] = {
    "math500": Task(
        math500_example,
        math_problem,
        files=("math500/test.jsonl",),
        hub=HubSet("HuggingFaceH4/MATH-500"),
        id_field="unique_id",
    ),
    "math": Task(
        math_example,
        whole_math_problem,
        files=("math/test.jsonl",),
        hub=HubSet("EleutherAI/hendrycks_math", config=_SUBJECTS),
        layout=Layout("MATH/test", "*/*.json", read_problem),  # as its authors publish it
    ),
    "gsm8k": Task(gsm8k_example, word_problem, files=("gsm8k/test.jsonl",), hub=HubSet("openai/gsm8k", config="main")),
    "morehopqa": Task(
        morehopqa_example,
        bridge_question,
        files=("morehopqa/with_human_verification.json",),
        hub=HubSet("alabnii/morehopqa", file="data/with_human_verification.json"),
        id_field="_id",
        swaps=multihop_swaps,
    ),
    "hotpotqa": Task(
        hotpotqa_example,
        documents_question,
        files=_HOTPOTQA_FILES,
        hub=HubSet("hotpotqa/hotpot_qa", config="distractor", split="validation"),
        id_field="id",
        swaps=multihop_swaps,
    ),
    "exercism": Task(
        exercise_example,
        exercise,
        files=("exercism_python/exercises.jsonl",),
        layout=Layout("exercises/practice", "*", read_exercise, origin="https://github.com/exercism/python"),
    ),
}
