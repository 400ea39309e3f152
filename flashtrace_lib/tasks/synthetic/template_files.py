"""Wordings of the synthetic problems: the YAML files in ``templates``, read once.

A file is read into the dataclass, dict or tuple that its reader names, and every mistake in it is a ValueError that
says in which line it stands.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml

_FOLDER = Path(__file__).parent / "templates"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML was built with it
_PLACEHOLDER = re.compile(r"<([a-z_]\w*)>")
_SENTENCE_END = re.compile(r"(?<=[.?!]) ")


class Text(str):
    """A text of a file. ``where`` is the place it was read from, such as ``"words.yaml, line 7"``."""

    where: str


@cache
def read_templates(file: str, shape: Any) -> Any:
    """Read a file of ``templates``.

    Parameters
    ----------
    file : str
        Its name, or the path of a file elsewhere.
    shape : type
        What the file holds: a dataclass (a mapping with exactly its fields), ``dict[str, shape]`` (a mapping with any
        names), ``tuple[str, ...]`` (a list of texts) or ``str`` (a `Text`).

    Raises
    ------
    ValueError
        With file and line: if the file is no YAML, lacks a field or has an unknown one, holds something else than the
        shape says, or has a name or an entry of a list twice.
    """
    path = _FOLDER / file
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        raise ValueError(f"{path.name}, line {error.problem_mark.line + 1}: {error.problem}") from None
    if node is None:
        raise ValueError(f"{path.name} is empty")
    return _read(node, shape, path.name)


def _read(node: yaml.Node, shape: Any, file: str) -> Any:
    if is_dataclass(shape):
        return _read_fields(node, shape, file)
    if get_origin(shape) is dict:
        return {name: _read(value, get_args(shape)[1], file) for name, value in _entries(node, file).items()}
    if get_origin(shape) is tuple:
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise ValueError(f"{_where(node, file)}: a list of texts is expected")
        return _distinct([_read_text(item, file) for item in node.value])
    return _read_text(node, file)


def _read_fields(node: yaml.Node, shape: type, file: str) -> Any:
    entries, types = _entries(node, file), get_type_hints(shape)
    for name in entries:
        if name not in types:
            raise ValueError(f"{name.where}: unknown field {str(name)!r}, known are {', '.join(types)}")
    if missing := [field.name for field in fields(shape) if field.name not in entries]:
        raise ValueError(f"{_where(node, file)}: lacks {', '.join(missing)}")
    return shape(**{str(name): _read(value, types[name], file) for name, value in entries.items()})


def _entries(node: yaml.Node, file: str) -> dict[Text, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        raise ValueError(f"{_where(node, file)}: a mapping of names is expected")
    names = _distinct([_read_text(key, file) for key, _ in node.value])
    return dict(zip(names, (value for _, value in node.value), strict=True))


def _read_text(node: yaml.Node, file: str) -> Text:
    if node.tag != "tag:yaml.org,2002:str":  # YAML takes an unquoted 12, yes or null for something else
        raise ValueError(f"{_where(node, file)}: a text is expected, in quotes where it is a number, yes, no or null")
    text = Text(node.value)
    text.where = _where(node, file)
    return text


def _distinct(texts: list[Text]) -> tuple[Text, ...]:
    for i, text in enumerate(texts):
        if text in texts[:i]:
            raise ValueError(f"{text.where}: {str(text)!r} occurs twice")
    return tuple(texts)


def _where(node: yaml.Node, file: str) -> str:
    return f"{file}, line {node.start_mark.line + 1}"


def check_names(found: Mapping[Text, Any], wanted: Collection[str], what: str) -> None:
    """Raise ValueError unless the texts have exactly the ``wanted`` names; ``what`` says of which kind they are."""
    for name in found:
        if name not in wanted:
            raise ValueError(f"{name.where}: unknown {what} {str(name)!r}, known are {', '.join(wanted)}")
    if missing := [name for name in wanted if name not in found]:
        file = next((name.where for name in found), "").partition(",")[0]
        raise ValueError(f"{file} has no {what} {', '.join(missing)}")


def placeholders(text: str) -> set[str]:
    """Names that stand in a text as ``<name>``."""
    return set(_PLACEHOLDER.findall(text))


def check_placeholders(text: Text, known: Collection[str], needed: Collection[str] = ()) -> None:
    """Raise ValueError if a text holds a placeholder that is not ``known``, or lacks one that is ``needed``."""
    found = placeholders(text)
    if unknown := sorted(found - {*known}):
        raise ValueError(f"{text.where}: unknown placeholder <{unknown[0]}>, known are {', '.join(sorted(known))}")
    if missing := sorted({*needed} - found):
        raise ValueError(f"{text.where}: lacks the placeholder <{missing[0]}>")


def fill(text: str, values: Mapping[str, Any]) -> str:
    """Replace ``<name>`` by ``values["name"]``: braces stay free for LaTeX and code."""
    return _PLACEHOLDER.sub(lambda match: str(values[match[1]]), str(text))


def sentences(text: str) -> list[str]:
    """The sentences of a text, without the blanks between them."""
    return _SENTENCE_END.split(str(text))
