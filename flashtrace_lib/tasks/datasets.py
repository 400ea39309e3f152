"""Records of a data set as examples, from a folder in the published formats or from the hub.

Nothing is skipped in silence: a file, record or field that does not fit is an error that names it.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .example import Example
from .hotpotqa import TooLong, hotpotqa_at_length
from .record_files import Record, read_exercises, read_records
from .records import NoSuchSentence
from .registry import TASKS

SOURCES = ("folder", "hub")
_PRACTICE = "exercises/practice"  # in a clone of exercism/python
_POOL = 40  # further records of HotpotQA whose paragraphs fill long prompts: about 55,000 tokens
_TOO_LONG, _FAULTY = "too long", "faulty"  # why a record of HotpotQA gives no example
_ID = ("unique_id", "_id", "id", "slug")


def task_examples(
    kind: str, n: int | None, *, source: str = "folder", folder: Path | str | None = None, seed: int | None = 0
) -> list[Example]:
    """Examples of a data set.

    Parameters
    ----------
    kind : {"math500", "gsm8k", "morehopqa", "hotpotqa", "exercism"}
        Which data set.
    n : int or None
        Examples wanted; None for all there are.
    source : {"folder", "hub"}
        A folder laid out as ``TASKS`` says, or the hub.
    folder : path-like, optional
        The folder of ``source="folder"``. For ``"exercism"`` a clone of exercism/python will do as well.
    seed : int or None
        Records are drawn at random with this seed, as the paper draws its 100 (appendix E.4); None keeps their order.

    Returns
    -------
    list of Example
        Fewer than ``n`` where the data set has fewer, or has a prompt twice: that is taken once.

    Raises
    ------
    ValueError
        If the kind or the source is unknown, a file is missing or malformed, or a record lacks a field.
    """
    where, records = _records(kind, source, folder)
    first: dict[str, Example] = {}
    for i in _order(len(records), seed):
        if len(first) == n:
            break
        example = _made(TASKS[kind].example, kind, records[i], i, where)
        first.setdefault(example.prompt, example)
    return list(first.values())


def documents_examples(
    n: int,
    length: int,
    count: Callable[[str], int],
    *,
    source: str = "folder",
    folder: Path | str | None = None,
    seed: int | None = 0,
) -> tuple[list[Example], dict[str, int]]:
    """Examples of HotpotQA whose prompts are filled up to a length; see `hotpotqa.hotpotqa_at_length`.

    Parameters
    ----------
    n : int
        Records looked at. The paragraphs of up to ``_POOL`` further ones are distractors.
    length, count
        As there.
    source, folder, seed
        As in `task_examples`.

    Returns
    -------
    examples : list of Example
    refused : dict of str to int
        ``too long``: records whose supporting paragraphs alone are longer than ``length``. ``faulty``, where there are
        any: records that name a supporting sentence which does not exist; a warning names each.

    Raises
    ------
    ValueError
        As `task_examples`.
    """
    where, records = _records("hotpotqa", source, folder)
    order = _order(len(records), seed)
    pool = [records[i] for i in order[: n + _POOL]]
    make = partial(_at_length, length=length, count=count, others=pool, seed=seed or 0)
    made = [_made(make, "hotpotqa", record, i, where) for i, record in zip(order[:n], pool, strict=False)]
    refused = {_TOO_LONG: 0} | Counter(example for example in made if isinstance(example, str))
    return [example for example in made if isinstance(example, Example)], refused


def _at_length(record: Record, name: str, **how: Any) -> Example | str:
    """The example, or why there is none."""
    try:
        return hotpotqa_at_length(record, name, **how)
    except TooLong:
        return _TOO_LONG
    except NoSuchSentence as error:
        warnings.warn(str(error), stacklevel=2)
        return _FAULTY


def _records(kind: str, source: str, folder: Path | str | None) -> tuple[str, Sequence[Record]]:
    """Where the records of a data set were found, and the records."""
    if kind not in TASKS:
        raise ValueError(f"unknown task {kind!r}: choose one of {', '.join(TASKS)}")
    if source not in SOURCES:
        raise ValueError(f"source must be one of {', '.join(SOURCES)}, got {source!r}")
    return hub_records(kind) if source == "hub" else folder_records(kind, folder)


def _order(n: int, seed: int | None) -> list[int]:
    """Indices of ``n`` records: as they stand, or drawn with a seed."""
    order = list(range(n))
    if seed is not None:
        random.Random(seed).shuffle(order)
    return order


def folder_records(kind: str, folder: Path | str | None) -> tuple[str, Sequence[Record]]:
    """Name of the file that was read, and its records; ValueError where there is none or it is malformed."""
    if folder is None:
        raise ValueError(f"no folder of records for {kind}: set FLASHTRACE_DATA_DIR, or the profile's data_dir")
    folder, task = Path(folder).expanduser(), TASKS[kind]
    for name in task.files:
        if (folder / name).is_file():
            return str(folder / name), read_records(folder / name)
    if task.clone and (folder / _PRACTICE).is_dir():
        return str(folder / _PRACTICE), read_exercises(folder / _PRACTICE)
    looked = [*task.files, *([_PRACTICE] if task.clone else [])]
    raise ValueError(f"{folder} holds no {kind}: looked for {', '.join(looked)}")


def hub_records(kind: str) -> tuple[str, Sequence[Record]]:
    """The same from the hub; ValueError where it cannot be reached or does not hold the data set."""
    found = TASKS[kind].hub
    if found is None:
        raise ValueError(f"{kind} is not on the hub: clone {TASKS[kind].clone} and name the clone as the folder")
    try:
        if found.file:
            from huggingface_hub import hf_hub_download

            return f"hub:{found.id}", read_records(Path(hf_hub_download(found.id, found.file, repo_type="dataset")))
        from datasets import load_dataset  # slow to import, and only wanted here

        return f"hub:{found.id}", load_dataset(found.id, found.config, split=found.split)
    except OSError as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"cannot load {kind} ({found.id}) from the hub: {reason}. Without a network use a folder of records "
            "(FLASHTRACE_DATA_DIR)"
        ) from error


def _made(make: Callable[[Record, str], Any], kind: str, record: Record, index: int, where: str) -> Any:
    """The example of a record; whatever is wrong with it is said with the place it comes from."""
    name = next((str(record[key]) for key in _ID if record.get(key)), f"{kind}-{index}")
    try:
        return make(record, name)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:  # a field of another type
        what = str(error) if isinstance(error, ValueError) else f"{type(error).__name__} at {error}"
        raise ValueError(f"{where}, record {index} ({name}): {what}") from error
