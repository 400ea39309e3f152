"""Attribution methods, one file each. A new method is one file and one line here."""

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

from ..attribution import Attribution, Hop, Method

# Name in tables and options -> file and class. A file is imported when its method is first asked for: what one method
# needs (captum, a masked language model's tokenizer) is no cost of the others.
_PLACES = {
    "flashtrace": "flashtrace.FlashTrace",
    "flashtrace_best": "flashtrace_best.FlashTraceBest",
    "ifr": "ifr.IFR",
    "ifr_all": "ifr.IFRAll",
    "perturbation": "perturbation.Perturbation",
    "clp": "clp.CLP",
    "reagent": "reagent.ReAGent",
    "ig": "integrated_gradients.IntegratedGradients",
    "ig_attn": "ig_attn.IGAttention",
    "attnlrp": "attnlrp.AttnLRP",
    "gim": "gim.GIM",
    "cage": "cage.CAGE",
    "suppression": "suppression.Suppression",
    "contextcite": "contextcite.ContextCite",
    "at2": "at2.AT2",
    "rollout": "rollout.Rollout",
    "random": "random.Random",
    "random_sentences": "random.RandomSentences",
    "position": "random.Position",
    "string_match": "string_match.StringMatch",
    "last_token": "target_variants.LastToken",
    "mean_pooling": "target_variants.MeanPooling",
    "positional": "target_variants.Positional",
}
_FILES = {place.partition(".")[2]: place.partition(".")[0] for place in _PLACES.values()}

__all__ = ["METHODS", "Attribution", "Hop", "Method", *_FILES]


class _Registry(MutableMapping[str, type[Method]]):
    """Classes of methods by name; one that is set stands beside those of this folder."""

    def __init__(self) -> None:
        self._own: dict[str, str | type[Method]] = dict(_PLACES)

    def __getitem__(self, name: str) -> type[Method]:
        place = self._own[name]
        return __getattr__(place.partition(".")[2]) if isinstance(place, str) else place

    def __setitem__(self, name: str, method: type[Method]) -> None:
        self._own[name] = method

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __contains__(self, name: object) -> bool:  # the mixin's would import the method
        return name in self._own

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)


METHODS = _Registry()


def __getattr__(name: str) -> Any:
    """A class of this folder, imported now: ``from flashtrace_lib.methods import AttnLRP``."""
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_FILES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
