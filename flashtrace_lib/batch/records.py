"""The records of a batch: one prompt each, with what is known about it, from a file or from a program."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..text.chat_template import Messages
from ..text.checks import check_conversation, check_passages
from ..text.locate import Locator, parse_locator

FIELDS = ("prompt", "messages", "response", "id", "input", "reasoning", "output")
PASSAGES = ("input", "reasoning", "output")
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")  # ids that are file names as they stand


@dataclass(frozen=True)
class Record:
    """One prompt to explain.

    Parameters
    ----------
    line : int
        Line of the file, or place in a sequence, counted from 1.
    id : str
        Unique within a batch.
    prompt : str or list of messages
    response : str, optional
        Default: the model writes it, or it is the last message of the prompt.
    input, reasoning, output : Locator
        As in `trace`.
    """

    line: int
    id: str
    prompt: str | Messages
    response: str | None = None
    input: Locator = "auto"
    reasoning: Locator = "auto"
    output: Locator = "auto"

    @property
    def name(self) -> str:
        """File name for the record: the id itself, or where that is none, its letters and a hash behind ``~``."""
        return file_name(self.id)

    def content(self) -> list[Any]:
        """What shapes the trace, JSON-ready."""
        prompt = json.loads(json.dumps(self.prompt))
        return [prompt, self.response, *(_plain(getattr(self, name)) for name in PASSAGES)]


@dataclass(frozen=True)
class Refused:
    """A record that cannot be traced, and why."""

    line: int
    id: str
    error: str


def read_records(path: str | Path, passages: Mapping[str, Locator] | None = None) -> list[Record | Refused]:
    """Records of a JSON Lines file: one object a line, empty lines left out.

    Parameters
    ----------
    path : str or Path
    passages : mapping, optional
        ``input``, ``reasoning``, ``output`` of records that have none of their own.

    Returns
    -------
    list of Record or Refused
        In the order of the file; a broken line or a passage that does not occur is refused with its reason.

    Raises
    ------
    ValueError
        If the file cannot be read or holds nothing, or two lines have the same id (both are named).
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")  # a line separator of Unicode within a text ends no line
    except OSError as error:
        raise ValueError(f"cannot read the records {path}: {error.strerror}") from error
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip(b" \t\r\xef\xbb\xbf")]
    if not numbered:
        raise ValueError(f'{path} is empty: it must have a record on each line, such as {{"prompt": "…"}}')
    return _unique([_parsed(number, line, passages or {}) for number, line in numbered], f"{path}: lines")


def as_records(
    items: Iterable[Mapping[str, Any] | Record | Refused], passages: Mapping[str, Locator] | None = None
) -> list[Record | Refused]:
    """Records of a sequence of mappings with the same fields; those that are records already stay as they are."""
    records = [
        item if isinstance(item, Record | Refused) else _record(number, item, passages or {})
        for number, item in enumerate(items, start=1)
    ]
    if not records:
        raise ValueError("there are no records: give at least one mapping with a prompt")
    return _unique(records, "records")


def file_name(identifier: str) -> str:
    """A name without a path in it, different for different ids."""
    if _SAFE.fullmatch(identifier):
        return identifier
    letters = re.sub(r"[^A-Za-z0-9]+", "-", identifier)[:40].strip("-") or "record"
    return f"{letters}~{hashlib.sha256(identifier.encode()).hexdigest()[:16]}"  # no id that is safe has a ~


def _unique(records: list[Record | Refused], where: str) -> list[Record | Refused]:
    """The records; ValueError where two have one id."""
    lines: dict[str, list[int]] = {}
    for record in records:
        lines.setdefault(record.id, []).append(record.line)
    twice = [f"{_listed(found)} have the id {name!r}" for name, found in lines.items() if len(found) > 1]
    if twice:
        more = f", and {len(twice) - 5} more ids" if len(twice) > 5 else ""
        raise ValueError(f"{where} {'; '.join(twice[:5])}{more}: give each record an id of its own")
    return records


def _listed(lines: list[int]) -> str:
    shown = [str(line) for line in lines[:9]] + ["…"] * (len(lines) > 9)
    return ", ".join(shown[:-1]) + " and " + shown[-1]


def _parsed(number: int, line: bytes, passages: Mapping[str, Locator]) -> Record | Refused:
    try:
        data = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return Refused(number, f"record-{number}", "the line is no UTF-8 text: save the file as UTF-8")
    except (ValueError, RecursionError) as error:
        what = getattr(error, "msg", None) or str(error)
        at = f" (column {error.colno})" if hasattr(error, "colno") else ""
        return Refused(number, f"record-{number}", f"the line is no JSON: {what}{at}")
    return _record(number, data, passages)


def _record(number: int, data: Any, passages: Mapping[str, Locator]) -> Record | Refused:
    """One record, checked as far as that is possible without a model."""
    identifier = f"record-{number}"
    try:
        if not isinstance(data, Mapping):
            raise ValueError(f'a record is an object such as {{"prompt": "…"}}, got {type(data).__name__}')
        given = {name: value for name, value in data.items() if value is not None}  # null says as much as nothing
        identifier = _identifier(given.get("id"), identifier)
        return _checked(number, identifier, given, passages)
    except ValueError as error:
        return Refused(number, identifier, str(error))


def _identifier(value: Any, default: str) -> str:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise ValueError(f"the id {value!r} is neither a text nor a whole number")
    if re.search(r"[\ud800-\udfff]", str(value)):
        raise ValueError("the id holds half a surrogate pair: give it as proper text")
    return str(value)


def _checked(number: int, identifier: str, given: dict[str, Any], passages: Mapping[str, Locator]) -> Record:
    """A record of fields that are not None; ValueError where something is wrong with one of them."""
    unknown = [str(name) for name in given if name not in FIELDS]
    if unknown:
        raise ValueError(f"unknown field {', '.join(map(repr, unknown))}: a record may have {', '.join(FIELDS)}")
    if ("prompt" in given) == ("messages" in given):
        raise ValueError("a record has either a prompt or messages: give one of them")
    prompt, response = given.get("prompt", given.get("messages")), given.get("response")
    if isinstance(prompt, str):
        if not prompt.strip():
            raise ValueError("the prompt is empty: there is no input to explain from")
    elif isinstance(prompt, list | tuple) and prompt:
        check_conversation(prompt)
    else:
        raise ValueError('the prompt is neither a text nor a list of messages ({"role": …, "content": …})')
    if response is not None and not (isinstance(response, str) and response.strip()):
        raise ValueError("the response is empty, or no text: leave it out to let the model write it")
    spans = {name: _locator(name, given.get(name, passages.get(name, "auto"))) for name in PASSAGES}
    check_passages(prompt, response, **spans)
    return Record(number, identifier, prompt, response, **spans)


def _locator(name: str, value: Any) -> Locator:
    """A passage as text in the command line's words, a token range, or a pattern."""
    if isinstance(value, str):
        return parse_locator(value)
    if value is None or isinstance(value, re.Pattern):
        return value
    is_range = isinstance(value, list | tuple) and len(value) == 2 and all(type(i) is int for i in value)
    if not is_range:
        raise ValueError(f"{name} is neither a passage in words nor a token range [start, stop]: {value!r:.80}")
    return tuple(value)


def _plain(locator: Locator) -> Any:
    """A passage, JSON-ready, each kind apart from the others."""
    if isinstance(locator, re.Pattern):
        return ["re", locator.pattern, locator.flags]
    return ["text", locator] if isinstance(locator, str) else locator
