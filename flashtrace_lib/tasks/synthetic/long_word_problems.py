"""Word problems of four to seven steps, with numbers that nothing depends on; every calculation is written out."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...text.offsets import CharSpan
from ..example import Example
from ..records import BOX_REQUEST
from .calculations import Problem, draw_numbers, solve
from .splits import draw_in_split, pick
from .stratified import Drawn, Wordings, check_wordings, draw_wording, numbered_examples
from .template_files import Text, check_names, check_placeholders, fill, placeholders, read_templates, sentences
from .wordlists import WORDS
from .worked_arithmetic import worked

_LARGEST = 299  # of four to seven steps a small model must get every one right
_IRRELEVANT = (11, 59)  # range of a number that nothing depends on
# The beginning of a sentence that speaks of what stands right before it: nothing may come between the two.
_REFERS_BACK = re.compile(r"(\w+ ){0,2}(it|its|they|them|both|one|others?|rest|each|another|these)\b", re.IGNORECASE)

PROBLEMS: dict[str, Problem] = {
    "stock": Problem(
        {"a": (4, 9), "b": (11, 19), "c": (11, 29), "d": (11, 39), "e": (2, 4)},
        ("f = a * b", "g = f + c", "h = g - d", "i = h * e"),
    ),
    "wages": Problem(
        {"a": (11, 18), "b": (3, 8), "c": (3, 5), "d": (11, 69), "e": (11, 69)},
        ("f = a * b", "g = f * c", "h = d + e", "i = g - h"),
    ),
    "harvest": Problem(
        {"a": (4, 9), "b": (11, 16), "c": (4, 9), "d": (11, 16), "e": (11, 39), "k": (2, 5)},
        ("g = a * b", "h = c * d", "i = g + h", "j = i - e", "l = j / k"),
    ),
    "journey": Problem(
        {"a": (11, 28), "b": (3, 6), "c": (11, 28), "d": (3, 6), "e": (120, 290), "k": (11, 28)},
        ("f = a * b", "g = c * d", "h = f + g", "i = e - h", "j = i / k", "l = b + d", "m = l + j"),
    ),
}


@dataclass(frozen=True)
class ProblemTexts(Wordings):
    """A kind of problem: its wordings, and of the solution a sentence for each step."""

    solution: tuple[str, ...]


@dataclass(frozen=True)
class Texts:
    """The file ``long_word_problems.yaml``."""

    irrelevant: Wordings
    problems: dict[str, ProblemTexts]


def read_texts(file: str = "long_word_problems.yaml") -> Texts:
    """The texts, each with the placeholders it needs; ValueError names file and line otherwise."""
    texts: Texts = read_templates(file, Texts)
    check_wordings(texts.irrelevant)
    for text in texts.irrelevant.all:
        check_placeholders(text, {"who", "other", "x"}, needed={"x"})
    check_names(texts.problems, PROBLEMS, "problem")
    for name, found in texts.problems.items():
        _check_problem(PROBLEMS[name], found)
    return texts


def _check_problem(problem: Problem, texts: ProblemTexts) -> None:
    check_wordings(texts)
    names = {"who", "other", "things"}
    for text in texts.all:
        check_placeholders(text, {*problem.ranges, *names}, needed=problem.ranges)
        *told, asked = sentences(text)
        if not asked.endswith("?") or placeholders(asked) & problem.ranges.keys() or not told:
            raise ValueError(f"{text.where}: the last sentence must be a question without a number")
    if len(texts.solution) != len(problem.steps):
        raise ValueError(f"{texts.solution[0].where}: {len(problem.steps)} steps need a sentence each")
    for step, sentence in zip(problem.steps, texts.solution, strict=True):
        check_placeholders(sentence, {step[0], *problem.ranges, *names}, needed={step[0]})


TEXTS = read_texts()


def long_word_problems(n: int, seed: int = 0, split: str = "eval", kinds: Sequence[str] | None = None) -> list[Example]:
    r"""Word problems of about 60 to 150 tokens; example ``i`` does not depend on ``n``.

    Parameters
    ----------
    n : int
        Examples wanted.
    seed : int
        Another seed gives other examples.
    split : {"train", "eval"}
        The two share no wording, no first name, and no numbers of a kind.
    kinds : sequence of str, optional
        Of `PROBLEMS`; all in turn where it is not given.

    Returns
    -------
    list of Example
        The answer stands in ``\boxed{}``. ``metadata`` gives ``template``, ``numbers`` (by name), ``steps`` and
        ``irrelevant`` (numbers).

    Raises
    ------
    ValueError
        If a kind or the split is unknown, or ``n`` is negative.
    """

    def make(key: str, i: int, id: str) -> Example:
        return _example(draw_wording(key, i, TEXTS.problems, split, kinds), random.Random(f"{key}|{i}"), id, split)

    return numbered_examples("long_word_problems", n, seed, split, make)


def _example(drawn: Drawn, rng: random.Random, id: str, split: str) -> Example:
    problem, texts = PROBLEMS[drawn.kind], TEXTS.problems[drawn.kind]
    given = draw_in_split(lambda: draw_numbers(rng, problem, _LARGEST), drawn.kind, split)
    values = solve(problem, given, _LARGEST)
    names = _names(rng, split)
    irrelevant = _irrelevant(rng, split, set(values.values()))
    told = _told(rng, drawn.wording, given, names, irrelevant)
    prompt, evidence = _joined(told)
    lines = list(_solution(problem, texts, given, values, names))
    answer = str(values[problem.steps[-1][0]])
    question = prompt.rindex(told[-1][0])
    return Example(
        id=id,
        task="long_word_problems",
        cell="long_word_problems",
        prompt=prompt,
        request=BOX_REQUEST,
        answers=(answer,),
        evidence=evidence,
        question=question,
        haystack=(0, question - 1),
        reasoning="\n".join(lines),
        output=f"The answer is $\\boxed{{{answer}}}$.",
        scorer="boxed",
        metadata={
            "template": drawn.label,
            "numbers": given,
            "steps": list(problem.steps),
            "irrelevant": [number for _, number in irrelevant],
            "names": [names["who"], names["other"]],
        },
    )


def _names(rng: random.Random, split: str) -> dict[str, str]:
    who = pick(rng, WORDS.first_names, split)
    other = pick(rng, [name for name in WORDS.first_names if name != who], split)
    return {"who": str(who), "other": str(other), "things": str(rng.choice(WORDS.things))}


def _irrelevant(rng: random.Random, split: str, used: set[int]) -> list[tuple[Text, int]]:
    """One or two sentences that change nothing, each with a number that the problem does not use."""
    texts = rng.sample(TEXTS.irrelevant.of(split), rng.randint(1, 2))
    free = [number for number in range(*_IRRELEVANT) if number not in used]
    return list(zip(texts, rng.sample(free, len(texts)), strict=True))


def _told(
    rng: random.Random, wording: Text, given: dict[str, int], names: dict[str, str], irrelevant: list[tuple[Text, int]]
) -> list[tuple[str, bool]]:
    """The sentences, and whether each holds a number that is needed; the question comes last."""
    told = [(fill(text, names | given), bool(placeholders(text) & given.keys())) for text in sentences(wording)]
    for text, number in irrelevant:
        places = [i for i, (sentence, _) in enumerate(told) if not _REFERS_BACK.match(sentence)]
        told.insert(rng.choice(places), (fill(text, names | {"x": number}), False))
    return told


def _joined(told: list[tuple[str, bool]]) -> tuple[str, tuple[CharSpan, ...]]:
    """The text, and where the sentences stand that are needed."""
    text, spans = "", []
    for sentence, needed in told:
        text += " " if text else ""
        spans += [(len(text), len(text) + len(sentence))] if needed else []
        text += sentence
    return text, tuple(spans)


def _solution(
    problem: Problem, texts: ProblemTexts, given: dict[str, int], values: dict[str, int], names: dict[str, str]
) -> Iterator[str]:
    """A sentence for each step, such as ``"12 boxes with 14 keys each hold 12 * 14 = 12 * 10 + … = 168 keys."``."""
    for step, sentence in zip(problem.steps, texts.solution, strict=True):
        result, _, left, sign, right = step.split()
        a, b = values[left], values[right]
        yield fill(sentence, names | given | {result: f"{a} {sign} {b} = {worked(a, sign, b)}"})
