"""Plain questions about short texts, drawn and written by hand."""

import re

import pytest

from flashtrace_book.reasoner.reading import TEMPLATES
from flashtrace_book.reasoner.reading.plain_questions import plain_questions
from flashtrace_book.reasoner.reading.questions import reading_questions
from flashtrace_book.reasoner.reading.texts import FORMS, TEXTS
from flashtrace_lib.tasks.scoring import contains, is_correct
from flashtrace_lib.tasks.synthetic.template_files import placeholders

ANSWERS = {  # form -> answer from the facts
    "how_many": lambda f: str(f["a"]), "which_colour": lambda f: f["colour"], "home": lambda f: f["town"],
    "relative": lambda f: f["town"], "who_did": lambda f: f["who"], "when": lambda f: f["day"],
    "gave": lambda f: f["item"], "why": lambda f: f["reason"], "job": lambda f: f["job"],
    "where_is": lambda f: f["place"],
    "is_colour": lambda f: "yes" if f["asked_colour"] == f["colour"] else "no",
    "lives_there": lambda f: "yes" if f["asked_town"] == f["town"] else "no",
    "older": lambda f: f["who"] if f["a"] > f["b"] else f["other"],
}  # fmt: skip
EXAMPLES = [e for split in ("train", "eval") for e in reading_questions(260, seed=3, split=split)]


def form_of(example):
    return example.metadata["template"].partition("/")[0]


def test_the_answer_follows_from_the_facts_and_the_evidence_says_them():
    assert {form_of(example) for example in EXAMPLES} == set(FORMS) == set(ANSWERS) and len(FORMS) >= 12
    for example in EXAMPLES:
        form, facts = form_of(example), example.metadata["facts"]
        assert example.answers == (ANSWERS[form](facts),)
        gold = " ".join(example.prompt[a:b] for a, b in example.evidence)
        assert gold and gold in example.reasoning
        assert all(contains(gold, str(facts[name])) for name in TEXTS.forms[form].gold)
        assert is_correct(example, example.output) and not is_correct(example, "Nobody knows.")


def test_another_value_of_the_distractor_leaves_the_answer():
    for example in EXAMPLES:
        form, facts = form_of(example), example.metadata["facts"]
        for name in ("other_town", "other_colour", "other_item", "other_place", "other_job", "other_day", "b"):
            if name in facts and not (
                form == "older" or facts[name] in (facts.get("asked_town"), facts.get("asked_colour"))
            ):
                assert ANSWERS[form]({**facts, name: "another"}) == example.answers[0]


def test_yes_and_no_and_both_places_in_the_text_are_drawn():
    for form in ("is_colour", "lives_there"):
        answers = [e.answers[0] for e in reading_questions(60, kinds=[form])]
        assert 15 <= answers.count("yes") <= 45
    first = [e.evidence[0][0] == 0 for e in EXAMPLES if len(e.evidence) == 1]
    assert 0.3 < sum(first) / len(first) < 0.9  # the sentence that is needed may come first or later


def test_mothers_have_the_names_of_women():
    for example in reading_questions(80, kinds=["relative"], split="train"):
        assert example.metadata["facts"]["third"] in TEXTS.mothers


def test_questions_by_hand():
    examples = plain_questions()
    assert len(examples) >= 60 and len({e.prompt for e in examples}) == len(examples)
    for example in examples:
        assert is_correct(example, example.output) and not is_correct(example, "Nobody knows.")
        ((start, stop),) = example.evidence
        assert example.prompt[start:stop].endswith(".") and stop <= example.haystack[1] < example.question


def pieces(text, size):
    found = re.findall(r"<\w+>|\w+", text.lower())
    return {tuple(found[i : i + size]) for i in range(len(found) - size + 1)}


def test_no_form_of_the_generator_comes_back_in_the_questions_by_hand():
    wordings = [text for form in TEXTS.forms.values() for text in form.all]
    assert all(placeholders(text) for text in wordings)
    known = set().union(*(pieces(text, 5) for text in wordings))
    for example in plain_questions():
        assert not pieces(example.prompt, 5) & known, example.prompt
    asked = {pieces_of for text in wordings for pieces_of in pieces(text.rpartition(". ")[2], 4)}
    for example in plain_questions():
        assert not pieces(example.prompt[example.question :], 4) & asked, example.prompt


@pytest.mark.parametrize(
    "old, new, message",
    [
        (
            "How many people teach at this school?",
            "How many people teach?!",
            "the question must end in a question mark",
        ),
        ("['22']", "['23']", "no answer stands in the text"),
        (
            "It has 310 pupils and 22 teachers.'\n  question",
            "It has 310 pupils'\n  question",
            "must end in a full stop",
        ),
        ("evidence: 'It has 310", "evidence: 'It had 310", "the evidence does not stand in the text"),
        ("answers: ['22']", "answer: ['22']", "unknown field 'answer'"),
        ("answers: ['22']", "answers: [22]", "a text is expected, in quotes where it is a number"),
        ("answers: ['22']", "answers: ['22', '22']", "'22' occurs twice"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(tmp_path, old, new, message):
    text = (TEMPLATES / "plain_questions.yaml").read_text(encoding="utf-8")
    before, found, after = text.partition(old)
    assert found
    (tmp_path / "mine.yaml").write_text(before + new + after, encoding="utf-8")
    with pytest.raises(ValueError) as error:
        plain_questions(str(tmp_path / "mine.yaml"))
    line, _, said = str(error.value).removeprefix("mine.yaml, line ").partition(": ")
    assert message in said and int(line) == before.count("\n") + 1
