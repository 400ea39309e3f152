"""Synthetic records in the schemas of the reasoning data sets: the book needs no network, and no record is copied.

Every record is drawn from a seed, every answer computed, every supporting passage known. The wordings lie in
``templates``. The default split is the one that the embedded model has not been trained on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ..example import Example
from ..records import EXAMPLE_OF
from .competition_math import math_problem, whole_math_problem
from .exercises import exercise
from .multihop_qa import bridge_question, documents_question
from .splits import check_split
from .word_problems import word_problem

Record = dict[str, Any]

GENERATORS: dict[str, Callable[[random.Random, str], Record]] = {
    "math500": math_problem,
    "math": whole_math_problem,
    "gsm8k": word_problem,
    "morehopqa": bridge_question,
    "hotpotqa": documents_question,
    "exercism": exercise,
}
_ID = {"math500": "unique_id", "morehopqa": "_id", "hotpotqa": "id"}  # where a schema has one
FILES = {
    "math500": "math500/test.jsonl",
    "math": "math/test.jsonl",
    "gsm8k": "gsm8k/test.jsonl",
    "morehopqa": "morehopqa/with_human_verification.json",
    "hotpotqa": "hotpotqa/validation_hub_format.json",
    "exercism": "exercism_python/exercises.jsonl",
}


def synthetic_records(kind: str, n: int, seed: int = 0, split: str = "eval") -> list[Record]:
    """The first ``n`` records of a kind; record ``i`` depends on the kind, the seed, the split and ``i`` alone.

    Parameters
    ----------
    kind : {"math500", "math", "gsm8k", "morehopqa", "hotpotqa", "exercism"}
        Whose schema.
    n : int
        Records wanted.
    seed : int
        Another seed gives other records.
    split : {"train", "eval"}
        The two share no template, name or number.

    Returns
    -------
    list of dict
        With ``evidence`` (passages) and ``template`` beyond the schema.

    Raises
    ------
    ValueError
        If the kind or the split is unknown, or ``n`` is negative.
    """
    if kind not in GENERATORS:
        raise ValueError(f"unknown kind {kind!r}: choose one of {', '.join(GENERATORS)}")
    check_split(split)
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise ValueError(f"n must be a whole number >= 0, got {n!r}")
    return [_record(kind, seed, split, i) for i in range(n)]


def synthetic_examples(kind: str, n: int, seed: int = 0, split: str = "eval") -> list[Example]:
    """The same as examples; see `synthetic_records`."""
    records = synthetic_records(kind, n, seed, split)
    return [EXAMPLE_OF[kind](record, _id(kind, seed, split, i)) for i, record in enumerate(records)]


def _record(kind: str, seed: int, split: str, i: int) -> Record:
    record = GENERATORS[kind](random.Random(f"{kind}|{split}|{seed}|{i}"), split)
    return {_ID[kind]: _id(kind, seed, split, i), **record} if kind in _ID else record


def _id(kind: str, seed: int, split: str, i: int) -> str:
    return f"{kind}-{split}-s{seed}-{i}"
