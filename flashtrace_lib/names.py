"""What a misspelt name or a misplaced argument may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` Did you mean 'ifr'?`` where one of the known names is near, else nothing."""
    close = get_close_matches(name.lower(), list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def check_order(call: str, **given: Any) -> None:
    """Model, tokenizer, the rest is every call's order: TypeError that shows ``call`` where something else stands."""
    for name, has in (("model", "forward"), ("tokenizer", "decode")):
        if name in given and not hasattr(given[name], has):
            raise TypeError(f"a {type(given[name]).__name__} stands where the {name} belongs: the order is {call}")
