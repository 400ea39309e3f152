"""Plain questions of one to three sentences about short texts, of many forms; the reasoning quotes the text."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.synthetic.names import draw_new, draw_town
from flashtrace_lib.tasks.synthetic.splits import draw_in_split, pick
from flashtrace_lib.tasks.synthetic.stratified import Drawn, draw_wording, numbered_examples
from flashtrace_lib.tasks.synthetic.template_files import Text, fill, placeholders, sentences
from flashtrace_lib.tasks.synthetic.wordlists import WORDS

from .examples import reading_example
from .texts import PAIRS, TEXTS, Form

_NUMBERS = (11, 399)
_AGES = (18, 90)


def reading_questions(n: int, seed: int = 0, split: str = "eval", kinds: Sequence[str] | None = None) -> list[Example]:
    """Questions about texts of a few sentences; example ``i`` does not depend on ``n``.

    Parameters
    ----------
    n : int
        Examples wanted.
    seed : int
        Another seed gives other examples.
    split : {"train", "eval"}
        The two share no wording, no name of a person or town, and no pair of numbers.
    kinds : sequence of str, optional
        Of `reading_texts.FORMS`; all in turn where it is not given.

    Returns
    -------
    list of Example
        ``metadata`` gives ``template`` (form and wording) and ``facts``, what the placeholders were filled with.

    Raises
    ------
    ValueError
        If a form or the split is unknown, or ``n`` is negative.
    """

    def make(key: str, i: int, id: str) -> Example:
        return _example(draw_wording(key, i, TEXTS.forms, split, kinds), random.Random(f"{key}|{i}"), id, split)

    return numbered_examples("reading_questions", n, seed, split, make)


def _example(drawn: Drawn, rng: random.Random, id: str, split: str) -> Example:
    form = TEXTS.forms[drawn.kind]
    values = _values(rng, split, _AGES if drawn.kind == "older" else _NUMBERS)
    told, question = _asked(drawn.wording, form)
    facts = {name: values[name] for name in sorted(placeholders(drawn.wording + form.answer) | {*form.gold})}
    return reading_example(
        "reading_questions",
        id,
        [(fill(sentence, values), gold) for sentence, gold in told],
        fill(question, values),
        [fill(form.answer, values)],
        fill(form.conclusion, values),
        {"template": drawn.label, "facts": facts},
    )


def _asked(wording: Text, form: Form) -> tuple[list[tuple[str, bool]], str]:
    """The sentences of the text, each with whether it is evidence, and the question: what asks, to the end."""
    *told, question = sentences(wording)
    gold = {*form.gold, *(f"{name}_start" for name in form.gold)}
    return [(sentence, bool(gold & placeholders(sentence))) for sentence in told], question


def _values(rng: random.Random, split: str, numbers: tuple[int, int]) -> dict[str, Any]:
    """A value for every placeholder; no two of a kind are the same."""
    taken: set[str] = set()
    lists_of_names = (WORDS.first_names, WORDS.first_names, TEXTS.mothers)
    who, other, third = (draw_new(lambda names=names: pick(rng, names, split), taken) for names in lists_of_names)
    towns = [draw_new(lambda: draw_town(rng, split), taken) for _ in range(2)]
    deeds, choices = rng.sample(sorted(TEXTS.deeds), 2), rng.sample(sorted(TEXTS.choices), 2)
    a, b = draw_in_split(lambda: rng.sample(range(*numbers), 2), "reading", split)
    lists = {
        "town": towns, "did": deeds, "chose": choices, "colour": TEXTS.colours, "item": TEXTS.items,
        "things": WORDS.things, "place": TEXTS.places, "job": TEXTS.jobs, "day": TEXTS.days, "reason": TEXTS.reasons,
    }  # fmt: skip
    values: dict[str, Any] = {"who": str(who), "other": str(other), "third": str(third), "a": a, "b": b}
    for name in PAIRS:
        one, two = lists[name] if name in ("town", "did", "chose") else rng.sample(lists[name], 2)
        values |= {name: str(one), f"other_{name}": str(two)}
    true = rng.random() < 0.5
    return values | {
        "do": str(TEXTS.deeds[deeds[0]]),
        "choose": str(TEXTS.choices[choices[0]]),
        "older": values["who" if a > b else "other"],
        "yes_or_no": "yes" if true else "no",
        "asked_town": values["town" if true else "other_town"],
        "asked_colour": values["colour" if true else "other_colour"],
        **{f"{name}_start": values[name][0].upper() + values[name][1:] for name in ("reason", "other_reason")},
    }
