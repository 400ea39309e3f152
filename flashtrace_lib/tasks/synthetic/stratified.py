"""Wordings drawn in turn: among a few problems no wording stands for many, so that each counts as a sample of its own.

A kind of problem has wordings for training and others that are held out. Problem ``i`` takes its kind, and the kind
its wording, from shuffled rounds in which each comes once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..example import Example
from .splits import check_split
from .template_files import Text

LEAST = {"train": 8, "eval": 6}  # wordings of a kind
T = TypeVar("T", bound="Wordings")


@dataclass(frozen=True)
class Wordings:
    """The wordings of one kind.

    Parameters
    ----------
    wordings : tuple of str
        Used in training, at least eight.
    held_out : tuple of str
        Used in evaluation alone, at least six.
    """

    wordings: tuple[str, ...]
    held_out: tuple[str, ...]

    def of(self, split: str) -> tuple[str, ...]:
        """The wordings of ``"train"`` or ``"eval"``."""
        return self.held_out if split == "eval" else self.wordings

    @property
    def all(self) -> tuple[str, ...]:
        """Those of both splits."""
        return self.wordings + self.held_out


def check_wordings(texts: Wordings) -> None:
    """Raise ValueError, with file and line, where wordings are too few or one stands in both lists."""
    for split, least in LEAST.items():
        found = texts.of(split)
        if len(found) < least:
            raise ValueError(f"{found[0].where}: {len(found)} wordings for {split!r}, at least {least} are needed")
    for text in texts.held_out:
        if text in texts.wordings:
            raise ValueError(f"{text.where}: the held-out wording {str(text)!r} is one of training too")


@dataclass(frozen=True)
class Drawn:
    """What problem ``i`` is about.

    Parameters
    ----------
    kind : str
        Kind of problem.
    label : str
        Kind, split and index of the wording, for example ``"river/eval-3"``.
    wording : str
        The wording itself.
    """

    kind: str
    label: str
    wording: Text


def in_turn(key: str, i: int, size: int) -> int:
    """Number ``i`` of an endless row of shuffled rounds, each of which holds 0 to ``size - 1`` once."""
    numbers = list(range(size))
    random.Random(f"{key}|{i // size}").shuffle(numbers)
    return numbers[i % size]


def draw_wording(key: str, i: int, texts: Mapping[str, T], split: str, kinds: Sequence[str] | None = None) -> Drawn:
    """Kind and wording of problem ``i``.

    Parameters
    ----------
    key : str
        Seed of the rounds.
    i : int
        Number of the problem.
    texts : mapping of str to Wordings
        By kind.
    split : {"train", "eval"}
        Whose wordings.
    kinds : sequence of str, optional
        Kinds to draw from; all of them where it is not given.

    Raises
    ------
    ValueError
        If a kind is unknown, or there is none.
    """
    kinds = sorted(texts) if kinds is None else list(kinds)
    if not kinds or (unknown := sorted({*kinds} - {*texts})):
        raise ValueError(f"unknown kind {', '.join(unknown) if kinds else '()'}: known are {', '.join(sorted(texts))}")
    kind = kinds[in_turn(f"{key}|kind", i, len(kinds))]
    found = texts[kind].of(split)
    index = in_turn(f"{key}|{kind}", i // len(kinds), len(found))
    return Drawn(kind, f"{kind}/{split}-{index}", found[index])


def numbered_examples(task: str, n: int, seed: int, split: str, make: Callable[[str, int, str], Example]) -> list:
    """The first ``n`` examples of a task.

    Parameters
    ----------
    task : str
        Its name, first part of every id.
    n, seed : int
        Example ``i`` depends on the task, the seed, the split and ``i`` alone.
    split : {"train", "eval"}
        The two share no wording and no name.
    make : callable
        (key of the row of problems, number, id) -> `Example`.

    Raises
    ------
    ValueError
        If ``n`` is negative or the split is unknown.
    """
    check_split(split)
    if n < 0:
        raise ValueError(f"n must be a whole number >= 0, got {n!r}")
    return [make(f"{task}|{split}|{seed}", i, f"{task}-{split}-s{seed}-{i}") for i in range(n)]
