"""The stories of ``reading_stories.yaml`` and what their placeholders may be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice, product

from flashtrace_lib.tasks.synthetic.splits import in_split
from flashtrace_lib.tasks.synthetic.template_files import Text, placeholders, read_templates, sentences

from . import TEMPLATES

LEAST = {"train": 88, "eval": 22}  # stories
_NAME = re.compile(r"(n|t)(\d+)_(\d+)[a-z]?|([a-z]+)\d?")
_CHOICE = re.compile(r"\{([^{}]*)\}")
_NAMES = ("woman", "man", "last", "town")
_MINUTES = range(0, 60, 5)
SIDES = 6  # of which {one|two} and {one|two|three} take theirs independently
_DRAWS = 3  # of its numbers that a story has in its split, at least
NUMBERS = "stories"  # label of what `splits.in_split` tells apart


@dataclass(frozen=True)
class Story:
    """A text and what is asked about it, as the file says.

    Parameters
    ----------
    text : str
        Sentences.
    questions : tuple of str
        Each is question, answer, numbers of the sentences that answer it and, if wanted, a conclusion, with ``" | "``
        between them.
    """

    text: str
    questions: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """A question of a story.

    Parameters
    ----------
    question, answer, conclusion : str
        With placeholders; the conclusion may be empty.
    gold : tuple of int
        Positions of the sentences that answer it, from zero.
    """

    question: str
    answer: str
    gold: tuple[int, ...]
    conclusion: str


@dataclass(frozen=True)
class Stories:
    """The file ``reading_stories.yaml``, which says what each field is."""

    women: tuple[str, ...]
    men: tuple[str, ...]
    lists: dict[str, tuple[str, ...]]
    stories: dict[str, Story]
    held_out: dict[str, Story]

    def of(self, split: str) -> dict[str, Story]:
        """The stories of ``"train"`` or ``"eval"``."""
        return self.held_out if split == "eval" else self.stories


def choose(text: str, side: int) -> str:
    """Replace each ``{one|two}`` by its option number ``side``, counted round."""
    return _CHOICE.sub(lambda found: found[1].split("|")[side % (found[1].count("|") + 1)], str(text))


def choices(text: str) -> set[int]:
    """How many options the ``{one|two}`` of a text have."""
    return {found.count("|") + 1 for found in _CHOICE.findall(text)}


def kind_of(name: str) -> str:
    """The kind of a placeholder: ``"n"``, ``"t"`` or the name without its number."""
    found = _NAME.fullmatch(name)
    return "" if found is None else found[1] or found[4]


def options(name: str) -> list[str]:
    """What ``<n3_9>``, a whole number, or ``<t8_10>``, a time from 8:00 to 10:55, may be."""
    kind, low, high = _NAME.fullmatch(name).group(1, 2, 3)
    numbers = range(int(low), int(high) + 1)
    return [str(n) for n in numbers] if kind == "n" else [f"{n}:{m:02d}" for n in numbers for m in _MINUTES]


def numeric(names: set[str]) -> list[str]:
    """The placeholders of numbers and times, sorted."""
    return sorted(name for name in names if kind_of(name) in ("n", "t"))


def parse_question(line: Text, side: int) -> Question:
    """Read a line of ``questions`` with its choices made; ValueError names file and line where it is malformed."""
    parts = [part.strip() for part in choose(line, side).split(" | ")]
    if len(parts) not in (3, 4) or not all(parts) or not re.fullmatch(r"[1-9]( [1-9])*", parts[2]):
        raise ValueError(f"{line.where}: 'question | answer | numbers of sentences | conclusion' is expected")
    if parts[0][-1] not in "?.":
        raise ValueError(f"{line.where}: the question must end in a question mark or a full stop")
    gold = tuple(sorted({int(number) - 1 for number in parts[2].split()}))
    return Question(parts[0], parts[1], gold, parts[3] if len(parts) == 4 else "")


def read_stories(file: str = str(TEMPLATES / "reading_stories.yaml")) -> Stories:
    """The stories, each with placeholders that can be filled; ValueError names file and line otherwise."""
    stories: Stories = read_templates(file, Stories)
    for split, least in LEAST.items():
        if len(found := stories.of(split)) < least:
            where = next(iter(found)).where
            raise ValueError(f"{where}: {len(found)} stories for {split!r}, at least {least} are needed")
        for story in found.values():
            _check_story(story, stories.lists, split)
    for name in stories.held_out:
        if name in stories.stories:
            raise ValueError(f"{name.where}: the held-out story {str(name)!r} is one of training too")
    return stories


def _check_story(story: Story, lists: Mapping[str, tuple[str, ...]], split: str) -> None:
    if story.text[-1] not in ".!?":
        raise ValueError(f"{story.text.where}: the text must end in a full stop")
    if len(story.questions) < 3:
        raise ValueError(f"{story.text.where}: {len(story.questions)} questions, at least 3 are needed")
    names = placeholders(story.text)
    for text in (story.text, *story.questions):
        _check_braces(text)
        _check_kinds(text, lists)
    for line in story.questions:
        if unknown := sorted(placeholders(line) - names):
            raise ValueError(f"{line.where}: <{unknown[0]}> does not stand in the text")
        for side in range(SIDES):
            _check_question(line, side, sentences(choose(story.text, side)))
    draws = (list(draw) for draw in product(*map(options, numeric(names))) if len({*draw}) == len(draw))
    if (
        numeric(names)
        and len(list(islice((draw for draw in draws if in_split(f"{NUMBERS}|{draw}", split)), _DRAWS))) < _DRAWS
    ):
        raise ValueError(f"{story.text.where}: too few numbers are in split {split!r}; widen the range of one")


def _check_braces(text: Text) -> None:
    rest = _CHOICE.sub("", text)
    if "{" in rest or "}" in rest or not choices(text) <= {2, 3}:
        raise ValueError(f"{text.where}: choices are written {{one|two}} or {{one|two|three}}")


def _check_kinds(text: Text, lists: Mapping[str, tuple[str, ...]]) -> None:
    for name in sorted(placeholders(text)):
        kind = kind_of(name)
        if kind in ("n", "t"):
            if len(options(name)) < 2:
                raise ValueError(f"{text.where}: <{name}> has fewer than two values")
        elif kind not in _NAMES and kind not in lists:
            raise ValueError(
                f"{text.where}: unknown placeholder <{name}>, known are {', '.join((*_NAMES, *sorted(lists)))}, "
                "<n3_9> and <t8_10>"
            )
        elif re.search(rf"\b[Aa] <{name}>", text) and (bad := [w for w in lists.get(kind, ()) if w[0] in "aeiouAEIOU"]):
            raise ValueError(f"{text.where}: 'a <{name}>', but {str(bad[0])!r} begins with a vowel")


def _check_question(line: Text, side: int, told: list[str]) -> None:
    question = parse_question(line, side)
    if question.gold[-1] >= len(told):
        raise ValueError(f"{line.where}: sentence {question.gold[-1] + 1} is asked for, the text has {len(told)}")
    answer, said = question.answer.lower(), " ".join([*(told[i] for i in question.gold), question.question]).lower()
    if answer not in ("yes", "no") and answer not in said:
        raise ValueError(f"{line.where}: the answer {answer!r} stands neither in its sentences nor in the question")


STORIES = read_stories()
