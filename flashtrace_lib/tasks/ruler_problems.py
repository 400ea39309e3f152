"""What stands in a RULER prompt besides the haystack: needles or assignments, instruction, question, answer.

Templates are RULER's (Hsieh et al., 2024), word for word, its singular for one value included.
"""

import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from ..text.offsets import CharSpan
from .haystack import Haystack, hide

_NEEDLE = "One of the special magic numbers for {key} is: {value}."
_NIAH = (
    "{some} special magic {numbers} {are} hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the {numbers} afterwards.\n",
    "\nWhat {are_all} the special magic {numbers} for {query} mentioned in the provided text?",
    " The special magic {numbers} for {query} mentioned in the provided text {are}",
)
_PLURAL = {"some": "Some", "numbers": "numbers", "are": "are", "are_all": "are all"}
_SINGULAR = {"some": "A", "numbers": "number", "are": "is", "are_all": "is"}  # RULER's wording for one value

_VT = (
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n",
    "\nQuestion: Find all variables that are assigned the value {query} in the text above.",
    " Answer: According to the chain(s) of variable assignment in the text above, {n} variables are assigned "
    "the value {query}, they are: ",
)


@dataclass(frozen=True)
class RulerCell:
    """Difficulty of a cell.

    Parameters
    ----------
    kind : {"niah", "vt"}
        Needle in a haystack, or variable tracking.
    queries : int
        NIAH: keys hidden, all of them asked for.
    values : int
        NIAH: values of each key.
    hops : int
        VT: assignments from one variable to the next in each chain; ``hops + 1`` variables hold its value.
    chains : int
        VT: chains; the first is asked for, the others distract.
    """

    kind: str
    queries: int = 1
    values: int = 1
    hops: int = 1
    chains: int = 1

    def __post_init__(self) -> None:
        if self.kind not in ("niah", "vt"):
            raise ValueError(f"kind {self.kind!r} is not a kind of RULER cell: choose 'niah' or 'vt'")
        unused = ("hops", "chains") if self.kind == "niah" else ("queries", "values")
        for name in ("queries", "values", "hops", "chains"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
            if name in unused and value != 1:
                raise ValueError(f"{name} has no meaning in a {self.kind} cell: leave it out")

    @property
    def name(self) -> str:
        """Name in the tables: ``mq_q4``, ``mv_v2``, ``h6_c1``; ``mqv_q2_v3`` for both at once."""
        if self.kind == "vt":
            return f"h{self.hops}_c{self.chains}"
        if self.values == 1:
            return f"mq_q{self.queries}"
        return f"mv_v{self.values}" if self.queries == 1 else f"mqv_q{self.queries}_v{self.values}"


@dataclass(frozen=True)
class Problem:
    """A problem without its haystack: ``before`` + haystack with ``statements`` in it + ``after``."""

    before: str
    after: str
    statements: tuple[str, ...]  # as they follow each other in the text
    gold: tuple[int, ...]  # which of them are evidence
    answers: tuple[str, ...]
    answer_prefix: str
    reasoning: str
    output: str
    answer_pattern: str

    def render(self, haystack: Haystack, n: int, key: str) -> tuple[str, list[CharSpan]]:
        """Text with ``n`` units of haystack, and the characters of each statement."""
        context, spans = hide(haystack, n, self.statements, random.Random(f"{key}|places"))
        shift = len(self.before)
        return self.before + context + self.after, [(a + shift, b + shift) for a, b in spans]


Draw = Callable[[random.Random, Callable[[], str], int], list[str]]  # (rng, one name, how many) -> different names
Keep = Callable[[str], bool]  # whether a name or a number may be used


def draw_names(rng: random.Random, name: Callable[[], str], k: int, keep: Keep | None = None) -> list[str]:
    """``k`` different names, in the order of drawing."""
    names: dict[str, None] = {}
    while len(names) < k:
        drawn = name()
        if keep is None or keep(drawn):
            names[drawn] = None
    return list(names)


def draw_numbers(rng: random.Random, digits: int, k: int, keep: Keep | None = None) -> list[str]:
    """``k`` different numbers of so many digits."""
    bounds = 10 ** (digits - 1), 10**digits
    if keep is None:
        return list(map(str, rng.sample(range(*bounds), k)))
    return draw_names(rng, lambda: str(rng.randrange(*bounds)), k, keep)


@lru_cache(maxsize=1)
def _key_words() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Adjectives and nouns of wonderwords, plain words only: a key has one hyphen."""
    folder = resources.files("wonderwords") / "assets"
    lists = ((folder / f"{kind}list.txt").read_text(encoding="utf-8").split("\n") for kind in ("adjective", "noun"))
    adjectives, nouns = (tuple(w for w in words if w.isascii() and w.isalpha() and w.islower()) for words in lists)
    return adjectives, nouns


def niah_problem(cell: RulerCell, rng: random.Random, stop: str, draw: Draw, keep: Keep | None = None) -> Problem:
    """Needles of all keys in random order; a key's values in the order in which they stand in the text.

    The chain quotes the needles key by key, so that each line is found by words that stand in the question.
    """
    adjectives, nouns = _key_words()
    keys = draw(rng, lambda: f"{rng.choice(adjectives)}-{rng.choice(nouns)}", cell.queries)
    numbers = iter(draw_numbers(rng, 7, cell.queries * cell.values, keep))
    facts = [(key, next(numbers)) for key in keys for _ in range(cell.values)]  # in the order of the query
    order = list(_interleave([[f for f in facts if f[0] == key] for key in keys], rng))
    query = keys[0] if len(keys) == 1 else ", ".join(keys[:-1]) + ", and " + keys[-1]
    words = {**(_SINGULAR if len(facts) == 1 else _PLURAL), "query": query}
    before, after, prefix = (part.format(**words) for part in _NIAH)
    answers = tuple(value for _, value in facts)
    return Problem(
        before=before, after=after, statements=tuple(_NEEDLE.format(key=key, value=value) for key, value in order),
        gold=tuple(range(len(order))), answers=answers, answer_prefix=prefix,
        reasoning="\n".join(_NEEDLE.format(key=key, value=value) for key, value in facts),
        output=f"{prefix.strip()} {', '.join(answers)}.", answer_pattern=r"\b\d{7}\b",
    )  # fmt: skip


def vt_problem(cell: RulerCell, rng: random.Random, stop: str, draw: Draw, keep: Keep | None = None) -> Problem:
    """Chains of assignments, woven into each other; the first is asked for."""
    size = cell.hops + 1
    names = draw(rng, lambda: "".join(rng.choices(string.ascii_uppercase, k=5)), cell.chains * size)
    values, chains = draw_numbers(rng, 5, cell.chains, keep), []
    for c in range(cell.chains):
        variables = names[c * size : (c + 1) * size]
        sources = [values[c], *(f"VAR {v}" for v in variables[:-1])]
        chains.append([(c, f"VAR {v} = {source}") for v, source in zip(variables, sources, strict=True)])
    order = list(_interleave(chains, rng))
    variables, value = names[:size], values[0]
    before, after, prefix = (part.format(query=value, n=size) for part in _VT)
    return Problem(
        before=before, after=after, statements=tuple(statement + stop for _, statement in order),
        gold=tuple(i for i, (c, _) in enumerate(order) if c == 0), answers=tuple(variables), answer_prefix=prefix,
        reasoning=_tracking_chain(order), answer_pattern=r"\b[A-Z]{5}\b",
        output=f"The variables assigned the value {value} are: {', '.join(variables)}.",
    )  # fmt: skip


def _tracking_chain(order: list[tuple[int, str]]) -> str:
    """Go through the assignments as they stand; say of each source, then of its variable, whether it has the value.

    Made to be easy to learn. Looking for the line that *uses* a variable means copying a name that stands before the
    one searched for; with several chains the next line is mostly not the one. Here each step looks a name up where
    it was written last and copies what follows: the verdict, or, in the answer, the next variable of the chain
    (``A yes, so B yes`` leads from A to B, a line's end after ``B yes`` leads nowhere).
    """
    lines = []
    for chain, statement in order:
        variable, verdict = statement.split()[1], "yes" if chain == 0 else "no"
        lines.append(f"{statement} {verdict}, so {variable} {verdict}")
    return "\n".join(lines)


def _interleave(groups: list[list], rng: random.Random) -> Iterator:
    """All items in random order, those of a group in their own."""
    turns = [i for i, group in enumerate(groups) for _ in group]
    rng.shuffle(turns)
    queues = [iter(group) for group in groups]
    return (next(queues[i]) for i in turns)
