"""Attribution methods, one file each. A new method is one file and one line here."""

from ..attribution import Attribution, Hop, Method
from .flashtrace import FlashTrace
from .ifr import IFR

METHODS: dict[str, type[Method]] = {
    FlashTrace.name: FlashTrace,
    IFR.name: IFR,
}

__all__ = ["IFR", "METHODS", "Attribution", "FlashTrace", "Hop", "Method"]
