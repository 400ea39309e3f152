"""Settings in YAML files: frozen dataclasses whose fields define the values that they accept.

A class of settings derives from `Settings` and lists its fields. The type of a field decides which values it accepts:

- ``int``: a whole number of at least 1; ``float``: a finite number of at least 0;
- ``tuple[str, ...]``: one or more names, none twice; ``tuple[int, ...]``: one or more ascending whole numbers;
- ``dict[str, X]``, ``X | None``, ``str``, ``bool``, and a class of settings, which takes a mapping: a section.

The metadata of a field change that: ``least`` (the smallest ``int``), ``above`` (a bound that a ``float`` exceeds),
``choices`` (the only values), ``may_be_empty`` (of names); those of a mapping hold for its
values. Rules over several fields stand in the ``__post_init__`` of their class.
"""

from __future__ import annotations

import math
import re
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

import yaml


class Settings:
    """Base of the dataclasses of settings: checks every field when an object is made.

    With ``class RulerProfile(Settings, section="ruler")`` errors name its fields ``ruler.length`` and so on.
    """

    _prefix: ClassVar[str] = ""

    def __init_subclass__(cls, section: str = "") -> None:
        cls._prefix = f"{section}." if section else ""

    def __post_init__(self) -> None:
        kinds = get_type_hints(type(self))
        for f in fields(self):
            value = _fitting(getattr(self, f.name), kinds[f.name], self._prefix + f.name, **f.metadata)
            object.__setattr__(self, f.name, value)  # the class is frozen; a list becomes a tuple


S = TypeVar("S", bound=Settings)


def read(kind: type[S], data: dict[str, Any]) -> S:
    """Make settings of class ``kind`` from values by field, as YAML gives them; a field with a default may be absent.

    Raises
    ------
    ValueError
        If a key is unknown or missing, or a value does not fit. The message names section and field.
    """
    required = {kind._prefix + f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(kind)}
    given = [f"{kind._prefix}{key}" for key in data]
    unknown = [key for key in given if key not in required]
    if unknown:
        raise ValueError(f"unknown key {', '.join(unknown)}: known are {', '.join(required)}")
    missing = [key for key in required if required[key] and key not in given]
    if missing:
        raise ValueError(f"missing key {', '.join(missing)}: add it")
    return kind(**data)


def load(kind: type[S], folder: Path, name: str | Path, noun: str, /, **changes: Any) -> S:
    """Read settings from a YAML file.

    Parameters
    ----------
    folder : Path
        Folder of the files that come with the book.
    name : str or Path
        One of `file_names`, or the path of a file of the user's own (it ends in ``.yaml`` or ``.yml``).
    noun : str
        Word for the file in errors, such as ``"profile"``.
    **changes
        Values that replace the file's.

    Raises
    ------
    ValueError
        If there is no such file, it is no YAML mapping, or `read` refuses it. The message names the file.
    """
    path = _find(folder, str(name), noun)
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("the file must hold `key: value` lines")
        return read(kind, {**data, **changes})
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{noun} {path.name}: {error}") from None


def file_names(folder: Path) -> list[str]:
    """Names of the YAML files of a folder, sorted."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def _find(folder: Path, name: str, noun: str) -> Path:
    known = file_names(folder)
    if name in known:
        return folder / f"{name}.yaml"
    path = Path(name).expanduser()
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return path
    hint = f"a {noun} of your own is named by the path of its .yaml file"
    raise ValueError(f"no {noun} {name!r}: known are {', '.join(known)}; {hint}")


def check_folder_name(name: str) -> None:
    """Raise ValueError unless ``name`` can name a folder on any system."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise ValueError(f"name {name!r} cannot name a folder: use lower-case letters, digits, '-' and '_'")


def _fitting(value: Any, kind: Any, name: str, choices: tuple | None = None, **rules: Any) -> Any:
    """The value as a field of this type holds it; ValueError where it does not fit."""
    if NoneType in get_args(kind):  # X | None
        if value is None:
            return None
        kind = get_args(kind)[0]
    if choices is not None:
        return _chosen(value, name, choices)
    if kind is Any:
        return value
    if kind == tuple[int, ...]:
        return _ascending(value, name)
    if kind == tuple[str, ...]:
        return _names(value, name, **rules)
    if get_origin(kind) is dict:
        return _mapping(value, get_args(kind)[1], name, **rules)
    if issubclass(kind, Settings):
        return value if isinstance(value, kind) else read(kind, _of_type(value, name, dict))
    if kind is int:
        return whole_number(value, name, **rules)
    if kind is float:
        return _number(value, name, **rules)
    return _of_type(value, name, kind)


def _chosen(value: Any, name: str, choices: tuple) -> Any:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")
    return value


def _of_type(value: Any, name: str, kind: type) -> Any:
    if not isinstance(value, kind):
        wanted = "true or false" if kind is bool else f"a {kind.__name__}"
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return value


def whole_number(value: Any, name: str, least: int = 1) -> int:
    """The value; ValueError, naming it, unless it is a whole number of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return value


def _number(value: Any, name: str, above: float | None = None) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or (value < 0 if above is None else value <= above):
        bound = ">= 0" if above is None else f"> {above}"
        # The hint is there because YAML reads 1e-3 as a string.
        raise ValueError(f"{name} must be a finite number {bound}, got {value!r} (write 1.0e-3)")
    return value


def _names(value: Any, name: str, may_be_empty: bool = False) -> tuple[str, ...]:
    is_list = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    if not is_list or not (value or may_be_empty):
        raise ValueError(f"{name} must be a list of {'' if may_be_empty else 'one or more '}names, got {value!r}")
    if len(set(value)) < len(value):
        raise ValueError(f"{name} names something twice: {', '.join(value)}")
    return tuple(value)


def _ascending(value: Any, name: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"{name} must be a list of one or more whole numbers, got {value!r}")
    for number in value:
        whole_number(number, f"a number of {name}")
    if list(value) != sorted(set(value)):
        raise ValueError(f"{name} must ascend, got {list(value)}")
    return tuple(value)


def _mapping(value: Any, kind: Any, name: str, **rules: Any) -> dict[str, Any]:
    """A mapping of strings to values of one type, each under the same rules."""
    for key in _of_type(value, name, dict):
        _of_type(key, f"a key of {name}", str)
    return {key: _fitting(item, kind, f"{name}.{key}", **rules) for key, item in value.items()}
