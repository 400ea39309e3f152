"""The wordings of ``reading_questions.yaml``."""

from __future__ import annotations

from dataclasses import dataclass

from flashtrace_lib.tasks.synthetic.stratified import Wordings, check_wordings
from flashtrace_lib.tasks.synthetic.template_files import (
    check_names,
    check_placeholders,
    placeholders,
    read_templates,
    sentences,
)

from . import TEMPLATES

FORMS = (
    "how_many", "which_colour", "home", "relative", "who_did", "when", "gave", "why", "is_colour", "lives_there",
    "older", "job", "where_is",
)  # fmt: skip
PAIRS = (
    "town",
    "colour",
    "item",
    "things",
    "place",
    "job",
    "day",
    "did",
    "chose",
    "reason",
)  # with an <other_...> each
SLOTS = {
    *PAIRS, *(f"other_{name}" for name in PAIRS), "who", "other", "third", "a", "b", "older", "do", "choose",
    "asked_town", "asked_colour", "yes_or_no", "reason_start", "other_reason_start",
}  # fmt: skip


@dataclass(frozen=True)
class Form(Wordings):
    """A form of question.

    Parameters
    ----------
    answer : str
        What answers it, with placeholders.
    gold : tuple of str
        Names of placeholders: a sentence that holds one of them is evidence.
    conclusion : str
        What the reasoning says behind the sentences that it quotes.
    """

    answer: str
    gold: tuple[str, ...]
    conclusion: str


@dataclass(frozen=True)
class Texts:
    """The file ``reading_questions.yaml``, which says what each field is."""

    items: tuple[str, ...]
    colours: tuple[str, ...]
    mothers: tuple[str, ...]
    places: tuple[str, ...]
    jobs: tuple[str, ...]
    days: tuple[str, ...]
    deeds: dict[str, str]
    choices: dict[str, str]
    reasons: tuple[str, ...]
    forms: dict[str, Form]


def read_texts(file: str = str(TEMPLATES / "reading_questions.yaml")) -> Texts:
    """The texts, each with the placeholders it needs; ValueError names file and line otherwise."""
    texts: Texts = read_templates(file, Texts)
    for noun in (*texts.items, *texts.colours, *texts.jobs):
        if noun[0] in "aeiou":
            raise ValueError(f"{noun.where}: {str(noun)!r} must begin with a consonant, as an article stands before it")
    check_names(texts.forms, FORMS, "form")
    for form in texts.forms.values():
        _check_form(form)
    return texts


def _check_form(form: Form) -> None:
    check_wordings(form)
    check_placeholders(form.answer, SLOTS)
    check_placeholders(form.conclusion, SLOTS)
    for text in form.all:
        check_placeholders(text, SLOTS)
        told = sentences(text)[:-1]
        if not told or text[-1] not in "?.":
            raise ValueError(f"{text.where}: sentences of text and then a question are expected")
        for name in form.gold:
            if not any({name, f"{name}_start"} & placeholders(sentence) for sentence in told):
                raise ValueError(f"{text.where}: no sentence before the question holds <{name}>")


TEXTS = read_texts()
