"""Many prompts explained with one model: JSON Lines in, JSON Lines and a page for each out; what is done is kept."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ._version import __version__
from .files import write_text
from .fingerprints import fingerprint, model_fingerprint
from .methods import Method, chosen_method
from .model.wrapped import unwrap
from .text.locate import parse_locator
from .trace import Trace, trace
from .viewer.trace_json import FORMAT

TRACES, PAGES = "traces.jsonl", "pages"
FIELDS = ("id", "prompt", "messages", "response", "input", "reasoning", "output")


@dataclass(frozen=True)
class Entry:
    """What became of one record.

    Parameters
    ----------
    id : str
    page : Path, optional
        None where the record failed.
    error : str, optional
        Why there is no trace.
    made : bool
        False where the trace was there already.
    """

    id: str
    page: Path | None = None
    error: str | None = None
    made: bool = False


def trace_many(
    model: torch.nn.Module,
    tokenizer: Any,
    records: str | Path | Iterable[Mapping[str, Any]],
    folder: str | Path,
    *,
    method: Method | str | None = None,
    hops: int | None = None,
    progress: bool = True,
    **options: Any,
) -> list[Entry]:
    r"""Explain many answers of one model, and keep the traces in a folder.

    ``folder/traces.jsonl`` has a line for each record (``id``, ``key`` and ``trace``, which `Trace.from_dict` reads, or
    ``error``), ``folder/pages`` its page. A record whose trace is there under the same settings is not traced again.
    The file is written line by line, so an interrupted batch goes on where it was.

    Parameters
    ----------
    model, tokenizer
        As in `trace`.
    records : path of a JSON Lines file, or iterable of mappings
        A record has ``prompt`` (a text) or ``messages``, and may have ``response``, ``id`` (else ``record-1``, …), and
        ``input``, ``reasoning``, ``output``: passages in the words of the command line (``"re:is (\d+)"``,
        ``"tokens:138:143"``, ``"none"``, …).
    folder : str or Path
    method, hops, **options
        As in `trace`, for every record; passages count for those that name none of their own.

    Returns
    -------
    list of Entry
        In the order of the records. A record that cannot be traced has an ``error``; the others go on.

    Raises
    ------
    ValueError
        If the records cannot be read or two have the same id, ``traces.jsonl`` is another's file, or there is no such
        method.
    """
    method, folder, model = chosen_method(method, hops), Path(folder), unwrap(model)
    given = _named(read_records(records) if isinstance(records, str | Path) else list(records))
    template = getattr(tokenizer, "chat_template", None)
    how = {name: str(value) for name, value in options.items()}
    shared = [FORMAT, __version__, model_fingerprint(model), template, method.name, method.options(), how]
    done = _done(folder / TRACES)
    write_text(folder / TRACES, "".join(line for _, line in done.values()))  # without a line that is cut off
    lines, entries = [], []
    with open(folder / TRACES, "a", encoding="utf-8") as file:
        for name, record in tqdm(given.items(), desc="trace", unit="record", disable=None if progress else True):
            key = fingerprint([shared, json.dumps(record, default=str)])
            page = folder / PAGES / f"{file_name(name)}.html"
            stored, line = done.get(name, ({}, ""))
            made = stored.get("key") != key
            try:
                if made:
                    page.unlink(missing_ok=True)  # a page belongs to the line beside it, even if this process ends here
                    result = _traced(model, tokenizer, record, method, options)
                    line = json.dumps({"id": name, "key": key, "trace": result.to_dict()}, ensure_ascii=False) + "\n"
                    file.write(line)
                    file.flush()
                if made or not page.exists():
                    (result if made else Trace.from_dict(stored["trace"])).to_html(page)
                entries.append(Entry(name, page, made=made))
            except (ValueError, RuntimeError, MemoryError) as error:
                why = " ".join(str(error).split()) or type(error).__name__
                line = json.dumps({"id": name, "key": "", "error": why}, ensure_ascii=False) + "\n"
                entries.append(Entry(name, error=why))
            lines.append(line)
    write_text(folder / TRACES, "".join(lines))
    return entries


def read_records(path: str | Path) -> list[Any]:
    """The objects of a JSON Lines file, empty lines left out; ValueError that names the line that is none."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")  # a separator of Unicode ends no line
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the records {path}: {error}") from error
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number} is no JSON: {error}") from error
    return records


def file_name(identifier: str) -> str:
    """A name without a path in it, different for different ids."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", identifier):
        return identifier
    letters = re.sub(r"[^A-Za-z0-9]+", "-", identifier)[:40].strip("-") or "record"
    return f"{letters}~{hashlib.sha256(identifier.encode()).hexdigest()[:16]}"  # no id that is safe has a ~


def _named(records: list[Any]) -> dict[str, Any]:
    """Records by id; ValueError where there is none, or two have one id."""
    if not records:
        raise ValueError("there are no records")
    named = {}
    for number, record in enumerate(records, start=1):
        name = str((isinstance(record, Mapping) and record.get("id")) or f"record-{number}")
        if name in named:
            raise ValueError(f"two records have the id {name!r}: give each one of its own")
        named[name] = record
    return named


def _done(path: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """What a file of ours holds by id, and its lines; the last may be cut off. ValueError where it is another's."""
    # a separator of Unicode ends no line
    found, lines = {}, re.findall(r".*\n|.+", path.read_text(encoding="utf-8")) if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            stored = json.loads(line)
            if "trace" in stored:
                found[stored["id"]] = stored, line
            elif "error" not in stored:
                raise ValueError("neither trace nor error")
        except (ValueError, TypeError, KeyError) as error:
            if number < len(lines) or line.endswith("\n"):
                raise ValueError(f"{path}, line {number} is not of a batch: name another folder ({error})") from error
    return found


def _traced(model: torch.nn.Module, tokenizer: Any, record: Any, method: Method, options: Mapping[str, Any]) -> Trace:
    """The trace of one record; ValueError where something is wrong with it."""
    if not isinstance(record, Mapping) or ("prompt" in record) == ("messages" in record) or set(record) - set(FIELDS):
        raise ValueError(f"a record is an object with a prompt or messages, and any of {', '.join(FIELDS)}")
    spans = {name: record[name] for name in ("input", "reasoning", "output") if record.get(name) is not None}
    spans = {name: parse_locator(value) if isinstance(value, str) else tuple(value) for name, value in spans.items()}
    prompt = record["prompt"] if "prompt" in record else record["messages"]
    return trace(model, tokenizer, prompt, record.get("response"), method=method, **{**options, **spans})
