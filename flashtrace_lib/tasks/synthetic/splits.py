"""What is trained on and what is evaluated on share no name, number or template.

The half a text belongs to is a property of the text itself, so no list has to be kept and no draw can leak: a fifth
of all texts, by checksum, is held out.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from typing import TypeVar

SPLITS = ("train", "eval")
_ONE_IN = 5
T = TypeVar("T")


def check_split(split: str) -> None:
    """Raise ValueError unless ``split`` is ``"train"`` or ``"eval"``."""
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")


def in_split(text: str, split: str) -> bool:
    """Whether a name, a number or a tuple of numbers (as text) may be used in ``split``."""
    return (zlib.crc32(text.encode()) % _ONE_IN == 0) == (split == "eval")


def pick(rng: random.Random, items: Sequence[str], split: str) -> str:
    """One of the ``items`` of a split; ValueError where it has none."""
    mine = [item for item in items if in_split(item, split)]
    if not mine:
        raise ValueError(f"none of {len(items)} items, {items[0]!r} the first, is in split {split!r}: add more")
    return rng.choice(mine)


def draw_in_split(draw: Callable[[], T], label: str, split: str) -> T:
    """Draw until the outcome, told apart by ``label`` and its text, is in the split."""
    while True:
        outcome = draw()
        if in_split(f"{label}|{outcome}", split):
            return outcome


def wording(rng: random.Random, wordings: Sequence[T], split: str) -> tuple[int, T]:
    """Index and text of one of the wordings of a problem: the last is held out for evaluation."""
    if len(wordings) < 2:
        raise ValueError("a problem needs two wordings or more: the last one is held out")
    index = len(wordings) - 1 if split == "eval" else rng.randrange(len(wordings) - 1)
    return index, wordings[index]
