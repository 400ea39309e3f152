"""The setting of ``FlashTrace.best()`` as a method with a name, beside the paper's in one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .flashtrace import BEST, FlashTrace


@dataclass
class FlashTraceBest(FlashTrace):
    """FlashTrace with the residual propagated and scores shared among five neighbours (``docs/better_flashtrace.md``).

    Every other option is FlashTrace's.
    """

    residual: str = BEST["residual"]
    smoothing: int = BEST["smoothing"]

    name: ClassVar[str] = "flashtrace_best"
    added_after_v1: ClassVar[tuple[str, ...]] = ()  # its options differ from v1's: all are part of a record's key
