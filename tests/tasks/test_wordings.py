"""What holds of every generator with held-out wordings: seeds, splits, turns, and plain English."""

import json
import re
from collections import Counter

import pytest

from flashtrace_book.reasoner.reading import texts as reading_texts
from flashtrace_book.reasoner.reading.questions import reading_questions
from flashtrace_lib.tasks.synthetic import documents_texts, long_exercises, long_word_problems
from flashtrace_lib.tasks.synthetic.documents_qa import documents_qa
from flashtrace_lib.tasks.synthetic.splits import in_split
from flashtrace_lib.tasks.synthetic.stratified import draw_wording, in_turn
from tests.tasks.test_documents_qa import words

GENERATORS = {
    "documents_qa": lambda n, **options: documents_qa(n, 400, words, **options),
    "long_word_problems": long_word_problems.long_word_problems,
    "long_exercises": long_exercises.long_exercises,
    "reading_questions": reading_questions,
}
KINDS = {
    "documents_qa": documents_texts.TEXTS.questions,
    "long_word_problems": long_word_problems.TEXTS.problems,
    "long_exercises": long_exercises.TEXTS.exercises,
    "reading_questions": reading_texts.TEXTS.forms,
}
PARTS = {
    **{f"paragraph {kind}": texts for kind, texts in documents_texts.TEXTS.paragraphs.items()},
    **{f"detail {kind}": texts for kind, texts in documents_texts.TEXTS.details.items()},
    "irrelevant": long_word_problems.TEXTS.irrelevant,
    "asides": long_exercises.TEXTS.asides,
}
SPLITS = ("train", "eval")


@pytest.mark.parametrize("task", GENERATORS)
def test_a_seed_gives_the_same_examples_whatever_their_number(task):
    make = GENERATORS[task]
    assert make(5, seed=3) == make(5, seed=3) and make(5, seed=3)[:2] == make(2, seed=3)
    assert make(2, seed=3) != make(2, seed=4) and make(0) == []
    assert make(1, seed=0, split="train") != make(1, seed=0, split="eval")
    assert len({example.id for example in make(5)}) == 5
    with pytest.raises(ValueError, match="split must be one of train, eval"):
        make(1, split="test")
    with pytest.raises(ValueError, match="n must be a whole number"):
        make(-1)


def test_there_are_enough_wordings_and_no_split_has_those_of_another():
    for texts in (*(kind for kinds in KINDS.values() for kind in kinds.values()), *PARTS.values()):
        assert len(set(texts.wordings)) >= 8 and len(set(texts.held_out)) >= 6
        assert not set(texts.wordings) & set(texts.held_out)


@pytest.mark.parametrize("task", GENERATORS)
@pytest.mark.parametrize("split", SPLITS)
def test_no_wording_has_more_than_a_quarter_of_sixteen(task, split):
    make = GENERATORS[task]
    for kinds in (None, *([kind] for kind in KINDS[task])):
        found = Counter(example.metadata["template"] for example in make(16, seed=1, split=split, kinds=kinds))
        assert max(found.values()) <= 4 and all(f"/{split}-" in label for label in found)


@pytest.mark.parametrize("split", SPLITS)
def test_names_belong_to_their_split(split):
    for example in GENERATORS["documents_qa"](30, split=split):
        facts = example.metadata["facts"]
        assert all(in_split(name, split) for person in facts["born"] for name in person.split())
        assert all(in_split(f"town|{town}", split) for town in facts["town"].values())
        assert all(in_split(f"river|{river}", split) for river in facts.get("river", {}).values())
    for example in reading_questions(60, split=split):
        facts = example.metadata["facts"]
        assert all(in_split(facts[name], split) for name in ("who", "other", "third") if name in facts)
    for example in long_word_problems.long_word_problems(40, split=split):
        assert all(in_split(name, split) for name in example.metadata["names"])


@pytest.mark.parametrize("task", GENERATORS)
@pytest.mark.parametrize("split", SPLITS)
def test_evidence_question_and_haystack_lie_as_they_should(task, split):
    for example in GENERATORS[task](40, seed=2, split=split):
        start, stop = example.haystack
        assert example.question >= stop and all(start <= a < b <= stop for a, b in example.evidence)
        assert list(example.evidence) == sorted(set(example.evidence))
        assert json.loads(json.dumps(example.metadata)) == example.metadata
        for a, b in example.evidence:
            assert re.fullmatch(r'["A-Z0-9].*[.?]', example.prompt[a:b]), example.prompt[a:b]


MISTAKES = {
    "doubled blank": r"  ",
    "unfilled place": r"<[a-z_]+>|\{\}|\bNone\b",
    "a before a vowel": r"\b[Aa] (?!one|uni|use|eu|A\b)[aeiou]",
    "an before a consonant": r"\b[Aa]n (?!hour)[^aeiou\W]",
    "blank before a mark": r" [.,?!;:]",
    "doubled mark": r"[,?!]{2}|(?<!\.)\.\.(?!\.)|[,?]\.",
    "doubled word": r"\b([A-Za-z]+) \1\b",
    "small letter at the beginning": r"(?:^|(?<=[a-z0-9][.?] ))[a-z]",
    "one of many": r"(?<![-\d.,] )(?<!\d)\b[01] (?!(?:hour|is|as|plus)\b)[a-z]+s\b",
    "no mark at the end": r"[^.?\"]$",
}


@pytest.mark.parametrize("task", GENERATORS)
@pytest.mark.parametrize("split", SPLITS)
def test_the_texts_are_correct_english(task, split):
    for example in GENERATORS[task](300 if task != "documents_qa" else 72, seed=8, split=split):
        start, stop = example.haystack
        asked = "" if task == "long_exercises" else example.prompt[example.question :]
        parts = [*example.prompt[start:stop].split("\n"), asked.removeprefix("Question: ")]
        if task == "long_exercises":  # the marks that an exercise asks for stand in quotes
            parts = [re.sub(r'"[^"]*"', '"x"', part) for part in parts if not part.startswith("#")]
        elif task == "documents_qa":  # titles have no full stop
            parts = [part for part in parts if part not in example.metadata["names"]]
        for part in filter(None, parts):
            for name, pattern in MISTAKES.items():
                assert not re.search(pattern, part), f"{name} in {part!r} ({example.metadata['template']})"


def test_turns_are_shuffled_rounds():
    drawn = [in_turn("row", i, 7) for i in range(21)]
    assert all(sorted(drawn[i : i + 7]) == list(range(7)) for i in (0, 7, 14)) and drawn[:7] != drawn[7:14]
    texts = KINDS["reading_questions"]
    labels = [draw_wording("row", i, texts, "eval").label for i in range(len(texts) * 6)]
    assert len(set(labels)) == len(labels)
