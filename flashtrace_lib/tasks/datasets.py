"""Where records come from: the hub, a folder in the published formats, or generators of synthetic ones.

Every source gives the same examples (`records.EXAMPLE_OF`). Nothing is skipped in silence: a file, record or field that
does not fit is an error that names it.
"""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .example import Example
from .hotpotqa import TooLong, hotpotqa_at_length
from .records import EXAMPLE_OF, NoSuchSentence
from .synthetic import FILES, GENERATORS, synthetic_examples, synthetic_records

SOURCES = ("standin", "folder", "hub")
Record = Mapping[str, Any]


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


_SUBJECTS = (
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra",
    "precalculus",
)  # fmt: skip
HUB = {
    "math500": HubSet("HuggingFaceH4/MATH-500"),
    "math": HubSet("EleutherAI/hendrycks_math", config=_SUBJECTS),
    "gsm8k": HubSet("openai/gsm8k", config="main"),
    "morehopqa": HubSet("alabnii/morehopqa", file="data/with_human_verification.json"),
    "hotpotqa": HubSet("hotpotqa/hotpot_qa", config="distractor", split="validation"),
}
# Names under which a folder may hold a data set; the first that is there is read.
FOLDER_FILES: dict[str, tuple[str, ...]] = {
    **{kind: (name,) for kind, name in FILES.items()},
    "hotpotqa": (FILES["hotpotqa"], "hotpotqa/train_original_format.json", "hotpotqa/hotpot_dev_distractor_v1.json"),
}
_PRACTICE = "exercises/practice"  # in a clone of exercism/python
_MATH = "MATH/test"  # as its authors publish it: one folder a subject, one file a problem
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
    source : {"standin", "folder", "hub"}
        Synthetic records; a folder laid out as ``FOLDER_FILES`` says; or the hub.
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
    if source == "standin":
        if n is None:
            raise ValueError("synthetic records have no end: say how many (n)")
        return _synthetic(kind, n, 0 if seed is None else seed)
    where, records = hub_records(kind) if source == "hub" else folder_records(kind, folder)
    drawn = (_made(EXAMPLE_OF[kind], kind, records[i], i, where) for i in _order(len(records), seed))
    return _distinct(drawn, n)


def _synthetic(kind: str, n: int, seed: int) -> list[Example]:
    """``n`` examples with different prompts: a template of few numbers is filled twice in the same way."""
    for drawn in (n, 2 * n, 4 * n, 8 * n):
        found = _distinct(synthetic_examples(kind, drawn, seed), n)
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


def documents_examples(
    n: int,
    length: int,
    count: Callable[[str], int],
    *,
    source: str = "standin",
    folder: Path | str | None = None,
    seed: int = 0,
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
    if source == "standin":
        where, records = "synthetic records", synthetic_records("hotpotqa", n + _POOL, seed)
    else:
        where, records = hub_records("hotpotqa") if source == "hub" else folder_records("hotpotqa", folder)
    order = _order(len(records), None if source == "standin" else seed)
    pool = [records[i] for i in order[: n + _POOL]]
    make = partial(_at_length, length=length, count=count, others=pool, gold=gold, seed=seed)
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
    if kind not in GENERATORS:
        raise ValueError(f"unknown task {kind!r}: choose one of {', '.join(GENERATORS)}")
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
    for name in FOLDER_FILES[kind]:
        if (folder / name).is_file():
            return str(folder / name), read_records(folder / name)
    if kind == "exercism" and (folder / _PRACTICE).is_dir():
        return str(folder / _PRACTICE), [_exercise(path) for path in sorted((folder / _PRACTICE).iterdir())]
    if kind == "math" and (folder / _MATH).is_dir():
        return str(folder / _MATH), [_problem(path) for path in sorted((folder / _MATH).glob("*/*.json"))]
    looked = [*FOLDER_FILES[kind], *{"exercism": [_PRACTICE], "math": [_MATH]}.get(kind, [])]
    raise ValueError(f"{folder} holds no {kind}: looked for {', '.join(looked)}")


def hub_records(kind: str) -> tuple[str, Sequence[Record]]:
    """The same from the hub; ValueError where it cannot be reached or does not hold the data set."""
    if kind not in HUB:
        raise ValueError(
            f"{kind} is not on the hub: clone https://github.com/exercism/python and name the clone as the folder"
        )
    found = HUB[kind]
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


def read_records(path: Path) -> list[Record]:
    """Records of a JSON list or of a file with one JSON object a line; ValueError names file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no UTF-8 text: {error}") from None
    if path.suffix == ".jsonl":
        lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
        records = [_parsed(line, f"{path}, line {i}") for i, line in lines]
    else:
        records = _parsed(text, str(path))
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ValueError(f"{path} must hold a list of records, each a JSON object")
    if not records:
        raise ValueError(f"{path} holds no records")
    return records


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{where} is no JSON: {error}") from None


def _exercise(folder: Path) -> Record:
    """One exercise of the repository, as a record: its text files by relative path."""
    files = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in (".md", ".py", ".json", ".toml")
    }
    return {"slug": folder.name, "files": files}


def _problem(path: Path) -> Record:
    """One problem of MATH in its authors' layout, named by subject and number."""
    record = _parsed(path.read_text(encoding="utf-8"), str(path))
    if not isinstance(record, dict):
        raise ValueError(f"{path} must hold one problem, a JSON object")
    return {**record, "unique_id": f"{path.parent.name}/{path.stem}"}


def _made(make: Callable[[Record, str], Any], kind: str, record: Record, index: int, where: str) -> Any:
    """The example of a record; whatever is wrong with it is said with the place it comes from."""
    name = next((str(record[key]) for key in _ID if record.get(key)), f"{kind}-{index}")
    try:
        return make(record, name)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:  # a field of another type
        what = str(error) if isinstance(error, ValueError) else f"{type(error).__name__} at {error}"
        raise ValueError(f"{where}, record {index} ({name}): {what}") from error
