"""The wordings of ``documents_qa.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .stratified import Wordings, check_wordings
from .template_files import Text, check_names, check_placeholders, read_templates, sentences

FIELDS = {
    "work": ("work", "kind", "year", "person"),
    "person": ("person", "town", "born"),
    "town": ("town", "river", "founded"),
}  # what the paragraph of each kind says
QUESTIONS = (
    "birthplace", "birth_year", "birth_digits", "town_letter", "river", "river_letter", "founded", "elder",
    "elder_last_name",
)  # fmt: skip
_ROLE = {"role", "verb", "done"}
_STEPS = {"maker": {"work"}, "elder": {"first_year", "second_year"}}  # placeholders beside <subject> and <value>
_OPERATIONS = {"first_letter": {"value"}, "last_name": {"value"}, "digit_sum": {"sums"}}


@dataclass(frozen=True)
class Texts:
    """The file ``documents_qa.yaml``, which says what each field is."""

    river_starts: tuple[str, ...]
    river_ends: tuple[str, ...]
    paragraphs: dict[str, Wordings]
    details: dict[str, Wordings]
    steps: dict[str, str]
    operations: dict[str, str]
    questions: dict[str, Wordings]


def read_texts(file: str = "documents_qa.yaml") -> Texts:
    """The texts, each with the placeholders it needs; ValueError names file and line otherwise."""
    texts: Texts = read_templates(file, Texts)
    check_names(texts.paragraphs, FIELDS, "kind of paragraph")
    check_names(texts.details, FIELDS, "kind of paragraph")
    for kind, fields in FIELDS.items():
        _check_paragraphs(texts.paragraphs[kind], fields)
        check_wordings(texts.details[kind])
        for text in texts.details[kind].all:
            check_placeholders(text, {"n"})
    check_names(texts.steps, ("maker", "town", "born", "river", "founded", "elder"), "step")
    for name, text in texts.steps.items():
        check_placeholders(text, {"subject", "value", *_STEPS.get(name, ())}, needed={"value"})
    check_names(texts.operations, _OPERATIONS, "operation")
    for name, text in texts.operations.items():
        check_placeholders(text, {"subject", *_OPERATIONS[name]}, needed={"subject", *_OPERATIONS[name]})
    _check_questions(texts.questions)
    return texts


def _check_paragraphs(texts: Wordings, fields: tuple[str, ...]) -> None:
    check_wordings(texts)
    for text in texts.all:
        check_placeholders(text, {*fields, *(_ROLE if "work" in fields else ())}, needed=fields)
        _check_one_sentence(text)
        for field in fields:  # a name that stands there twice would give the answer away
            if field != "kind" and text.count(f"<{field}>") != 1:
                raise ValueError(f"{text.where}: <{field}> must stand in the text once")


def _check_one_sentence(text: Text) -> None:
    if len(sentences(text)) != 1 or not text.endswith("."):
        raise ValueError(f"{text.where}: one sentence with a full stop is expected")


def _check_questions(questions: Mapping[Text, Wordings]) -> None:
    check_names(questions, QUESTIONS, "kind of question")
    for texts in questions.values():
        check_wordings(texts)
        for text in texts.all:
            if "<work>" in text:
                check_placeholders(text, {"work", "role", "verb"}, needed={"work"})
            else:
                names = {f"{which}_{name}" for which in "ab" for name in ("work", "role", "verb")}
                check_placeholders(text, names, needed={"a_work", "b_work"})


TEXTS = read_texts()
