"""Words that the problems are made of. Names belong to a split by checksum (`splits.in_split`)."""

from __future__ import annotations

from dataclasses import dataclass

from .template_files import read_templates


@dataclass(frozen=True)
class WordLists:
    """The lists of ``words.yaml``."""

    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    town_starts: tuple[str, ...]
    town_ends: tuple[str, ...]
    adjectives: tuple[str, ...]
    nouns: tuple[str, ...]
    things: tuple[str, ...]


WORDS: WordLists = read_templates("words.yaml", WordLists)
