"""Many prompts explained with one model: a folder of traces, pages and an index, which resumes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from .._version import __version__
from ..attribution import Method
from ..files import write_text
from ..fingerprints import fingerprint, model_fingerprint
from ..methods.by_name import chosen_method
from ..text.checks import without_end_tokens
from ..text.locate import Locator
from ..trace import Trace, trace
from ..viewer.batch_index import Row, index_page
from ..viewer.trace_json import FORMAT
from .records import Record, Refused, as_records, read_records

__all__ = ["Entry", "Record", "Refused", "Settings", "as_records", "check_out", "read_records", "run", "trace_many"]

TRACES, INDEX, SUMMARY = "traces", "index.html", "summary.json"
SUMMARY_FORMAT = "flashtrace batch 1"


@dataclass(frozen=True)
class Settings:
    """What is the same for every record of a batch; the fields are those of `trace`.

    Parameters
    ----------
    method : Method
    max_new_tokens : int
    system : str, optional
    template : bool
    template_kwargs : mapping, optional
    sentences : bool, optional
    """

    method: Method
    max_new_tokens: int = 512
    system: str | None = None
    template: bool = True
    template_kwargs: Mapping[str, Any] | None = None
    sentences: bool | None = None

    def key(self, model: torch.nn.Module, tokenizer: Any) -> list[Any]:
        """What, beside a record, shapes its trace."""
        options = {**vars(self), "method": [self.method.name, type(self.method).__name__, self.method.options()]}
        options["template_kwargs"] = dict(self.template_kwargs or {})
        template = getattr(tokenizer, "chat_template", None)
        return [FORMAT, __version__, model_fingerprint(model), template, options]


@dataclass(frozen=True)
class Entry:
    """What became of one record.

    Parameters
    ----------
    id : str
    line : int
        Line of the file, or place in the sequence, counted from 1.
    json, page : Path, optional
        The trace (`Trace.from_json` reads it) and its page; None where the record failed or no page was asked for.
    error : str, optional
        Why there is none.
    made : bool
        False where the trace was there already.
    prompt, response, evidence : str
        Their beginnings, and the sentence of the input that matters most.
    share : float
        Share of that sentence in the importance of the input.
    """

    id: str
    line: int
    json: Path | None = None
    page: Path | None = None
    error: str | None = None
    made: bool = False
    prompt: str = ""
    response: str = ""
    evidence: str = ""
    share: float = 0.0


def trace_many(
    model: torch.nn.Module,
    tokenizer: Any,
    records: str | Path | Iterable[Mapping[str, Any]],
    folder: str | Path,
    *,
    hops: int | None = None,
    method: Method | str | None = None,
    input: Locator = "auto",
    reasoning: Locator = "auto",
    output: Locator = "auto",
    max_new_tokens: int = 512,
    system: str | None = None,
    template: bool = True,
    template_kwargs: Mapping[str, Any] | None = None,
    sentences: bool | None = None,
    pages: bool = True,
    progress: bool = True,
) -> list[Entry]:
    r"""Explain many answers of one model, and keep each trace in a folder.

    ``folder/traces/NAME.json`` and ``.html`` are a record's trace and page, ``folder/index.html`` links to all of
    them, ``folder/summary.json`` lists them. A record whose trace is there under the same settings is not traced
    again; one that changed is. Each file is written whole or not at all, so an interrupted batch goes on where it was.

    Parameters
    ----------
    model, tokenizer
        As in `trace`.
    records : path of a JSON Lines file, or iterable of mappings
        A record has ``prompt`` (a text, or messages), and may have ``response``, ``id`` (else ``record-1``, …), and
        ``input``, ``reasoning``, ``output``: passages in the words of the command line (``"re:is (\d+)"``,
        ``"tokens:138:143"``, ``"none"``, …), patterns or token ranges.
    folder : str or Path
    input, reasoning, output
        Passages of records that name none of their own.
    hops, method, max_new_tokens, system, template, template_kwargs, sentences
        As in `trace`.
    pages : bool
        Write a page for each record.
    progress : bool
        Show a bar, in a terminal.

    Returns
    -------
    list of Entry
        One for each record, in order; ``error`` says why a record could not be traced, the others are not held up.

    Raises
    ------
    ValueError
        If the file cannot be read, there are no records, two have the same id, or the folder cannot be written.
    """
    check_out(Path(folder))
    passages = {"input": input, "reasoning": reasoning, "output": output}
    read = read_records if isinstance(records, str | Path) else as_records
    settings = Settings(chosen_method(method, hops), max_new_tokens, system, template, template_kwargs, sentences)
    found = read(records, passages)
    return run(lambda: (model, tokenizer), found, Path(folder), settings, pages=pages, progress=progress)


def check_out(folder: Path) -> None:
    """ValueError where the folder is a file, or holds an index that no batch wrote."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: name a folder for the traces")
    if (folder / INDEX).exists() and not _is_batch(folder):
        raise ValueError(f"{folder} has an {INDEX} that no batch wrote: name another folder, so that it is kept")


def _is_batch(folder: Path) -> bool:
    """Whether the folder's summary is one of ours."""
    try:
        found = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("format") == SUMMARY_FORMAT


def run(
    load: Callable[[], tuple[torch.nn.Module, Any]],
    records: list[Record | Refused],
    folder: Path,
    settings: Settings,
    *,
    pages: bool = True,
    progress: bool = True,
) -> list[Entry]:
    """The work of `trace_many`; ``load`` gives model and tokenizer, and is called only where a record can be traced."""
    whole = [record for record in records if isinstance(record, Record)]
    model, tokenizer = load() if whole else (None, None)
    shared = settings.key(model, tokenizer) if whole else []
    entries = {r.id: Entry(r.id, r.line, error=r.error) for r in records if isinstance(r, Refused)}
    for record in tqdm(whole, desc="trace", unit="record", disable=None if progress else True):
        key = fingerprint([shared, record.content()])
        try:
            entries[record.id] = _traced(model, tokenizer, record, folder / TRACES, settings, key, pages)
        except OSError as error:  # a full disk is no fault of the record, and the next one would meet it too
            raise ValueError(f"cannot write the trace of {record.id!r} into {folder}: {error.strerror}") from error
        except (ValueError, RuntimeError, MemoryError) as error:
            entries[record.id] = Entry(record.id, record.line, error=_one_line(error))
    ordered = [entries[record.id] for record in records]
    _write_overview(folder, ordered, settings)
    return ordered


def _traced(
    model: torch.nn.Module, tokenizer: Any, record: Record, folder: Path, settings: Settings, key: str, pages: bool
) -> Entry:
    """The trace of one record, found or made, with its page."""
    path, page = folder / f"{record.name}.json", folder / f"{record.name}.html"
    result = _stored(path, key)
    made = result is None
    if made:
        result = _explained(model, tokenizer, record, settings)
        result.attribution.metadata["record"] = {"id": record.id, "key": key}
        page.unlink(missing_ok=True)  # a page belongs to the trace beside it, even if this process ends here
        result.to_json(path)
    if pages and not page.exists():
        result.to_html(page)
    evidence = result.top(1, by="sentence")
    sentence, share = (evidence["sentence"][0], float(evidence["share"][0])) if len(evidence) else ("", 0.0)
    prompt = record.prompt if isinstance(record.prompt, str) else _last_words(record.prompt)
    return Entry(
        record.id, record.line, path, page if pages else None, None, made,
        _beginning(prompt), _beginning(without_end_tokens(result.response)), _beginning(sentence), share,
    )  # fmt: skip


def _explained(model: torch.nn.Module, tokenizer: Any, record: Record, settings: Settings) -> Trace:
    return trace(
        model, tokenizer, record.prompt, record.response, record.output, record.reasoning,
        input=record.input, **vars(settings),
    )  # fmt: skip


def _stored(path: Path, key: str) -> Trace | None:
    """The trace in a file, if it is whole and was made of the same record under the same settings."""
    try:
        found = Trace.from_json(path)
    except (OSError, ValueError):
        return None
    made_of = found.attribution.metadata.get("record")
    return found if isinstance(made_of, dict) and made_of.get("key") == key else None


def _last_words(messages: Any) -> str:
    """Content of the last message that is not the assistant's."""
    texts = [m.get("content") for m in messages if m.get("role") != "assistant"]
    parts = texts[-1] if texts else ""
    return parts if isinstance(parts, str) else " ".join(str(part.get("text", "")) for part in parts or [])


def _beginning(text: str, length: int = 160) -> str:
    """The first letters of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def _one_line(error: Exception) -> str:
    words = " ".join(str(error).split()) or "no reason given"
    return words if isinstance(error, ValueError) else f"{type(error).__name__}: {words}"


def _write_overview(folder: Path, entries: list[Entry], settings: Settings) -> None:
    """`summary.json`, then `index.html`, which is taken for ours where the summary stands beside it."""
    listed = []
    for entry in entries:
        row = asdict(entry)
        for kind in ("json", "page"):
            row[kind] = row[kind] and row[kind].relative_to(folder).as_posix()
        listed.append(row)
    summary = {"format": SUMMARY_FORMAT, "method": settings.method.name, "options": settings.method.options()}
    text = json.dumps({**summary, "records": listed}, ensure_ascii=False, indent=1, default=str)
    rows = [
        Row(e.id, e.line, f"{TRACES}/{e.page.name}" if e.page else None, f"{TRACES}/{e.json.name}" if e.json else None,
            e.error, e.prompt, e.response, e.evidence, e.share)
        for e in entries
    ]  # fmt: skip
    try:
        write_text(folder / SUMMARY, text + "\n")
        write_text(folder / INDEX, index_page(rows, settings.method.name))
    except OSError as error:
        raise ValueError(f"cannot write the index into {folder}: {error.strerror}") from error
