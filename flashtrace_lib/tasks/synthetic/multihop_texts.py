"""The wordings of ``multihop_qa.yaml``."""

from __future__ import annotations

from dataclasses import dataclass

from .template_files import check_names, check_placeholders, placeholders, read_templates


@dataclass(frozen=True)
class WorkTexts:
    """Words about a kind of work: its maker's role and deed in the past tense (``verb``, ``done``), and a detail."""

    role: str
    verb: str
    done: str
    detail: str


@dataclass(frozen=True)
class Paragraphs:
    """Wordings of the two paragraphs; the last of each is held out for evaluation."""

    work: tuple[str, ...]
    person: tuple[str, ...]


@dataclass(frozen=True)
class StepTexts:
    """``questions``: one for each answer. ``wordings`` of the whole question: the last is held out for evaluation."""

    questions: tuple[str, ...]
    wordings: tuple[str, ...]


@dataclass(frozen=True)
class Texts:
    """The file ``multihop_qa.yaml``, which says what each field is."""

    works: dict[str, WorkTexts]
    paragraphs: Paragraphs
    first_hop: str
    second_hop: dict[str, str]
    both_hops: dict[str, str]
    steps: dict[str, StepTexts]
    bridges: dict[str, tuple[str, ...]]
    comparisons: tuple[str, ...]


WORK = {"kind", "role", "verb", "done", "work", "year", "weeks", "detail", "person"}  # values of the first paragraph
PERSON = {"person", "first", "last", "town", "born", "count"}  # and of the second
FACTS = ("born", "count", "town", "person")  # what a question may ask of the person


def read_texts(file: str = "multihop_qa.yaml") -> Texts:
    """The texts, each with the placeholders it needs; ValueError names file and line otherwise."""
    texts: Texts = read_templates(file, Texts)
    for work in texts.works.values():
        check_placeholders(work.detail, {"weeks"})
    for text in texts.paragraphs.work:
        check_placeholders(text, WORK, needed={"kind", "work", "year", "detail", "person"})
    for text in texts.paragraphs.person:
        check_placeholders(text, PERSON, needed={"person", "town", "born", "count"})
    check_placeholders(texts.first_hop, WORK, needed={"work"})
    check_names(texts.second_hop, [fact for fact in FACTS if fact != "person"], "fact")
    check_names(texts.both_hops, FACTS, "fact")
    check_names(texts.bridges, ("town", "born"), "fact")
    for text in texts.second_hop.values():
        check_placeholders(text, PERSON, needed={"person"})
    for text in (*texts.both_hops.values(), *(text for found in texts.bridges.values() for text in found)):
        check_placeholders(text, {"role", "work"}, needed={"role", "work"})
    for step in texts.steps.values():
        for text in step.questions:
            check_placeholders(text, {*PERSON, "k"})
        for text in step.wordings:  # every wording gives the same numbers
            check_placeholders(text, {"role", "work", "k"}, {"role", "work", *placeholders(step.wordings[0])})
    for text in texts.comparisons:
        check_placeholders(text, {"a", "b"}, needed={"a", "b"})
    return texts


TEXTS = read_texts()
