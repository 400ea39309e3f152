"""Records of a data set as examples, from a folder in the published formats or from the hub.

Nothing is skipped in silence: a file, record or field that does not fit is an error that names it.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .example import Example
from .record_files import Record, read_exercises, read_records
from .registry import TASKS

SOURCES = ("folder", "hub")
_PRACTICE = "exercises/practice"  # in a clone of exercism/python
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
    first: dict[str, Example] = {}
    for record, name, place in drawn_records(kind, source, folder, seed):
        if len(first) == n:
            break
        example = example_of(record, name, place, TASKS[kind].example)
        first.setdefault(example.prompt, example)
    return list(first.values())


def drawn_records(
    kind: str, source: str, folder: Path | str | None, seed: int | None
) -> Iterator[tuple[Record, str, str]]:
    """The records of a data set as they are drawn, each with its name and the place it comes from."""
    if kind not in TASKS:
        raise ValueError(f"unknown task {kind!r}: choose one of {', '.join(TASKS)}")
    if source not in SOURCES:
        raise ValueError(f"source must be one of {', '.join(SOURCES)}, got {source!r}")
    where, records = hub_records(kind) if source == "hub" else folder_records(kind, folder)
    order = list(range(len(records)))
    if seed is not None:
        random.Random(seed).shuffle(order)
    for i in order:
        record = records[i]
        name = next((str(record[key]) for key in _ID if record.get(key)), f"{kind}-{i}")
        yield record, name, f"{where}, record {i} ({name})"


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
    task = TASKS[kind]
    if task.hub is None:
        raise ValueError(f"{kind} is not on the hub: clone {task.clone} and name the clone as the folder")
    try:
        if task.hub_file:
            from huggingface_hub import hf_hub_download

            return f"hub:{task.hub}", read_records(Path(hf_hub_download(task.hub, task.hub_file, repo_type="dataset")))
        from datasets import load_dataset  # slow to import, and only wanted here

        return f"hub:{task.hub}", load_dataset(task.hub, task.config, split=task.split)
    except OSError as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"cannot load {kind} ({task.hub}) from the hub: {reason}. Without a network use a folder of records "
            "(--data, or FLASHTRACE_DATA_DIR)"
        ) from error


def example_of(record: Record, name: str, place: str, make: Callable[[Record, str], Example]) -> Example:
    """The example that ``make`` makes of a record; whatever is wrong with it is said with the place it comes from."""
    try:
        return make(record, name)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:  # a field of another type
        what = str(error) if isinstance(error, ValueError) else f"{type(error).__name__} at {error}"
        raise ValueError(f"{place}: {what}") from error
