"""Made-up names of people, works and towns, each in the split that its checksum says."""

from __future__ import annotations

import random
from collections.abc import Callable

from .splits import draw_in_split, pick
from .wordlists import WORDS


def draw_person(rng: random.Random, split: str) -> str:
    """First and last name."""
    return f"{pick(rng, WORDS.first_names, split)} {pick(rng, WORDS.last_names, split)}"


def draw_title(rng: random.Random, split: str) -> str:
    """Title of a work, such as ``"The Amber Anchor"``."""
    return draw_in_split(lambda: f"The {rng.choice(WORDS.adjectives)} {rng.choice(WORDS.nouns)}", "work", split)


def draw_town(rng: random.Random, split: str) -> str:
    """Name of a town, such as ``"Alderbourne"``."""
    return draw_in_split(lambda: rng.choice(WORDS.town_starts) + rng.choice(WORDS.town_ends), "town", split)


def draw_new(draw: Callable[[], str], taken: set[str]) -> str:
    """Draw until the name is new, and take it."""
    while (name := draw()) in taken:
        pass
    taken.add(name)
    return name
