"""Questions over paragraphs about people and their works, in the schemas of MoreHopQA and HotpotQA.

A paragraph about a work names a person, a paragraph about the person holds the fact: to answer, one goes over the
person, the bridge. The people, works and towns are made up, so no model can know them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..scoring import contains
from .splits import draw_in_split, fill, pick, wording
from .wordlists import ADJECTIVES, FIRST_NAMES, LAST_NAMES, NOUNS, TOWN_ENDS, TOWN_STARTS

# Kind of work: what made it, in the past tense, what the maker is called, and what else is told about the work.
WORKS: dict[str, tuple[str, str, str]] = {
    "film": ("directed", "director", "It was shot in <weeks> weeks."),
    "novel": ("wrote", "author", "It has <weeks> chapters."),
    "symphony": ("composed", "composer", "It lasts <weeks> minutes."),
    "painting": ("painted", "painter", "It took <weeks> weeks to finish."),
    "museum": ("designed", "architect", "It has <weeks> rooms."),
    "board game": ("invented", "inventor", "A round lasts about <weeks> minutes."),
}
_PAST = {"wrote": "written"}  # other verbs have one form

_WORK_TEXT = (
    ("<work> is a <kind> from <year>.", " <work> was <done> by <person>.", " <detail>"),
    ("<work> is a <kind> that was <done> by <person>.", " It came out in <year>.", " <detail>"),
    ("In <year> a new <kind> was announced, <work>.", " <detail>", " <person> had <done> <work> alone."),
    ("Few know the <kind> <work> today.", " Its <role> was <person>.", " The year was <year>.", " <detail>"),
    ("<work> belongs to the <kind>s of <year>.", " <detail>", " <person>, who <verb> <work>, was praised."),
    ("<work>, a <kind>, appeared in <year>.", " <detail>", " The <role> of <work> was <person>."),
)
_PERSON_TEXT = (
    ("<person> is known for quiet work.", " <first> was born in <town> in <born>.", " <first> has <count> children."),
    ("<person> was born in <born> in <town>.", " <first> raised <count> children.", " <first> played the cello."),
    ("<count> children grew up in the house of <person>.", " Before, in <born>, <person> was born in <town>."),
    ("<person> comes from <town>.", " The year of birth was <born>.", " In the family there were <count> children."),
    ("<person> kept bees.", " <town> is the birthplace of <person>, and <born> the year.", " <count> children came."),
    ("<person>, a collector of clocks, was born in <born>.", " The birthplace was <town>.",
     " <first> and a cousin brought up <count> children."),
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A work and the person behind it.

    Parameters
    ----------
    values : dict
        What the texts are filled with.
    templates : (int, int)
        Wordings of the two paragraphs.
    work, person : list of str
        Sentences of the two paragraphs.
    """

    values: dict[str, Any]
    templates: tuple[int, int]
    work: list[str]
    person: list[str]

    @property
    def paragraphs(self) -> list[list[Any]]:
        """``[title, sentences]`` of both."""
        return [[self.values["work"], self.work], [self.values["person"], self.person]]


def draw_pair(rng: random.Random, split: str, taken: set[str]) -> Pair:
    """A work and a person whose names are not in ``taken``, to which they are added."""
    kind = rng.choice(sorted(WORKS))
    verb, role, detail = WORKS[kind]
    person = _new(lambda: f"{pick(rng, FIRST_NAMES, split)} {pick(rng, LAST_NAMES, split)}", taken)
    titles = lambda: f"The {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"  # noqa: E731
    towns = lambda: rng.choice(TOWN_STARTS) + rng.choice(TOWN_ENDS)  # noqa: E731
    work = _new(lambda: draw_in_split(titles, "work", split), taken)
    town = _new(lambda: draw_in_split(towns, "town", split), taken)
    values: dict[str, Any] = {"kind": kind, "verb": verb, "done": _PAST.get(verb, verb), "role": role, "person": person}
    values |= {"first": person.split()[0], "work": work, "town": town, "weeks": rng.randint(11, 40)}
    born = draw_in_split(lambda: rng.randint(1850, 1980), "born", split)
    values |= {"born": born, "year": born + rng.randint(20, 44), "count": rng.randint(2, 6)}
    values["detail"] = fill(detail, values)
    (i, first), (j, second) = wording(rng, _WORK_TEXT, split), wording(rng, _PERSON_TEXT, split)
    return Pair(values, (i, j), [fill(s, values) for s in first], [fill(s, values) for s in second])


@dataclass(frozen=True)
class Step:
    """What is asked of a fact.

    Parameters
    ----------
    fact : str
        The value that the second paragraph gives: ``born``, ``count``, ``town`` or ``person``.
    fact_question : str
        The question after it, of a person; empty where the person is the fact.
    details : callable
        (fact, k) -> [(question, answer)], the last answer that of the whole question.
    wordings : tuple of str
        The whole question; the last is held out for evaluation.
    kind : str
        MoreHopQA's type of the answer.
    """

    fact: str
    fact_question: str
    details: Callable[[Any, int], list[tuple[str, str]]]
    wordings: tuple[str, ...]
    kind: str


STEPS: dict[str, Step] = {
    "years_later": Step("born", "In which year was <person> born?",
        lambda y, k: [(f"What is {y} + {k}?", str(y + k))],
        ("Which year is <k> years after the birth of the <role> of <work>?",
         "The <role> of <work> was born in some year. What is that year plus <k>?",
         "The <role> of <work> was born in a certain year. Which year came <k> years later?",
         "Add <k> to the birth year of the <role> of <work>. What year is that?",
         "If one counts <k> years on from the birth of the <role> of <work>, which year is reached?",
         "When was the <k>th birthday of the <role> of <work>? Give the year.",
         "In what year did the <role> of <work> turn <k>?"), "year"),
    "years_before": Step("born", "In which year was <person> born?",
        lambda y, k: [(f"What is {y} - {k}?", str(y - k))],
        ("Which year is <k> years before the birth of the <role> of <work>?",
         "Take the year in which the <role> of <work> was born. What is it minus <k>?",
         "Which year came <k> years before the <role> of <work> was born?",
         "Subtract <k> from the birth year of the <role> of <work>. What year is that?",
         "The <role> of <work> was born in some year. Which year was <k> years earlier?",
         "A war ended <k> years before the birth of the <role> of <work>. In which year did it end?",
         "Go back <k> years from the birth year of the <role> of <work>. Which year is it?"), "year"),
    "times": Step("count", "How many children does <person> have?",
        lambda c, k: [(f"What is {c} * {k}?", str(c * k))],
        ("What is <k> times the number of children of the <role> of <work>?",
         "Multiply the number of children of the <role> of <work> by <k>. What is the result?",
         "How much is <k> times the number of children that the <role> of <work> has?",
         "The <role> of <work> has some children. What is their number times <k>?",
         "Each child of the <role> of <work> receives <k> coins. How many coins are needed?",
         "If every child of the <role> of <work> owns <k> books, how many books do they own together?",
         "If each child of the <role> of <work> gets <k> stars, how many stars is that?"), "number"),
    "first_letter": Step("town", "Where was <person> born?",
        lambda town, k: [(f"What is the first letter of {town}?", town[0])],
        ("What is the first letter of the town where the <role> of <work> was born?",
         "Where was the <role> of <work> born? Give the first letter of the town.",
         "Which letter is the first in the name of the town where the <role> of <work> was born?",
         "Give the first letter of the birthplace of the <role> of <work>.",
         "The <role> of <work> was born in a town. What letter does its name start with?",
         "In which town was the <role> of <work> born? Name its first letter only.",
         "With which letter does the birthplace of the <role> of <work> begin?"), "letter"),
    "initials": Step("person", "",
        lambda name, k: [(f"What is the first letter of {part}?", part[0]) for part in name.split()]
        + [(f"What are the initials of {name}?", "".join(part[0] for part in name.split()))],
        ("What are the initials of the <role> of <work>?",
         "Who was the <role> of <work>? Give the initials.",
         "Give the initials of the person who was the <role> of <work>.",
         "Which two letters are the initials of the <role> of <work>?",
         "What are the first letters of the two names of the <role> of <work>?",
         "By which initials could the <role> of <work> sign?",
         "Write the name of the <role> of <work> as two letters. Which are they?"), "letters"),
}  # fmt: skip
_SECOND_WORDS = {"born": "birth year", "count": "number of children", "town": "birthplace", "person": "full name"}


def bridge_question(rng: random.Random, split: str) -> dict[str, Any]:
    """One record in MoreHopQA's schema: two paragraphs, two hops, then an arithmetic, date or letter step.

    Beyond the schema: ``evidence`` (the supporting sentences), ``template``, ``numbers``. ``_id`` is left to
    `synthetic.standin_records`, which counts.
    """
    pair = draw_pair(rng, split, set())
    name = rng.choice(sorted(STEPS))
    step = STEPS[name]
    index, text = wording(rng, step.wordings, split)
    values = pair.values | {"k": rng.randint(2, 9)}
    fact = values[step.fact]
    details = step.details(fact, values["k"])
    hops = [_hop(pair.work, values["work"], f"Who {values['verb']} {values['work']}?", values["person"])]
    if step.fact != "person":  # a name is its own fact
        hops.append(_hop(pair.person, values["person"], fill(step.fact_question, values), str(fact)))
    n = len(hops) + 1
    last = {
        "question": fill(step.wordings[0].replace("the <role> of <work>", "<person>"), values),
        "answer": details[-1][1],
        "paragraph_support_title": "",
        "details": [
            {"sub_id": f"{n}_{i}", "question": q, "answer": a, "paragraph_support_title": ""}
            for i, (q, a) in enumerate(details, 1)
        ],
    }
    paragraphs = pair.paragraphs
    rng.shuffle(paragraphs)
    return {
        "question": fill(text, values),
        "answer": details[-1][1],
        "previous_question": f"What is the {_SECOND_WORDS[step.fact]} of the {values['role']} of {values['work']}?",
        "previous_answer": str(fact),
        "question_decomposition": [
            {"sub_id": str(i), **hop} for i, hop in enumerate([*(hop for hop, _ in hops), last], 1)
        ],
        "context": paragraphs,
        "answer_type": step.kind,
        "previous_answer_type": step.fact,
        "no_of_hops": len(hops) + len(details),
        "reasoning_type": "Arithmetic" if step.fact in ("born", "count") else "Symbolic",
        "evidence": [sentence for _, sentence in hops],
        "template": f"{name}/{index}",
        "paragraph_templates": list(pair.templates),
        "names": [values["person"], values["work"], values["town"]],
        "numbers": [values["born"]],
    }


_ASKED: dict[str, tuple[str, tuple[str, ...]]] = {
    "town": ("town", ("Where was the <role> of <work> born?", "In which town was the <role> of <work> born?",
                      "Name the town in which the <role> of <work> was born.",
                      "The <role> of <work> was born in which town?", "From which town does the <role> of <work> come?",
                      "What is the birthplace of the <role> of <work>?")),
    "born": ("born", ("When was the <role> of <work> born?", "In which year was the <role> of <work> born?",
                      "The <role> of <work> was born in which year?",
                      "Name the year in which the <role> of <work> was born.",
                      "In what year did the <role> of <work> come into the world?",
                      "What is the birth year of the <role> of <work>?")),
}  # fmt: skip
_EARLIER = ("Who was born first, <a> or <b>?", "Which of <a> and <b> was born earlier?",
            "Who is older, <a> or <b>?", "Was <a> or <b> born first?", "Whose birth came first, that of <a> or of <b>?",
            "Of <a> and <b>, who is the older one?")  # fmt: skip


def documents_question(rng: random.Random, split: str, n_paragraphs: int = 10) -> dict[str, Any]:
    """One record in HotpotQA's hub schema: two supporting paragraphs among distractors of the same make.

    Beyond the schema: ``template``, ``names``. ``id`` is left to `synthetic.standin_records`, which counts.
    """
    if n_paragraphs < 4 or n_paragraphs % 2:
        raise ValueError(f"n_paragraphs must be an even number of at least 4, got {n_paragraphs}")
    taken: set[str] = set()
    pairs = [draw_pair(rng, split, taken) for _ in range(n_paragraphs // 2)]
    comparison = rng.random() < 0.25 and len({pair.values["born"] for pair in pairs}) > 1
    make = _comparison if comparison else _bridge
    question, answer, support, template = make(rng, split, pairs)
    paragraphs = [paragraph for pair in pairs for paragraph in pair.paragraphs]
    rng.shuffle(paragraphs)
    sentences = dict(paragraphs)
    return {
        "question": question,
        "answer": answer,
        "type": "comparison" if comparison else "bridge",
        "level": "easy",
        "supporting_facts": {
            "title": [title for title, _ in support],
            "sent_id": [sentences[title].index(sentence) for title, sentence in support],
        },
        "context": {"title": [title for title, _ in paragraphs], "sentences": [text for _, text in paragraphs]},
        "template": template,
        "names": sorted(taken),
    }


Question = tuple[str, str, list[tuple[str, str]], str]  # question, answer, supporting (title, sentence), template


def _bridge(rng: random.Random, split: str, pairs: list[Pair]) -> Question:
    name = rng.choice(sorted(_ASKED))
    fact, wordings = _ASKED[name]
    index, text = wording(rng, wordings, split)
    pair, values = pairs[0], pairs[0].values
    answer = str(values[fact])
    support = [
        (values["work"], _sentence(pair.work, values["person"])),
        (values["person"], _sentence(pair.person, answer)),
    ]
    return fill(text, values), answer, support, f"{name}/{index}"


def _comparison(rng: random.Random, split: str, pairs: list[Pair]) -> Question:
    index, text = wording(rng, _EARLIER, split)
    other = next(pair for pair in pairs if pair.values["born"] != pairs[0].values["born"])
    two = [pairs[0], other]
    support = [(pair.values["person"], _sentence(pair.person, str(pair.values["born"]))) for pair in two]
    elder = min(two, key=lambda pair: pair.values["born"]).values["person"]
    return fill(text, dict(zip("ab", (title for title, _ in support), strict=True))), elder, support, f"earlier/{index}"


def _hop(sentences: list[str], title: str, question: str, answer: str) -> tuple[dict[str, str], str]:
    """A step of the decomposition that a paragraph supports, and the sentence that does."""
    hop = {"question": question, "answer": answer, "paragraph_support_title": title}
    return hop, _sentence(sentences, answer).strip()


def _sentence(sentences: list[str], fact: str) -> str:
    """The first sentence that holds a fact as a whole word."""
    return next(sentence for sentence in sentences if contains(sentence, fact))


def _new(draw: Callable[[], str], taken: set[str]) -> str:
    """Draw until the name is new, and take it."""
    while (name := draw()) in taken:
        pass
    taken.add(name)
    return name
