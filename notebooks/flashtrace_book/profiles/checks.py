"""Checks of what a profile says, each with an error that names the key."""

from __future__ import annotations

from typing import Any


def check_names(value: Any, name: str) -> tuple[str, ...]:
    """A list of distinct strings as a tuple."""
    if not isinstance(value, list | tuple) or not value or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{name} must be a list of one or more names, got {value!r}")
    if len(set(value)) < len(value):
        raise ValueError(f"{name} names something twice: {', '.join(value)}")
    return tuple(value)


def check_type(value: Any, name: str, kind: type) -> None:
    """Raise ValueError unless the value is of a type."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be a {kind.__name__}, got {value!r}")


def check_count(value: Any, name: str, least: int) -> None:
    """Raise ValueError unless the value is a whole number of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def check_choice(value: Any, name: str, choices: tuple) -> None:
    """Raise ValueError unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(str(choice) for choice in choices)}, got {value!r}")


def check_ascending(value: Any, name: str) -> tuple[int, ...]:
    """A list of ascending whole numbers, each at least 1, as a tuple."""
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"{name} must be a list of one or more whole numbers, got {value!r}")
    for number in value:
        check_count(number, f"a number of {name}", least=1)
    if list(value) != sorted(set(value)):
        raise ValueError(f"{name} must ascend, got {list(value)}")
    return tuple(value)
