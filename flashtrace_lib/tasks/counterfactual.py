"""Counterfactual gold: sentences of a prompt replaced by other valid ones, and what the true answer then is.

Marked evidence says which sentences the generator meant. A swap asks instead: if this sentence had said something
else, would the answer be another? Only what the generator knows is swapped, so that the prompt stays a valid problem
of its kind and the new answer is computed, not guessed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..text.locate import sentence_spans
from ..text.offsets import CharSpan, strip_span
from .example import Example
from .haystack import NOISE, essay_words

KINDS = ("gold", "distractor", "haystack")
_TRIES = 32  # replacements tried for one that leaves the number of tokens as it is
_POOL = 400  # essay sentences drawn to find one as long as the sentence that it replaces
_ASSIGNMENT = re.compile(r"VAR (?P<name>\w+) = (?P<source>(?:VAR )?\w+)")
_VALUE = re.compile(r"\d{7}")
_COMPLETE = re.compile(r"[.?!][\"'”’)\]]*$")


@dataclass(frozen=True)
class Swap:
    """One replacement in a prompt.

    Parameters
    ----------
    span : (int, int)
        Characters of ``Example.prompt`` that are replaced.
    text : str
        What takes their place.
    kind : {"gold", "distractor", "haystack"}
        Evidence; a statement of the same form that the answer does not depend on; or other text.
    answers : tuple of str
        The true answers once it is made, in the form of ``Example.answers``.

    Raises
    ------
    ValueError
        If the kind is unknown.
    """

    span: CharSpan
    text: str
    kind: str
    answers: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")

    def apply(self, prompt: str) -> str:
        """The prompt with the swap made."""
        start, stop = self.span
        return prompt[:start] + self.text + prompt[stop:]


def ruler_swaps(example: Example, tokenizer: Any, seed: int = 0, haystack: int = 3) -> list[Swap]:
    """Swaps of every needle or assignment of a RULER example, and of a few sentences of its haystack.

    A needle gets another number of seven digits. An assignment ``VAR B = VAR A`` gets a variable of another chain that
    was assigned before it, or else the number of another chain, or a new number; a first assignment gets a new number.
    A haystack sentence gets another one of its haystack. Of the replacements that are tried, one that leaves the number
    of tokens of the prompt as it was is taken, or else the one that changes it least.

    Parameters
    ----------
    example : Example
        From `ruler_examples`.
    tokenizer : transformers.PreTrainedTokenizerBase
    seed : int
        Another seed gives other replacements.
    haystack : int
        Haystack sentences to replace; fewer where there are fewer.

    Returns
    -------
    list of Swap
        Of the statements in the order of the text, then of the haystack. A swap changes the true answer if and only if
        its kind is ``"gold"``.

    Raises
    ------
    ValueError
        If the example does not say where its statements stand (it is not of `ruler_examples`).
    """
    statements = example.metadata.get("statements")
    if example.task != "ruler" or not statements or example.haystack is None:
        raise ValueError(f"example {example.id} does not say where its statements stand: draw it with ruler_examples")
    rng = random.Random(f"{example.id}|{seed}|swaps")
    closest = closest_in_tokens(example.prompt, tokenizer)
    spans = [(int(start), int(stop)) for start, stop in statements]
    of_statements = _assignment_swaps if example.metadata["kind"] == "vt" else _needle_swaps
    return [*of_statements(example, spans, rng, closest), *_haystack_swaps(example, spans, haystack, rng, closest)]


Closest = Callable[[CharSpan, Iterable[str]], str]


def closest_in_tokens(prompt: str, tokenizer: Any) -> Closest:
    """(characters, replacements) -> the one that changes the number of tokens of the prompt least; the first of such.

    At most ``_TRIES`` are looked at, and none behind one that changes nothing.
    """

    def count(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    whole = count(prompt)

    def closest(span: CharSpan, replacements: Iterable[str]) -> str:
        best, least = "", None
        for text in islice(replacements, _TRIES):
            change = abs(count(prompt[: span[0]] + text + prompt[span[1] :]) - whole)
            if least is None or change < least:
                best, least = text, change
            if not change:
                break
        return best

    return closest


def _new_numbers(rng: random.Random, digits: int, text: str) -> Iterable[str]:
    """Numbers of so many digits that do not stand in the text."""
    while True:
        number = str(rng.randrange(10 ** (digits - 1), 10**digits))
        if number not in text:
            yield number


def _needle_swaps(example: Example, spans: Sequence[CharSpan], rng: random.Random, closest: Closest) -> list[Swap]:
    swaps = []
    for start, stop in spans:
        old = _VALUE.search(example.prompt[start:stop])
        value = (start + old.start(), start + old.end())
        new = closest(value, _new_numbers(rng, 7, example.prompt))
        text = example.prompt[start : value[0]] + new + example.prompt[value[1] : stop]
        answers = tuple(new if answer == old[0] else answer for answer in example.answers)
        swaps.append(Swap((start, stop), text, "gold", answers))  # no cell has needles that are not asked for
    return swaps


def _assignment_swaps(example: Example, spans: Sequence[CharSpan], rng: random.Random, closest: Closest) -> list[Swap]:
    found = [_ASSIGNMENT.match(example.prompt, *span) for span in spans]
    lines = [(match["name"], match["source"]) for match in found]
    values = _run(lines)
    asked = values[example.answers[0]]
    swaps = []
    for i, (match, (name, source)) in enumerate(zip(found, lines, strict=True)):
        others = {variable for variable, value in values.items() if value not in (values[name], asked)}
        groups: list[Iterable[str]] = [_new_numbers(rng, 5, example.prompt)]
        if source.startswith("VAR"):  # what another chain holds: its variables that stand before, or its number
            before = sorted(f"VAR {variable}" for variable, _ in lines[:i] if variable in others)
            numbers = sorted({values[variable] for variable in others})
            groups = [rng.sample(group, len(group)) for group in (before, numbers)] + groups
        new = closest(match.span("source"), next(group for group in groups if group))
        after = _run([*lines[:i], (name, new), *lines[i + 1 :]])
        start, stop = spans[i]
        text = example.prompt[start : match.start("source")] + new + example.prompt[match.end("source") : stop]
        kind = "gold" if values[name] == asked else "distractor"
        swaps.append(Swap((start, stop), text, kind, tuple(n for n, value in after.items() if value == asked)))
    return swaps


def _run(lines: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Variable -> number, after all assignments (variable, source) have been made in turn."""
    values: dict[str, str] = {}
    for name, source in lines:
        values[name] = values[source.removeprefix("VAR ")] if source.startswith("VAR ") else source
    return values


def _haystack_swaps(
    example: Example, taken: Sequence[CharSpan], n: int, rng: random.Random, closest: Closest
) -> list[Swap]:
    """Swaps of ``n`` whole sentences of the haystack that share no character with a statement."""
    first, stop = example.haystack
    text = " " + example.prompt[first:stop] + " "  # white space around every sentence that is one
    inside = (strip_span(text, span) for span in sentence_spans(text))
    whole = ((a, b) for a, b in inside if _COMPLETE.search(text[a:b]) and text[a - 1].isspace() and text[b].isspace())
    spans = [(a + first - 1, b + first - 1) for a, b in whole]
    free = [(a, b) for a, b in spans if not any(a < end and start < b for start, end in taken)]
    noise = example.metadata["haystack"] == "noise"
    swaps = []
    for span in sorted(rng.sample(free, min(n, len(free)))):
        old = example.prompt[slice(*span)]
        others = _other_noise(old, rng) if noise else _other_essay(old, example.prompt, rng)
        if others:
            swaps.append(Swap(span, closest(span, others), "haystack", example.answers))
    return swaps


def _other_noise(old: str, rng: random.Random) -> list[str]:
    others = [sentence for sentence in NOISE if sentence != old]
    return rng.sample(others, len(others))


def _other_essay(old: str, prompt: str, rng: random.Random) -> list[str]:
    """Essay sentences that do not stand in the prompt; those with the number of words of ``old`` nearest come first."""
    words, begins = essay_words()
    starts = sorted(begins)
    pool = []
    for i in rng.sample(range(len(starts) - 1), min(_POOL, len(starts) - 1)):
        sentence = " ".join(words[starts[i] : starts[i + 1]])
        if sentence not in prompt and _COMPLETE.search(sentence):
            pool.append(sentence)
    size = len(old.split())
    return sorted(pool, key=lambda sentence: abs(len(sentence.split()) - size))  # stable: drawn order within a size
