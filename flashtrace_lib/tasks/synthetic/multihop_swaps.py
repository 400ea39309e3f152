"""Swaps in the synthetic questions over paragraphs: another birthplace, another maker, and the answer that then holds.

The facts are read back from the prompt with the wordings that it was written with, so that the answer to a swapped
prompt is computed from what the prompt says, distractors included.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...text.offsets import CharSpan
from ..counterfactual import Swap, closest_in_tokens
from ..example import Example
from .multihop_qa import STEPS
from .multihop_texts import TEXTS
from .wordlists import WORDS

_FACTS = ("born", "town", "count")  # of a person
_WORD = r"[^\W\d_]+"
_GROUPS = {
    "person": rf"{_WORD} {_WORD}", "first": _WORD, "town": _WORD, "born": r"\d+", "count": r"\d+", "year": r"\d+",
    "weeks": r"\d+", "work": rf"The {_WORD} {_WORD}", "kind": rf"{_WORD}(?: {_WORD})?",
    **dict.fromkeys(("role", "verb", "done"), _WORD),
}  # fmt: skip
_CANDIDATES = 60  # new values drawn for one that has the wanted effect


@dataclass(frozen=True)
class _Facts:
    """What a prompt says: of each person the facts, of each work the person behind it."""

    people: dict[str, dict[str, Any]]
    makers: dict[str, str]
    places: dict[tuple[str, str], CharSpan]  # (person, fact), (work, "person") and (work, "weeks") -> characters

    def with_value(self, owner: str, name: str, value: str) -> _Facts:
        """The facts once one of them is replaced."""
        if name in _FACTS:
            return _Facts({**self.people, owner: {**self.people[owner], name: value}}, self.makers, self.places)
        return _Facts(self.people, {**self.makers, owner: value} if name == "person" else self.makers, self.places)


@cache
def _patterns() -> tuple[tuple[re.Pattern, ...], tuple[re.Pattern, ...]]:
    """Patterns of all wordings of a person's and of a work's paragraph."""
    details = "|".join(f"(?:{_pattern(work.detail, '')})" for work in TEXTS.works.values())
    return (
        tuple(re.compile(_pattern(text, "")) for text in TEXTS.paragraphs.person),
        tuple(re.compile(_pattern(text, details)) for text in TEXTS.paragraphs.work),
    )


def _pattern(text: str, details: str) -> str:
    """Regular expression of a wording: its first ``<name>`` is a group, the next ones must repeat it."""
    seen: set[str] = set()

    def group(match: re.Match) -> str:
        name = match[1]
        if name == "detail":
            return f"(?P<detail>{details})"
        if name == "weeks":
            return _GROUPS[name]  # once in each of the alternatives
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return f"(?P<{name}>{_GROUPS[name]})"

    return re.sub(r"<(\w+)>", group, re.sub(r"[.?]", lambda match: "\\" + match[0], str(text)))


def _read(prompt: str) -> _Facts:
    people, makers, places = {}, {}, {}
    of_person, of_work = _patterns()
    for match in (found for pattern in of_person for found in pattern.finditer(prompt)):
        people[match["person"]] = {name: match[name] for name in _FACTS}
        places |= {(match["person"], name): match.span(name) for name in _FACTS}
    for match in (found for pattern in of_work for found in pattern.finditer(prompt)):
        makers[match["work"]] = match["person"]
        places[match["work"], "person"] = match.span("person")
        weeks = re.search(r"\d+", match["detail"])
        places[match["work"], "weeks"] = (match.start("detail") + weeks.start(), match.start("detail") + weeks.end())
    return _Facts(people, makers, places)


Solve = Callable[[_Facts], str | None]


def _solver(example: Example, facts: _Facts) -> tuple[str, Solve]:
    """The fact of a person that the question asks for, and facts -> its answer, None where they have none.

    Raises
    ------
    ValueError
        If the facts do not give the example's own answer.
    """
    name = str(example.metadata.get("template", "")).partition("/")[0]
    asked = example.prompt[example.question :]
    titles = [work for work in facts.makers if work in asked]
    fact, solve = "born", None
    if name == "earlier":
        pair = [person for person in facts.people if person in asked]
        solve = _elder(pair) if len(pair) == 2 else None
    elif name in TEXTS.bridges and titles:
        fact, solve = name, _step(titles[0], name, lambda values: values[name])
    elif name in STEPS and titles:
        fact = STEPS[name].fact
        for k in range(2, 10):  # the number that the question gives
            tried = _step(titles[0], fact, lambda values, k=k: STEPS[name].answers({**values, "k": k})[-1])
            solve = solve or (tried if tried(facts) == example.answers[0] else None)
    if solve is None or solve(facts) != example.answers[0]:
        raise ValueError(
            f"example {example.id}: its paragraphs do not hold the facts of a synthetic question, so nothing can be "
            "swapped: draw it with task_examples(…, source='standin')"
        )
    return fact, solve


def _elder(pair: list[str]) -> Solve:
    def solve(facts: _Facts) -> str | None:
        one, other = (int(facts.people[person]["born"]) for person in pair)
        return None if one == other else pair[one > other]

    return solve


def _step(work: str, fact: str, answer: Callable[[dict[str, Any]], Any]) -> Solve:
    def solve(facts: _Facts) -> str | None:
        person = facts.makers[work]
        first, last = person.split()
        known = facts.people.get(person, {})
        if fact != "person" and not known:
            return None
        numbers = {name: int(known[name]) for name in ("born", "count") if known}
        return str(answer({**known, **numbers, "first": first, "last": last}))

    return solve


def multihop_swaps(
    example: Example, tokenizer: Any, seed: int = 0, distractors: int = 3, haystack: int = 3
) -> list[Swap]:
    """Swaps of the facts that a synthetic question over paragraphs depends on, of other facts, and of details.

    Gold: the fact that is asked for gets another value, or the work another maker (one of whom the prompt says
    something; any, where only the name is asked for), such that the answer becomes another. Distractors: the same kind
    of fact of others, such that it stays. Haystack: the number in a sentence that nothing depends on.

    Parameters
    ----------
    example : Example
        Of the tasks ``morehopqa`` or ``hotpotqa``, synthetic.
    tokenizer : transformers.PreTrainedTokenizerBase
        Replacements keep the number of tokens of the prompt where they can.
    seed : int
        Another seed gives other replacements.
    distractors, haystack : int
        Distractors and details to replace; fewer where there are fewer.

    Returns
    -------
    list of Swap
        Gold, distractors, haystack. A swap changes the true answer if and only if its kind is ``"gold"``.

    Raises
    ------
    ValueError
        If the prompt does not hold the facts of a synthetic question.
    """
    facts = _read(example.prompt)
    asked, solve = _solver(example, facts)
    rng = random.Random(f"{example.id}|{seed}|swaps")
    closest = closest_in_tokens(example.prompt, tokenizer)
    found: dict[str, list[Swap]] = {"gold": [], "distractor": [], "haystack": []}
    limits = {"gold": len(facts.places), "distractor": distractors, "haystack": haystack}
    places = [place for place in facts.places if place[1] in (asked, "person", "weeks")]
    for owner, name in rng.sample(places, len(places)):
        old = example.prompt[slice(*facts.places[owner, name])]
        drawn = dict.fromkeys(value for value in _values(name, asked, facts, rng) if value != old)  # each once
        answers = {value: solve(facts.with_value(owner, name, value)) for value in drawn}
        changing = [value for value, answer in answers.items() if answer not in (None, example.answers[0])]
        keeping = [value for value, answer in answers.items() if answer == example.answers[0]]
        kind = "haystack" if name == "weeks" else "gold" if changing else "distractor"
        values = changing if kind == "gold" else keeping
        if values and len(found[kind]) < limits[kind]:
            new = closest(facts.places[owner, name], values)
            found[kind].append(Swap(facts.places[owner, name], new, kind, (answers[new],)))
    return [swap for kind in found for swap in sorted(found[kind], key=lambda swap: swap.span)]


def _values(name: str, asked: str, facts: _Facts, rng: random.Random) -> Iterable[str]:
    """Values that a place of this name may get, in random order."""
    if name == "person":
        others = sorted(facts.people)
        yield from rng.sample(others, len(others))
        if asked != "person":
            return
    for _ in range(_CANDIDATES):
        yield _drawn(name, rng)


def _drawn(name: str, rng: random.Random) -> str:
    """One new value, as the generator draws it."""
    if name == "person":
        return f"{rng.choice(WORDS.first_names)} {rng.choice(WORDS.last_names)}"
    if name == "town":
        return rng.choice(WORDS.town_starts) + rng.choice(WORDS.town_ends)
    low, high = {"born": (1850, 1980), "count": (2, 6), "weeks": (11, 40)}[name]
    return str(rng.randint(low, high))
