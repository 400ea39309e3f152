"""Attribution methods, by name. A new method is one file and one line here."""

from collections import UserDict
from dataclasses import fields
from importlib import import_module
from typing import Any

from ..attribution import Attribution, Hop, Method
from ..names import did_you_mean

# Name in tables and options -> file and class. A file is imported when its method is first asked for: what one method
# needs (captum, a masked language model's tokenizer) is no cost of the others.
_PLACES = {
    "flashtrace": "flashtrace.FlashTrace",
    "flashtrace_best": "settings.FlashTraceBest",
    "flashtrace_causal": "settings.FlashTraceCausal",
    "ifr": "ifr.IFR",
    "ifr_all": "ifr.IFRAll",
    "perturbation": "perturbation.Perturbation",
    "clp": "perturbation.CLP",
    "reagent": "reagent.ReAGent",
    "ig": "integrated_gradients.IntegratedGradients",
    "ig_attn": "ig_attn.IGAttention",
    "attnlrp": "attnlrp.AttnLRP",
    "gim": "attnlrp.GIM",
    "cage": "cage.CAGE",
    "suppression": "suppression.Suppression",
    "suppression_response": "suppression.ResponseSuppression",
    "contextcite": "contextcite.ContextCite",
    "at2": "at2.AT2",
    "rollout": "rollout.Rollout",
    "random": "random.Random",
    "random_sentences": "random.RandomSentences",
    "position": "random.Position",
    "string_match": "string_match.StringMatch",
    "last_token": "settings.LastToken",
    "mean_pooling": "settings.MeanPooling",
    "positional": "settings.Positional",
}
_FILES = {place.partition(".")[2]: place.partition(".")[0] for place in _PLACES.values()}

__all__ = ["METHODS", "Attribution", "Hop", "Method", "chosen_method", "described", "with_hops", *_FILES]


class _Registry(UserDict[str, "str | type[Method]"]):
    """Classes of methods by name, imported when they are asked for; one that is set stands beside those here."""

    def __getitem__(self, name: str) -> type[Method]:
        place = self.data[name]
        return __getattr__(place.partition(".")[2]) if isinstance(place, str) else place


METHODS = _Registry(_PLACES)
# What `trace` and the command show unless asked otherwise: FlashTrace's setting that puts a right sentence first most
# often, on plain questions and on tasks beyond copying (chapters 00 and 12). FlashTrace() is the paper's.
DEFAULT = "flashtrace_causal"


def __getattr__(name: str) -> Any:
    """A class of this folder, imported now: ``from flashtrace_lib.methods import AttnLRP``."""
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_FILES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def with_hops() -> list[str]:
    """Names of the methods that recurse: those with an option ``hops``."""
    return [name for name, method in METHODS.items() if "hops" in {field.name for field in fields(method)}]


def described(attribution: Attribution) -> str:
    """Name of an attribution's method, with the options that are not its own: ``flashtrace (hops=2)``."""
    name, options = attribution.method, attribution.metadata.get("options", {})
    try:
        own = vars(plain := METHODS[name]()) | plain.options()
    except (KeyError, TypeError, ValueError, AttributeError):  # not registered, or what it needs is not here
        own = {}
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}  # a file has lists
    changed = {k: v for k, v in given.items() if k == "contrast" or (k in own and v != own[k])}
    if {"residual": "propagated", "smoothing": 5}.items() <= changed.items() and name == "flashtrace":
        name, changed = "FlashTrace.best()", {k: v for k, v in changed.items() if k not in ("residual", "smoothing")}
    return f"{name} ({', '.join(f'{k}={v}' for k, v in changed.items())})" if changed else name


def chosen_method(method: Method | str | None, hops: int | None = None) -> Method:
    """The method that is meant by itself, by its name in `METHODS`, or by nothing: `DEFAULT`.

    Parameters
    ----------
    method : Method, str, optional
        A method is returned as it is; one that is named has its default options.
    hops : int, optional
        K of a method that is named, or of the paper's FlashTrace where none is. Default: the method's own.

    Raises
    ------
    ValueError
        If no method has this name, hops are given to one that has none or that has its own already, or what is given
        cannot attribute.
    """
    if method is None or isinstance(method, str):
        name = (DEFAULT if hops is None else "flashtrace") if method is None else method
        if name not in METHODS:
            own = 'one of your own is registered by METHODS["mine"] = Mine'
            known = f"{did_you_mean(name, METHODS)} Known: {', '.join(METHODS)}"
            raise ValueError(f"there is no method {name!r}.{known}; {own}")
        if hops is not None and name not in with_hops():
            raise ValueError(f"{name!r} has no hops: leave hops out, or choose one of {', '.join(with_hops())}")
        return METHODS[name]() if hops is None else METHODS[name](hops=hops)
    if isinstance(method, type) or not callable(getattr(method, "attribute", None)):
        shown = f"the class {method.__name__}: call it" if isinstance(method, type) else repr(method)
        raise ValueError(f"method is {shown}; it must be one that attributes, like FlashTrace(), or the name of one")
    if hops is not None:
        raise ValueError(f"hops={hops} beside a method that has its options: give hops to the method")
    return method
