"""Where records come from: the hub, a folder in the published formats, or generators of synthetic ones.

Every source gives the same examples (`registry.TASKS`). Nothing is skipped in silence: a file, record or field that
does not fit is an error that names it.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .example import Example
from .hotpotqa import TooLong, hotpotqa_at_length
from .record_files import Record, read_records
from .records import NoSuchSentence
from .registry import TASKS, HubSet
from .synthetic import by_task
from .synthetic.splits import check_split

SOURCES = ("standin", "synthetic", "folder", "hub")
REAL = ("folder", "hub")
_POOL = 40  # further records of HotpotQA whose paragraphs fill long prompts: about 55,000 tokens
_TOO_LONG, _FAULTY = "too long", "faulty"  # why a record of HotpotQA gives no example
_ID = ("unique_id", "_id", "id", "slug")


def task_examples(
    kind: str, n: int | None, *, source: str = "standin", folder: Path | str | None = None, seed: int | None = 0
) -> list[Example]:
    """Examples of a reasoning task.

    Parameters
    ----------
    kind : {"math500", "math", "gsm8k", "morehopqa", "hotpotqa", "exercism"}
        Which data set.
    n : int or None
        Examples wanted; None for all there are (synthetic ones have no end: a number is needed).
    source : {"standin", "synthetic", "folder", "hub"}
        Synthetic records of few templates; problems of `synthetic.by_task`, in many wordings and of hundreds of tokens
        (records of few templates where no generator stands for the data set); a folder laid out as ``TASKS`` says; or
        the hub.
    folder : path-like, optional
        The folder of ``source="folder"``. For ``"exercism"`` a clone of exercism/python will do as well.
    seed : int or None
        Real records are drawn at random with this seed, as the paper draws its 100 (appendix E.4); None keeps their
        order. Of synthetic records it chooses which.

    Returns
    -------
    list of Example
        Fewer than ``n`` where the data set has fewer, or has a prompt twice: that is taken once.

    Raises
    ------
    ValueError
        If the kind or the source is unknown, a file is missing or malformed, or a record lacks a field.
    """
    _check(kind, source)
    if source not in REAL:
        if n is None:
            raise ValueError("synthetic records have no end: say how many (n)")
        generated = source == "synthetic" and kind in by_task.GENERATORS
        make = by_task.generated_examples if generated else synthetic_examples
        return _synthetic(make, kind, n, 0 if seed is None else seed)
    where, records = hub_records(kind) if source == "hub" else folder_records(kind, folder)
    drawn = (_made(TASKS[kind].example, kind, records[i], i, where) for i in _order(len(records), seed))
    return _distinct(drawn, n)


def _synthetic(make: Callable[[str, int, int], list[Example]], kind: str, n: int, seed: int) -> list[Example]:
    """``n`` examples with different prompts: a template of few numbers is filled twice in the same way."""
    for drawn in (n, 2 * n, 4 * n, 8 * n):
        found = _distinct(make(kind, drawn, seed), n)
        if len(found) == n:
            break
    return found


def _distinct(examples: Iterable[Example], n: int | None) -> list[Example]:
    """The first example of every prompt, until there are ``n``."""
    first: dict[str, Example] = {}
    for example in examples:
        if len(first) == n:
            break
        first.setdefault(example.prompt, example)
    return list(first.values())


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
    if kind not in TASKS:
        raise ValueError(f"unknown kind {kind!r}: choose one of {', '.join(TASKS)}")
    check_split(split)
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise ValueError(f"n must be a whole number >= 0, got {n!r}")
    return [_record(kind, seed, split, i) for i in range(n)]


def synthetic_examples(kind: str, n: int, seed: int = 0, split: str = "eval") -> list[Example]:
    """The same as examples; see `synthetic_records`."""
    records = synthetic_records(kind, n, seed, split)
    return [TASKS[kind].example(record, _id(kind, seed, split, i)) for i, record in enumerate(records)]


def _record(kind: str, seed: int, split: str, i: int) -> dict[str, Any]:
    task = TASKS[kind]
    record = task.synthetic(random.Random(f"{kind}|{split}|{seed}|{i}"), split)
    return {task.id_field: _id(kind, seed, split, i), **record} if task.id_field else record


def _id(kind: str, seed: int, split: str, i: int) -> str:
    return f"{kind}-{split}-s{seed}-{i}"


def documents_examples(
    n: int,
    length: int,
    count: Callable[[str], int],
    *,
    source: str = "standin",
    folder: Path | str | None = None,
    seed: int | None = 0,
    gold: str = "sentence",
) -> tuple[list[Example], dict[str, int]]:
    """Examples of HotpotQA whose prompts are filled up to a length; see `hotpotqa.hotpotqa_at_length`.

    Parameters
    ----------
    n : int
        Records looked at. The paragraphs of up to ``_POOL`` further ones are distractors.
    length, count, gold
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
    _check("hotpotqa", source)
    if source == "synthetic":
        return by_task.generated_documents(n, length, count, seed or 0), {_TOO_LONG: 0}
    if source == "standin":
        where, records = "synthetic records", synthetic_records("hotpotqa", n + _POOL, seed or 0)
    else:
        where, records = hub_records("hotpotqa") if source == "hub" else folder_records("hotpotqa", folder)
    order = _order(len(records), None if source == "standin" else seed)
    pool = [records[i] for i in order[: n + _POOL]]
    make = partial(_at_length, length=length, count=count, others=pool, gold=gold, seed=seed or 0)
    made = [_made(make, "hotpotqa", record, i, where) for i, record in zip(order[:n], pool, strict=False)]
    refused = {_TOO_LONG: 0} | Counter(example for example in made if isinstance(example, str))
    return [example for example in made if isinstance(example, Example)], refused


def _at_length(
    record: Record, name: str, length: int, count: Callable[[str], int], others: Sequence[Record], gold: str, seed: int
) -> Example | str:
    """The example, or why there is none."""
    try:
        return hotpotqa_at_length(record, name, length, count, others=others, gold=gold, seed=seed)
    except TooLong:
        return _TOO_LONG
    except NoSuchSentence as error:
        warnings.warn(str(error), stacklevel=2)
        return _FAULTY


def _check(kind: str, source: str) -> None:
    if kind not in TASKS:
        raise ValueError(f"unknown task {kind!r}: choose one of {', '.join(TASKS)}")
    if source not in SOURCES:
        raise ValueError(f"source must be one of {', '.join(SOURCES)}, got {source!r}")


def _order(n: int, seed: int | None) -> list[int]:
    """Indices of ``n`` records: as they stand, or drawn with a seed."""
    order = list(range(n))
    if seed is not None:
        random.Random(seed).shuffle(order)
    return order


def folder_records(kind: str, folder: Path | str | None) -> tuple[str, Sequence[Record]]:
    """Name of the file that was read, and its records; ValueError where there is none or it is malformed."""
    if folder is None:
        raise ValueError(f"no folder of real records for {kind}: set FLASHTRACE_DATA_DIR, or the profile's data_dir")
    folder = Path(folder).expanduser()
    task = TASKS[kind]
    for name in task.files:
        if (folder / name).is_file():
            return str(folder / name), read_records(folder / name)
    if task.layout and (folder / task.layout.folder).is_dir():
        inside = folder / task.layout.folder
        return str(inside), [task.layout.read(path) for path in sorted(inside.glob(task.layout.pattern))]
    looked = [*task.files, *([task.layout.folder] if task.layout else [])]
    raise ValueError(f"{folder} holds no {kind}: looked for {', '.join(looked)}")


def hub_records(kind: str) -> tuple[str, Sequence[Record]]:
    """The same from the hub; ValueError where it cannot be reached or does not hold the data set."""
    found = TASKS[kind].hub
    if found is None:
        origin = TASKS[kind].layout.origin if TASKS[kind].layout else ""
        instead = f"clone {origin} and name the clone as the folder" if origin else "name a folder that holds it"
        raise ValueError(f"{kind} is not on the hub: {instead}")
    try:
        return f"hub:{found.id}", (_load_file if found.file else _load_set)(found)
    except (OSError, ConnectionError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"cannot load {kind} ({found.id}) from the hub: {reason}. Without a network use a "
            "folder of records (FLASHTRACE_DATA_DIR) or synthetic records"
        ) from error


def _load_set(found: HubSet) -> Sequence[Record]:
    from datasets import load_dataset  # slow to import, and only wanted here

    if isinstance(found.config, tuple):
        return [record for config in found.config for record in load_dataset(found.id, config, split=found.split)]
    return load_dataset(found.id, found.config, split=found.split)


def _load_file(found: HubSet) -> Sequence[Record]:
    from huggingface_hub import hf_hub_download

    return read_records(Path(hf_hub_download(found.id, found.file, repo_type="dataset")))


def _made(make: Callable[[Record, str], Any], kind: str, record: Record, index: int, where: str) -> Any:
    """The example of a record; whatever is wrong with it is said with the place it comes from."""
    name = next((str(record[key]) for key in _ID if record.get(key)), f"{kind}-{index}")
    try:
        return make(record, name)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:  # a field of another type
        what = str(error) if isinstance(error, ValueError) else f"{type(error).__name__} at {error}"
        raise ValueError(f"{where}, record {index} ({name}): {what}") from error
