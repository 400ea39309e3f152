"""Questions over paragraphs: a plain solver over the stored facts finds the answers, and nothing gives them away."""

import re
from collections import Counter

import pytest

from flashtrace_lib.tasks.scoring import contains, is_correct
from flashtrace_lib.tasks.synthetic.documents_qa import KINDS, MOST, documents_qa
from flashtrace_lib.tasks.synthetic.template_files import sentences


def words(text):
    """A token for each word and punctuation mark."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def solve(kind, works, facts):
    """The answer, from the facts alone."""
    makers = [facts["maker"][work] for work in works]
    town, born = facts["town"][makers[0]], facts["born"][makers[0]]
    river = facts.get("river", {}).get(town, "")  # where the prompt has paragraphs about towns
    elder = min(makers, key=lambda person: int(facts["born"][person]))
    return {
        "birthplace": town,
        "birth_year": born,
        "birth_digits": str(sum(int(digit) for digit in born)),
        "town_letter": town[0],
        "river": river,
        "river_letter": river[:1],
        "founded": facts.get("founded", {}).get(town),
        "elder": elder,
        "elder_last_name": elder.split(" ")[1],
    }[kind]


def kind_of(example):
    return example.metadata["template"].partition("/")[0]


EXAMPLES = [e for split in ("train", "eval") for e in documents_qa(72, 420, words, seed=5, split=split)]


def test_the_answer_follows_from_the_facts():
    assert {kind_of(example) for example in EXAMPLES} == set(KINDS)
    for example in EXAMPLES:
        facts, works = example.metadata["facts"], example.metadata["question_works"]
        assert example.answers == (solve(kind_of(example), works, facts),)
        assert all(work in example.prompt[example.question :] for work in works)
        assert is_correct(example, example.output) and not is_correct(example, "I cannot tell.")


def test_the_text_says_every_fact_and_the_evidence_those_that_are_needed():
    assert 10 < sum("river" not in example.metadata["facts"] for example in EXAMPLES) < 70
    for example in EXAMPLES:
        facts = example.metadata["facts"]
        said = [s for paragraph in example.prompt[slice(*example.haystack)].split("\n") for s in sentences(paragraph)]
        gold = [example.prompt[a:b] for a, b in example.evidence]
        assert set(gold) <= set(said) and all(text in example.reasoning for text in gold)
        for pairs in facts.values():
            assert all(any(one in text and two in text for text in said) for one, two in pairs.items())
        needed = []
        for work in example.metadata["question_works"]:
            subject = work
            for relation in KINDS[kind_of(example)].path:
                needed.append((subject, facts[relation][subject]))
                subject = facts[relation][subject]
        assert len(gold) == len(needed)
        for subject, value in needed:
            assert any(contains(text, subject) and contains(text, value) for text in gold)


def test_no_distractor_changes_the_answer():
    for example in EXAMPLES:
        facts, works, kind = example.metadata["facts"], example.metadata["question_works"], kind_of(example)
        used = {*works, *(facts["maker"][w] for w in works), *(facts["town"][facts["maker"][w]] for w in works)}
        others = [(relation, subject) for relation in facts for subject in facts[relation] if subject not in used]
        assert len({subject for _, subject in others}) >= 3
        for relation, subject in others:
            swapped = {**facts, relation: {**facts[relation], subject: "1234"}}
            assert solve(kind, works, swapped) == example.answers[0]


def test_every_name_of_a_kind_stands_equally_often():
    for example in EXAMPLES:
        body, facts = example.prompt[slice(*example.haystack)], example.metadata["facts"]
        assert min(len(facts["maker"]), len(facts["born"]), len(set(facts["town"].values()))) >= 3
        groups = [*facts["maker"].values()], [*facts["town"].values()], [*facts["born"].values()]
        groups += ([person.split()[1] for person in facts["born"]],)
        if "river" in facts:
            groups += [*facts["river"].values()], [*facts["founded"].values()]
        for group in groups:
            assert len(set(group)) == len(group)
            assert len({len(re.findall(rf"\b{value}\b", body)) for value in group}) == 1


def test_the_question_does_not_say_the_answer():
    for example in EXAMPLES:
        if not kind_of(example).endswith("letter"):
            assert not contains(example.prompt[example.question :], example.answers[0])


def test_gold_and_distractors_are_worded_alike():
    """Over many prompts, the wordings of gold paragraphs are those that distractors have, each about as often."""
    found = Counter(label for e in EXAMPLES for label in e.metadata["paragraph_templates"])
    for kind, least in (("work", 6), ("person", 6), ("town", 6)):
        for split in ("train", "eval"):
            shares = [n for label, n in found.items() if label.startswith(f"{kind}/{split}")]
            assert len(shares) >= least and max(shares) <= 0.3 * sum(shares)


@pytest.mark.parametrize("split", ("train", "eval"))
@pytest.mark.parametrize("length", (250, 512, 1000, 1300))
def test_the_length_is_met(split, length):
    for example in documents_qa(9, length, words, seed=length, split=split):
        assert abs(words(example.prompt) - length) <= 0.05 * length
        assert example.metadata["tokens"] == words(example.prompt) and len(example.metadata["facts"]["maker"]) <= MOST


def test_a_length_that_cannot_be_met_is_refused():
    with pytest.raises(ValueError, match=r"documents_qa-eval-s0-0: 60 tokens are wanted, .* no nearer than \d+"):
        documents_qa(1, 60, words)
    with pytest.raises(ValueError, match="no nearer than"):
        documents_qa(1, 9000, words)
    with pytest.raises(ValueError, match="unknown kind colour: known are birth_digits"):
        documents_qa(1, 400, words, kinds=["colour"])
