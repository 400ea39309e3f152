"""Facts in words, reasoned about by quoting or in notation: problems that no string match can solve.

A text hides a dozen facts of one form: "Lockwood owns twice as many chairs as Quimwell." "Quimwell owns eight chairs."
A question asks for one number, which follows from a chain of one to three of them, and says how to reason: in quotes
("Quimwell owns eight chairs: 8"), or in notation ("L=2Q", "Q=8", "L=16"), where no word of a fact recurs; and how many
other facts, which the answer does not need, are noted between the facts that it needs and what follows from them.
"""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.haystack import EssayHaystack, Haystack, NoiseHaystack, hide, largest_fitting
from flashtrace_lib.tasks.splits import in_split
from flashtrace_lib.text.offsets import CharSpan

WORDS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
         "seventeen eighteen nineteen twenty").split()  # fmt: skip
MODES = ("quote", "notation")
OFF_PATH = (0, 1, 2, 4, 8)
CHAINS = (1, 2, 3)
HAYSTACKS = ("noise", "essay")
DISTRACTING = 10  # facts beside the chain that is asked for
# Initials are unambiguous within a text; no token of a name is a letter alone, so none recurs in notation.
_STARTS = (
    "Arm Alex Ash Black Brook Clay Copper Dog Day Don Em Ever End For Fire Flat Free Grand Gold Good Hall Hill High "
    "Hol Jackson John Jan Jun Key Law Long Light Lock Mid Man New Night Net Old Or Oxford On Open Over Out Park Port "
    "Plum Quick Quart Quiet Queen Red Rock Rose Row Sand Stone Sun Thomas Trail Under Un Vol Van Water White Wood "
    "Wild Young Yes Year Yellow"
).split()
_ENDS = "wood field ley worth well ridge burn ford man stead combe more cliff brook land stone bridge wick port".split()
NAMES = tuple(start + end for start in _STARTS for end in _ENDS)
_BEFORE = "Read the following text. I will ask about it afterwards.\n\n"
_REASON = {"quote": "Reason in quotes", "notation": "Reason in notation"}

RELATIONS: dict[str, Callable[[int], int]] = {  # as notation writes them, {b} being the other's initial
    "{b}": lambda v: v,
    "{b}+1": lambda v: v + 1,
    "{b}+2": lambda v: v + 2,
    "{b}-1": lambda v: v - 1,
    "{b}-2": lambda v: v - 2,
    "2{b}": lambda v: 2 * v,
}


@dataclass(frozen=True)
class Family:
    """How facts of one kind are worded: ``{a}`` and ``{b}`` are names, ``{k}`` the kind of thing, ``{w}`` a number."""

    kinds: tuple[str, ...]
    number: str
    relation: str
    relations: Mapping[str, str]
    question: str
    largest: int


FAMILIES = {
    "things": Family(
        ("chair", "hat", "boat", "lamp", "dog", "clock", "book", "horse", "coat", "table"),
        "{a} owns {w} {k}s.",
        "{a} owns {r} {b}.",
        {"{b}": "as many {k}s as", "{b}+1": "one {k} more than", "{b}+2": "two {k}s more than",
         "{b}-1": "one {k} fewer than", "{b}-2": "two {k}s fewer than", "2{b}": "twice as many {k}s as"},
        "How many {k}s does {a} own?",
        20,
    ),
    "times": Family(
        ("train", "ferry", "bus", "coach", "boat", "plane", "tram", "van"),
        "The {a} {k} leaves at {w}.",
        "The {a} {k} leaves {r} the {b} {k}.",
        {"{b}": "together with", "{b}+1": "one hour after", "{b}+2": "two hours after", "{b}-1": "one hour before",
         "{b}-2": "two hours before"},
        "At what hour does the {a} {k} leave?",
        12,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """One sentence: the value of ``name`` is that of ``of`` through ``relation``; a number where ``of`` is None."""

    name: str
    value: int
    sentence: str
    of: str | None = None
    relation: str = ""

    def note(self, mode: str) -> str:
        """The line of T that takes this fact down; a number in words also as digits."""
        value = [str(self.value)] if self.of is None else []
        if mode == "quote":
            return ": ".join([self.sentence.rstrip("."), *value])
        return "=".join([self.name[0], *([self.relation.format(b=self.of[0])] if self.of else []), *value])

    def result(self, mode: str) -> str:
        """The line of T that says what follows from the facts noted before."""
        return f"{self.name}: {self.value}" if mode == "quote" else f"{self.name[0]}={self.value}"


def reasoned(path: list[Fact], mode: str, noted: list[str]) -> str:
    """T: the facts from the one that was asked for down to a number, what is noted besides, and the values up again."""
    return "\n".join([*_down(path, mode), *noted, *_up(path, mode)])


def _down(path: list[Fact], mode: str) -> list[str]:
    return [fact.note(mode) for fact in reversed(path)]


def _up(path: list[Fact], mode: str) -> list[str]:
    return [fact.result(mode) for fact in path[1:]]


class SpelledEssays(EssayHaystack):
    """The essays without a digit: "in 2004" reads "in some"."""

    def text(self, start: int, stop: int) -> str:
        """Essay words, numbers replaced."""
        return re.sub(r"\d+(?:[.,]\d+)*", "some", super().text(start, stop))


@dataclass(frozen=True)
class FactText:
    """A haystack with facts in it, of which more than one question can be asked.

    Parameters
    ----------
    key : str
        Seeds every draw.
    body : str
        All that stands before the question.
    facts, spans : tuple
        In the order of the text, and their characters.
    """

    key: str
    family: str
    kind: str
    haystack: str
    body: str
    facts: tuple[Fact, ...]
    spans: tuple[CharSpan, ...]

    def path(self, name: str) -> list[Fact]:
        """The facts that the value of ``name`` rests on, the one with a number first."""
        facts, found = {fact.name: fact for fact in self.facts}, []
        while name is not None:
            found.insert(0, facts[name])
            name = facts[name].of
        return found

    def ask(self, name: str, mode: str, off_path: int) -> Example:
        """Ask for the value of ``name``, in a mode of reasoning, with ``off_path`` other facts noted first.

        Returns
        -------
        Example
            ``evidence`` are the facts of the path, the one with a number first. The metadata tell ``distracting``, the
            characters of all other facts in the order of the text, of which T is to note the first ``off_path``;
            ``notes``, T's line for each of them; ``down`` and ``up``, T's lines for the path; and ``twin``: prompt,
            answers and reasoning where the path begins with another number.

        Raises
        ------
        ValueError
            If the text has too few other facts, or the mode is unknown.
        """
        if mode not in MODES or not 0 <= off_path <= len(self.facts) - len(self.path(name)):
            raise ValueError(f"no {off_path} other facts, or no mode {mode!r} (one of {', '.join(MODES)})")
        path, family = self.path(name), FAMILIES[self.family]
        span = dict(zip(self.facts, self.spans, strict=True))
        others = [fact for fact in self.facts if fact not in path]
        notes = [fact.note(mode) for fact in others]
        prompt = f"{self.body}\n\n{family.question.format(a=name, k=self.kind)}"
        first = {0: "only what is needed", 1: "what is needed, and the first other fact"}
        request = first.get(off_path, f"what is needed, and the first {WORDS[off_path]} other facts")
        swapped = _another(path, family, self.kind, random.Random(f"{self.key}|twin"))
        start, stop = span[path[0]]
        twin = {"prompt": prompt[:start] + swapped[0].sentence + prompt[stop:], "answers": [str(swapped[-1].value)],
                "reasoning": reasoned(swapped, mode, notes[:off_path])}  # fmt: skip
        return Example(
            id=f"{self.key}-{self.haystack}-{name}-{mode}-{off_path}", task="facts", cell=f"{mode}_{off_path}",
            prompt=prompt, answers=(str(path[-1].value),), evidence=tuple(span[fact] for fact in path),
            question=len(self.body) + 2, haystack=(len(_BEFORE), len(self.body)),
            request=f"\n\n{_REASON[mode]}: {request}.", reasoning=reasoned(path, mode, notes[:off_path]),
            output=str(path[-1].value), scorer="exact_set",
            metadata={"mode": mode, "off_path": off_path, "chain": len(path), "family": self.family,
                      "haystack": self.haystack, "distracting": [list(span[fact]) for fact in others],
                      "notes": notes, "down": _down(path, mode), "up": _up(path, mode), "twin": twin,
                      "answer_pattern": r"\d+"},
        )  # fmt: skip


def _worded(family: Family, kind: str, name: str, value: int, of: str | None = None, relation: str = "") -> Fact:
    """The fact in its family's words."""
    words = family.relations[relation].format(k=kind) if of else ""
    form = family.relation if of else family.number
    return Fact(name, value, form.format(a=name, b=of, r=words, k=kind, w=WORDS[value]), of, relation)


def _values(first: int, relations: list[str], largest: int) -> list[int] | None:
    """Values along a chain; None where one is out of range."""
    values = list(accumulate(relations, lambda value, relation: RELATIONS[relation](value), initial=first))
    return values if all(1 <= value <= largest for value in values) else None


def _another(path: list[Fact], family: Family, kind: str, rng: random.Random) -> list[Fact]:
    """The path from another first number."""
    relations = [fact.relation for fact in path[1:]]
    firsts = [v for v in range(2, 11) if v != path[0].value and _values(v, relations, family.largest)]
    values = _values(rng.choice(firsts), relations, family.largest)
    return [_worded(family, kind, fact.name, v, fact.of, fact.relation) for fact, v in zip(path, values, strict=True)]


def _chain(names: list[str], family: Family, kind: str, rng: random.Random) -> list[Fact]:
    """Facts of which each but the first rests on the one before; two first numbers at least are possible."""
    while True:
        relations = [rng.choice(list(family.relations)) for _ in names[1:]]
        firsts = [v for v in range(2, 11) if _values(v, relations, family.largest)]
        if len(firsts) > 1:
            values = _values(rng.choice(firsts), relations, family.largest)
            rows = zip(names, values, [None, *names[:-1]], ["", *relations], strict=True)
            return [_worded(family, kind, *row) for row in rows]


def fact_text(
    tokenizer: Any, length: int, key: str, *, family: str, haystack: str, chains: list[int], split: str = "eval"
) -> tuple[FactText, str]:
    """A text of ``length`` tokens with chains of facts in it, and the last name of the first chain.

    Parameters
    ----------
    length : int
        Tokens of the prompt with its question, the request not counted; reached to within one unit of haystack.
    chains : list of int
        Facts of each chain, 23 in all at most.
    split : {"train", "eval"}
        Which names may be drawn: the two share none.
    """
    rng, worded = random.Random(key), FAMILIES[family]
    kind = rng.choice(worded.kinds)
    by_letter: dict[str, list[str]] = {}
    for name in NAMES:
        if in_split(name, split):
            by_letter.setdefault(name[0], []).append(name)
    names = [rng.choice(by_letter[letter]) for letter in rng.sample(sorted(by_letter), sum(chains))]
    asked, facts = names[chains[0] - 1], []
    for n in chains:
        facts += _chain([names.pop(0) for _ in range(n)], worded, kind, rng)
    rng.shuffle(facts)
    hay: Haystack = NoiseHaystack() if haystack == "noise" else SpelledEssays.seeded(rng)
    question = f"\n\n{worded.question.format(a=asked, k=kind)}"

    statements = [fact.sentence for fact in facts]
    text, spans = hidden(tokenizer, _BEFORE, statements, question, length=length, hay=hay, key=f"{key}|places")
    return FactText(key, family, kind, haystack, text, tuple(facts), tuple(spans)), asked


def hidden(
    tokenizer: Any, before: str, statements: list[str], after: str, *, length: int, hay: Haystack, key: str
) -> tuple[str, list[CharSpan]]:
    """``before`` and a haystack with statements in it, as long as fits ``length`` tokens; their places."""

    def page(units: int) -> tuple[str, list[CharSpan]]:
        return hide(hay, units, tuple(statements), random.Random(key))

    def cost(units: int) -> int:
        return len(tokenizer(before + page(units)[0] + after, add_special_tokens=False)["input_ids"])

    text, spans = page(largest_fitting(cost, length, hay.tokens_per_unit))
    return before + text, [(len(before) + start, len(before) + stop) for start, stop in spans]


def other_chains(n: int, rng: random.Random) -> list[int]:
    """Lengths of chains that hold ``n`` facts together."""
    lengths: list[int] = []
    while sum(lengths) < n:
        lengths.append(min(rng.choice(CHAINS), n - sum(lengths)))
    return lengths


def fact_examples(
    tokenizer: Any, n: int, mode: str, off_path: int, *, chain: int, length: int = 1024, seed: int = 0
) -> list[Example]:
    """The first ``n`` problems of a cell: families and haystacks take turns.

    Problem ``i`` has the same text and asks for the same number in every mode and with any number of facts off the
    path, so that cells can be compared in pairs. Names are never those of training.
    """
    examples = []
    for i in range(n):
        key = f"facts-{length}-c{chain}-s{seed}-{i}"
        chains = [chain, *other_chains(DISTRACTING, random.Random(f"{key}|chains"))]
        turn = {"family": list(FAMILIES)[i % 2], "haystack": HAYSTACKS[i // 2 % 2]}
        text, asked = fact_text(tokenizer, length, key, chains=chains, **turn)
        example = text.ask(asked, mode, off_path)
        # what is asked of one text in different cells is one cluster of an interval
        examples.append(replace(example, metadata=example.metadata | {"seed": seed, "index": i, "template": key}))
    return examples


def as_asked(example: Example, reasoning: str) -> bool:
    """Whether T takes down the path, then about as many other facts as asked, right and none twice, then the values.

    A quarter of the facts asked for may be missing or too many: seven or ten are about eight, and one is one.
    """
    said, lines = example.metadata, reasoning.strip().split("\n")
    down, stop = len(said["down"]), len(lines) - len(said["up"])
    noted = lines[down:stop]
    right = set(noted) <= set(said["notes"]) and len(set(noted)) == len(noted)
    path = lines[:down] == said["down"] and lines[stop:] == said["up"]
    return path and right and abs(len(noted) - said["off_path"]) <= said["off_path"] / 4
