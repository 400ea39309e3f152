"""Questions over many paragraphs, in the style of MoreHopQA and HotpotQA, at any length.

The question names a work. One paragraph says who made it, another where and when that person was born, a third on which
river that town lies. All paragraphs of a kind are made alike, so that only the names lead to the answer, and no name or
number stands in the prompt more often than the others of its kind.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...text.offsets import CharSpan
from ..example import Example
from .documents_texts import TEXTS
from .documents_world import OWNER, Paragraph, World, add_detail, draw_world, write_paragraphs
from .stratified import Drawn, draw_wording, numbered_examples
from .template_files import fill

TOLERANCE = 0.05  # of the length
FEWEST, MOST = 3, 14  # works, people and towns in a prompt
_MISSES = 12  # details in a row that do not fit
Count = Callable[[str], int]


@dataclass(frozen=True)
class Kind:
    """A kind of question.

    Parameters
    ----------
    path : tuple of str
        Relations to follow from a work, ``documents_world.RELATIONS``.
    operation : str
        What is done with the value at the end; empty where the value is the answer.
    works : int
        Works that the question names: of two, whose makers were born in the years at the ends of the paths, the person
        who was born first is asked for.
    """

    path: tuple[str, ...]
    operation: str = ""
    works: int = 1


KINDS: dict[str, Kind] = {
    "birthplace": Kind(("maker", "town")),
    "birth_year": Kind(("maker", "born")),
    "birth_digits": Kind(("maker", "born"), "digit_sum"),
    "town_letter": Kind(("maker", "town"), "first_letter"),
    "river": Kind(("maker", "town", "river")),
    "river_letter": Kind(("maker", "town", "river"), "first_letter"),
    "founded": Kind(("maker", "town", "founded")),
    "elder": Kind(("maker", "born"), works=2),
    "elder_last_name": Kind(("maker", "born"), "last_name", works=2),
}
OPERATIONS: dict[str, Callable[[str], str]] = {
    "first_letter": lambda name: name[0],
    "last_name": lambda name: name.split()[-1],
    "digit_sum": lambda number: str(sum(map(int, number))),
}


def documents_qa(
    n: int, length: int, count: Count, seed: int = 0, split: str = "eval", kinds: Sequence[str] | None = None
) -> list[Example]:
    """Questions of two and three hops over paragraphs; example ``i`` does not depend on ``n``.

    Parameters
    ----------
    n : int
        Examples wanted.
    length : int
        Tokens of each prompt, from about 300 to 1300; it is met within `TOLERANCE`.
    count : callable
        Tokens of a text.
    seed : int
        Another seed gives other examples.
    split : {"train", "eval"}
        The two share no wording, name or year of a person or town.
    kinds : sequence of str, optional
        Of `KINDS`; all in turn where it is not given.

    Returns
    -------
    list of Example
        ``metadata`` gives ``template`` (kind and wording), ``paragraph_templates`` (of the gold paragraphs),
        ``question_works``, ``facts`` (relation -> subject -> value, all that the prompt says), ``hops``, ``names``,
        ``length``, ``tokens`` and ``documents``.

    Raises
    ------
    ValueError
        If a kind or the split is unknown, or a prompt cannot be made that short or that long.
    """

    def make(key: str, i: int, id: str) -> Example:
        return _example(draw_wording(key, i, TEXTS.questions, split, kinds), f"{key}|{i}", id, split, length, count)

    return numbered_examples("documents_qa", n, seed, split, make)


def _example(drawn: Drawn, key: str, id: str, split: str, length: int, count: Count) -> Example:
    rng, kind = random.Random(key), KINDS[drawn.kind]
    world = draw_world(rng, split, MOST)
    gold = list(world.works)[: kind.works]
    named = rng.sample(gold, len(gold))
    question = fill(drawn.wording, _words(world, named))
    paragraphs = _fitted(world, kind, question, key, id, split, length, count)
    prompt, places = _written(list(paragraphs.values()), question)
    facts = _facts(world, paragraphs)
    lines, supporting, answer = _reasoned(world, kind, named, paragraphs)
    return Example(
        id=id,
        task="documents_qa",
        cell="documents_qa",
        prompt=prompt,
        answers=(answer,),
        evidence=tuple(sorted(places[title] for title in supporting)),
        question=prompt.rindex("Question: "),
        haystack=(0, prompt.rindex("\n\nQuestion: ")),
        reasoning="\n".join(lines),
        output=f"The answer is {answer}.",
        scorer="qa_match",
        metadata={
            "template": drawn.label,
            "paragraph_templates": [f"{paragraphs[t].kind}/{split}-{paragraphs[t].template}" for t in supporting],
            "question_works": named,
            "facts": facts,
            "hops": len(kind.path),
            "names": sorted({name for values in facts.values() for pair in values.items() for name in pair}),
            "length": length,
            "tokens": count(prompt),
            "documents": len(paragraphs),
        },
    )


def _facts(world: World, paragraphs: dict[str, Paragraph]) -> dict[str, dict[str, str]]:
    """What the paragraphs say: without those about towns nothing is known of a town but its name."""
    known = world.of([title for title in world.works if title in paragraphs]).facts
    return {name: facts for name, facts in known.items() if facts.keys() <= paragraphs.keys()}


def _words(world: World, named: list[str]) -> dict[str, str]:
    """What a question is filled with."""
    words = dict(world.values(named[0]))
    for which, work in zip("ab", named, strict=False):
        words |= {f"{which}_{name}": world.values(work)[name] for name in ("work", "role", "verb")}
    return words


def _reasoned(
    world: World, kind: Kind, named: list[str], paragraphs: dict[str, Paragraph]
) -> tuple[list[str], list[str], str]:
    """Lines of the reasoning, titles of the paragraphs that it quotes, and the answer."""
    lines, supporting, ends = [], [], {}
    for work in named:
        subject = work
        for relation in kind.path:
            value = world.facts[relation][subject]
            step = fill(TEXTS.steps[relation], {"subject": subject, "value": value, "work": work})
            lines.append(f"{paragraphs[subject].core} {step}")
            supporting.append(subject)
            subject = value
        ends[world.facts["maker"][work]] = value
    answer = value
    if kind.works == 2:
        answer, other = sorted(ends, key=lambda person: int(ends[person]))
        years = {"first_year": ends[answer], "second_year": ends[other]}
        lines.append(fill(TEXTS.steps["elder"], years | {"value": answer}))
    if kind.operation:
        result = OPERATIONS[kind.operation](answer)
        words = {"subject": answer, "value": result, "sums": _sums(answer)}
        lines.append(fill(TEXTS.operations[kind.operation], words))
        answer = result
    return lines, supporting, answer


def _sums(number: str) -> str:
    """The digits added one after the other: ``"1 + 9 = 10, 10 + 0 = 10, 10 + 2 = 12"``; empty for no number."""
    if not number.isdigit():
        return ""
    total, steps = int(number[0]), []
    for digit in number[1:]:
        steps.append(f"{total} + {digit} = {total + int(digit)}")
        total += int(digit)
    return ", ".join(steps)


def _fitted(
    world: World, kind: Kind, question: str, key: str, id: str, split: str, length: int, count: Count
) -> dict[str, Paragraph]:
    """Paragraphs in random order, by title, as many of every kind: of works, people and, where they fit, towns."""
    coin = random.Random(f"{key}|towns").random() < 0.5
    tried = []
    for with_towns in (True,) if "town" in map(OWNER.get, kind.path) else (coin, not coin):
        paragraphs = _filled(world, question, key, split, length, count, with_towns)
        tried.append(count(_written(list(paragraphs.values()), question)[0]))
        if abs(tried[-1] - length) <= TOLERANCE * length:
            return paragraphs
    nearest = min(tried, key=lambda tokens: abs(tokens - length))
    raise ValueError(
        f"example {id}: {length} tokens are wanted, and with {FEWEST} to {MOST} works, people and towns its prompt "
        f"comes no nearer than {nearest}"
    )


def _filled(
    world: World, question: str, key: str, split: str, length: int, count: Count, with_towns: bool
) -> dict[str, Paragraph]:
    """As many works as take most of the length, and details for the rest."""
    rng, kinds = random.Random(f"{key}|paragraphs"), ("work", "person", "town")[: 2 + with_towns]
    share = rng.uniform(0.75, 0.97)

    def first(size: int) -> dict[str, Paragraph]:
        """Paragraphs about the first works, in an order that does not depend on their number."""
        found = write_paragraphs(world.of(list(world.works)[:size]), split, kinds, key)
        order = {title: random.Random(f"{key}|{title}").random() for title in found}
        return {title: found[title] for title in sorted(found, key=order.__getitem__)}

    def tokens(paragraphs: dict[str, Paragraph]) -> int:
        return count(_written(list(paragraphs.values()), question)[0])

    paragraphs = first(FEWEST)
    for size in range(FEWEST + 1, MOST + 1):
        more = first(size)
        if tokens(more) > length * share:
            break
        paragraphs = more
    _add_details(paragraphs, rng, split, length, tokens)
    return paragraphs


def _add_details(
    paragraphs: dict[str, Paragraph], rng: random.Random, split: str, length: int, tokens: Callable[[Any], int]
) -> None:
    """Add sentences to random paragraphs until no more fit."""
    misses = 0
    while misses < _MISSES:
        room = [paragraph for paragraph in paragraphs.values() if not paragraph.full]
        added = add_detail(rng.choice(room), rng, split) if room else None
        if added is None:
            misses += 1
        elif tokens(paragraphs) > length:
            place, _ = added
            place.pop()
            misses += 1


def _written(paragraphs: list[Paragraph], question: str) -> tuple[str, dict[str, CharSpan]]:
    """The prompt, and by title where the core of each paragraph stands."""
    text, places = "", {}
    for paragraph in paragraphs:
        text += f"{paragraph.title}\n"
        start = len(text) + sum(len(sentence) + 1 for sentence in paragraph.before)
        places[paragraph.title] = (start, start + len(paragraph.core))
        text += f"{paragraph.text}\n\n"
    return f"{text}Question: {question}", places
