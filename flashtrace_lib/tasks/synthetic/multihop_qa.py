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
from .multihop_texts import TEXTS
from .names import draw_new, draw_person, draw_title, draw_town
from .splits import draw_in_split, wording
from .template_files import check_names, fill, sentences

Values = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """A work and the person behind it.

    Parameters
    ----------
    values : dict
        Names and numbers that the texts are filled with.
    templates : (int, int)
        Wordings of the two paragraphs.
    work, person : list of str
        Sentences of the two paragraphs; all but the first begin with a blank, as in HotpotQA.
    """

    values: Values
    templates: tuple[int, int]
    work: list[str]
    person: list[str]

    @property
    def paragraphs(self) -> list[list[Any]]:
        """``[title, sentences]`` of both."""
        return [[self.values["work"], self.work], [self.values["person"], self.person]]


def draw_pair(rng: random.Random, split: str, taken: set[str]) -> Pair:
    """A work and a person whose names are not in ``taken``, to which they are added."""
    kind = rng.choice(sorted(TEXTS.works))
    texts = TEXTS.works[kind]
    person = draw_new(lambda: draw_person(rng, split), taken)
    work = draw_new(lambda: draw_title(rng, split), taken)
    town = draw_new(lambda: draw_town(rng, split), taken)
    first, last = person.split()
    weeks = rng.randint(11, 40)
    born = draw_in_split(lambda: rng.randint(1850, 1980), "born", split)
    year, count = born + rng.randint(20, 44), rng.randint(2, 6)
    values = {
        "kind": kind, "role": texts.role, "verb": texts.verb, "done": texts.done, "work": work, "year": year,
        "weeks": weeks, "detail": fill(texts.detail, {"weeks": weeks}),
        "person": person, "first": first, "last": last, "town": town, "born": born, "count": count,
    }  # fmt: skip
    i, of_work = wording(rng, TEXTS.paragraphs.work, split)
    j, of_person = wording(rng, TEXTS.paragraphs.person, split)
    return Pair(values, (i, j), _paragraph(of_work, values), _paragraph(of_person, values))


def _paragraph(text: str, values: Values) -> list[str]:
    first, *others = sentences(fill(text, values))
    return [first, *(f" {sentence}" for sentence in others)]


def _sentence(paragraph: list[str], fact: str) -> str:
    """The first sentence that holds a fact as a whole word."""
    return next(sentence for sentence in paragraph if contains(sentence, fact))


@dataclass(frozen=True)
class Step:
    """The step from a fact about the person to the answer.

    Parameters
    ----------
    fact : {"born", "count", "town", "person"}
        Where the step begins; ``person`` is the name, which needs no second hop.
    answer_type : str
        MoreHopQA's type of the answer.
    answers : callable
        Values -> answers to the questions of the step; the last one answers the whole question.
    """

    fact: str
    answer_type: str
    answers: Callable[[Values], list[Any]]


STEPS: dict[str, Step] = {
    "years_later": Step("born", "year", lambda v: [v["born"] + v["k"]]),
    "years_before": Step("born", "year", lambda v: [v["born"] - v["k"]]),
    "times": Step("count", "number", lambda v: [v["count"] * v["k"]]),
    "first_letter": Step("town", "letter", lambda v: [v["town"][0]]),
    "initials": Step("person", "letters", lambda v: [v["first"][0], v["last"][0], v["first"][0] + v["last"][0]]),
}
check_names(TEXTS.steps, STEPS, "step")


def bridge_question(rng: random.Random, split: str) -> dict[str, Any]:
    """One record in MoreHopQA's schema: two paragraphs, two hops, then an arithmetic, date or letter step.

    Beyond the schema: ``evidence`` (the supporting sentences), ``template``, ``numbers``. ``_id`` is left to
    `synthetic.synthetic_records`, which counts.
    """
    pair = draw_pair(rng, split, set())
    name = rng.choice(sorted(STEPS))
    step, texts = STEPS[name], TEXTS.steps[name]
    index, text = wording(rng, texts.wordings, split)
    values = pair.values | {"k": rng.randint(2, 9)}
    fact, answers = str(values[step.fact]), [str(answer) for answer in step.answers(values)]
    paragraphs = pair.paragraphs
    rng.shuffle(paragraphs)

    hops = [_asked(fill(TEXTS.first_hop, values), values["person"], values["work"])]
    evidence = [_sentence(pair.work, values["person"]).strip()]
    if step.fact != "person":
        hops.append(_asked(fill(TEXTS.second_hop[step.fact], values), fact, values["person"]))
        evidence.append(_sentence(pair.person, fact).strip())
    of_person = fill(texts.wordings[0].replace("the <role> of <work>", "<person>"), values)
    details = [_asked(fill(q, values), answer) for q, answer in zip(texts.questions, answers, strict=True)]
    last = _asked(of_person, answers[-1]) | {"details": _numbered(details, f"{len(hops) + 1}_")}
    return {
        "question": fill(text, values),
        "answer": answers[-1],
        "previous_question": fill(TEXTS.both_hops[step.fact], values),
        "previous_answer": fact,
        "question_decomposition": _numbered([*hops, last]),
        "context": paragraphs,
        "answer_type": step.answer_type,
        "previous_answer_type": step.fact,
        "no_of_hops": len(hops) + len(details),
        "reasoning_type": "Arithmetic" if step.fact in ("born", "count") else "Symbolic",
        "evidence": evidence,
        "template": f"{name}/{index}",
        "paragraph_templates": list(pair.templates),
        "names": [values["person"], values["work"], values["town"]],
        "numbers": [values["born"]],
    }


def _asked(question: str, answer: str, title: str = "") -> dict[str, Any]:
    """A part of the decomposition, and the title of the paragraph that supports it."""
    return {"question": question, "answer": answer, "paragraph_support_title": title}


def _numbered(parts: list[dict[str, Any]], prefix: str = "") -> list[dict[str, Any]]:
    return [{"sub_id": f"{prefix}{i}", **part} for i, part in enumerate(parts, 1)]


def documents_question(rng: random.Random, split: str, n_paragraphs: int = 10) -> dict[str, Any]:
    """One record in HotpotQA's hub schema: two supporting paragraphs among distractors of the same make.

    Beyond the schema: ``template``, ``names``. ``id`` is left to `synthetic.synthetic_records`, which counts.
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
    texts = dict(paragraphs)
    return {
        "question": question,
        "answer": answer,
        "type": "comparison" if comparison else "bridge",
        "level": "easy",
        "supporting_facts": {
            "title": [title for title, _ in support],
            "sent_id": [texts[title].index(sentence) for title, sentence in support],
        },
        "context": {"title": [title for title, _ in paragraphs], "sentences": [text for _, text in paragraphs]},
        "template": template,
        "names": sorted(taken),
    }


Question = tuple[str, str, list[tuple[str, str]], str]  # question, answer, supporting (title, sentence), template


def _bridge(rng: random.Random, split: str, pairs: list[Pair]) -> Question:
    fact = rng.choice(sorted(TEXTS.bridges))
    index, text = wording(rng, TEXTS.bridges[fact], split)
    pair, values = pairs[0], pairs[0].values
    answer = str(values[fact])
    support = [
        (values["work"], _sentence(pair.work, values["person"])),
        (values["person"], _sentence(pair.person, answer)),
    ]
    return fill(text, values), answer, support, f"{fact}/{index}"


def _comparison(rng: random.Random, split: str, pairs: list[Pair]) -> Question:
    index, text = wording(rng, TEXTS.comparisons, split)
    other = next(pair for pair in pairs if pair.values["born"] != pairs[0].values["born"])
    two = [pairs[0], other]
    support = [(pair.values["person"], _sentence(pair.person, str(pair.values["born"]))) for pair in two]
    elder = min(two, key=lambda pair: pair.values["born"]).values["person"]
    return fill(text, dict(zip("ab", (title for title, _ in support), strict=True))), elder, support, f"earlier/{index}"
