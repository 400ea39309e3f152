"""A method where a name is given in its place."""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches

from ..attribution import Method
from . import METHODS, FlashTrace


def with_hops() -> list[str]:
    """Names of the methods that recurse: those with an option ``hops``."""
    return [name for name, method in METHODS.items() if "hops" in {field.name for field in fields(method)}]


def chosen_method(method: Method | str | None, hops: int | None = None) -> Method:
    """The method that is meant by itself, by its name in `METHODS`, or by nothing: FlashTrace.

    Parameters
    ----------
    method : Method, str, optional
        A method is returned as it is; one that is named has its default options.
    hops : int, optional
        K of a method that is named, or of the default. Default: the method's own.

    Raises
    ------
    ValueError
        If no method has this name, hops are given to one that has none or that has its own already, or what is given
        cannot attribute.
    """
    if method is None or isinstance(method, str):
        return _named(FlashTrace.name if method is None else method, hops)
    if isinstance(method, type) or not callable(getattr(method, "attribute", None)):
        shown = f"the class {method.__name__}: call it" if isinstance(method, type) else repr(method)
        raise ValueError(
            f"method is {shown}; it must be one that attributes, such as FlashTrace(hops=1), or the name of one"
        )
    if hops is not None:
        raise ValueError(f"hops={hops} beside a method that has its options: give hops to the method")
    return method


def _named(name: str, hops: int | None) -> Method:
    if name not in METHODS:
        close = get_close_matches(name.lower(), METHODS, n=1)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"there is no method {name!r}.{meant} Known: {', '.join(METHODS)}")
    if hops is None:
        return METHODS[name]()
    if name not in with_hops():
        raise ValueError(f"{name!r} has no hops: leave hops out, or choose one of {', '.join(with_hops())}")
    return METHODS[name](hops=hops)
