"""Questions about short stories written by hand, with other names and numbers each time; the reasoning quotes them."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.synthetic.names import draw_new, draw_town
from flashtrace_lib.tasks.synthetic.splits import draw_in_split, pick
from flashtrace_lib.tasks.synthetic.stratified import in_turn, numbered_examples
from flashtrace_lib.tasks.synthetic.template_files import fill, placeholders, sentences
from flashtrace_lib.tasks.synthetic.wordlists import WORDS

from .examples import reading_example
from .story_texts import NUMBERS, SIDES, STORIES, Story, choose, kind_of, numeric, options, parse_question

_LONG, _FIRST = 1 / 3, 1 / 6  # shares of the prompts with several stories, and with the question before the text
_WORDS = (50, 165)  # of a text of several stories: 60 to 250 tokens
_ENDS = (" ", " ", "\n", "\n\n")  # between text and question


def reading_stories(n: int, seed: int = 0, split: str = "eval") -> list[Example]:
    """Questions about stories of one to seven sentences; example ``i`` does not depend on ``n``.

    A third of the prompts hold two or three stories as paragraphs, of which one answers; in a sixth the question comes
    before the text.

    Parameters
    ----------
    n : int
        Examples wanted.
    seed : int
        Another seed gives other examples.
    split : {"train", "eval"}
        The two share no story, no name of a person or town, and no numbers of a story.

    Returns
    -------
    list of Example
        ``metadata`` gives ``template`` (story, split and index of the question) and ``facts``, what the placeholders
        of the story that answers were filled with.

    Raises
    ------
    ValueError
        If the split is unknown, or ``n`` is negative.
    """
    return numbered_examples("reading_stories", n, seed, split, lambda key, i, id: _example(key, i, id, split))


@dataclass(frozen=True)
class _Told:
    """A story with its placeholders filled in."""

    sentences: list[str]
    values: dict[str, str]
    side: int

    def say(self, text: str) -> str:
        return fill(choose(text, self.side), self.values)


def _example(key: str, i: int, id: str, split: str) -> Example:
    stories, rng = STORIES.of(split), random.Random(f"{key}|{i}")
    name = list(stories)[in_turn(f"{key}|story", i, len(stories))]
    lines = stories[name].questions
    index = in_turn(f"{key}|{name}", i // len(stories), len(lines))
    taken: set[str] = set()
    main = _tell(stories[name], rng, split, taken)
    found = parse_question(lines[index], main.side)
    paragraphs = [main]
    if rng.random() < _LONG:
        paragraphs += _others(name, main, rng, split, taken)
        rng.shuffle(paragraphs)
    told = [
        (sentence, paragraph is main and k in found.gold)
        for paragraph in paragraphs
        for k, sentence in enumerate(paragraph.sentences)
    ]
    break_, end = ("\n", rng.choice(_ENDS)) if len(paragraphs) == 1 else ("\n\n", "\n\n")
    gaps = [gap for p in paragraphs for gap in [*[" "] * (len(p.sentences) - 1), break_]]
    answer = main.say(found.answer)
    return reading_example(
        "reading_stories", id, told, _capital(main.say(found.question)), _answers(answer), main.say(found.conclusion),
        {"template": f"{name}/{split}-{index}", "facts": main.values},
        gaps=[*gaps[:-1], end], asked_first=rng.random() < _FIRST,
    )  # fmt: skip


def _others(name: str, main: _Told, rng: random.Random, split: str, taken: set[str]) -> list[_Told]:
    """One or two stories of other topics (the first part of a story's name) that keep the text within `_WORDS`."""
    stories = STORIES.of(split)
    topics, others = {name.partition("_")[0]}, []
    least, most = _WORDS
    words, wanted = _words(main), rng.choice((1, 2))
    for other in rng.sample(sorted(stories), len(stories)):
        if (topic := other.partition("_")[0]) in topics:
            continue
        told = _tell(stories[other], rng, split, taken)
        if words + _words(told) <= most:
            others.append(told)
            topics.add(topic)
            words += _words(told)
        if len(others) >= wanted and words >= least:
            break
    return others


def _tell(story: Story, rng: random.Random, split: str, taken: set[str]) -> _Told:
    """Draw what a story's placeholders are; no name that was ``taken`` by another story comes again."""
    names, side = placeholders(story.text), rng.randrange(SIDES)
    values: dict[str, str] = {}
    if numbers := numeric(names):
        drawn = draw_in_split(lambda: _distinct(numbers, rng), NUMBERS, split)
        values |= dict(zip(numbers, drawn, strict=True))
    for name in sorted(names - {*numbers}):
        kind = kind_of(name)
        if kind in STORIES.lists:
            free = [word for word in STORIES.lists[kind] if word not in values.values()]
            values[name] = str(rng.choice(free))
        else:
            values[name] = str(draw_new(lambda kind=kind: _name(kind, rng, split), taken))
    told = [_capital(fill(sentence, values)) for sentence in sentences(choose(story.text, side))]
    return _Told(told, {name: values[name] for name in sorted(values)}, side)


def _distinct(numbers: list[str], rng: random.Random) -> list[str]:
    while len({*(drawn := [rng.choice(options(name)) for name in numbers])}) < len(numbers):
        pass
    return drawn


def _name(kind: str, rng: random.Random, split: str) -> str:
    if kind == "town":
        return draw_town(rng, split)
    return pick(rng, {"woman": STORIES.women, "man": STORIES.men, "last": WORDS.last_names}[kind], split)


def _answers(answer: str) -> list[str]:
    """The answer; of a number with its unit, the number alone counts as right too."""
    number = re.fullmatch(r"([\d:]+) \w+", answer)
    return [answer, number[1]] if number else [answer]


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def _words(told: _Told) -> int:
    return sum(sentence.count(" ") + 1 for sentence in told.sentences)
