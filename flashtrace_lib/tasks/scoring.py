r"""Is the answer right? One registry of scorers, each a function (example, text of the answer) -> [0, 1].

Answers are matched as whole words, so that ``12345`` is not found in ``123456``; letter case does not matter, as
in RULER's own metric. Hand over the words that are to be judged: the final answer, without the reasoning, wherever
the reasoning names more than the answer.
"""

import logging
import re
import threading
from collections.abc import Callable

from ..text.labels import find_boxed
from .example import Example
from .sandbox import run_tests

_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)


def boxed(example: Example, response_text: str) -> float:
    r"""1.0 where the last ``\boxed{…}`` of the response holds an answer.

    Either letter by letter, spaces and thousands commas aside, or as mathematics (math-verify): ``\frac12`` is ``0.5``.
    """
    box = find_boxed(response_text)
    if box is None:
        return 0.0
    inside = response_text[slice(*box)].partition("{")[2][:-1]
    if _plain(inside) in {_plain(answer) for answer in example.answers}:
        return 1.0
    return float(any(_same_mathematics(answer, inside) for answer in example.answers))


def _same_mathematics(answer: str, written: str, seconds: int = 5) -> bool:
    """Whether two expressions are equal; False where one cannot be read, or comparing them takes too long."""
    import math_verify  # imported late: it brings sympy

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # a timeout is an answer here, not an event
    if threading.current_thread() is not threading.main_thread():
        seconds = None  # its limit is an alarm, which only the main thread may set
    sides = [math_verify.parse(f"$\\boxed{{{side}}}$", parsing_timeout=seconds) for side in (answer, written)]
    return all(sides) and math_verify.verify(*sides, timeout_seconds=seconds)


def unit_tests(example: Example, response_text: str) -> float:
    """1.0 where the response's code passes the exercise's own tests, run in `sandbox`."""
    tests = [name for name in example.files if name.endswith("_test.py")]
    if len(tests) != 1 or "file" not in example.metadata:
        raise ValueError(
            f"example {example.id}: unit_tests needs one file *_test.py among its files and metadata['file'], the name "
            f"of the solution; it has {sorted(example.files)}"
        )
    files = {**example.files, example.metadata["file"]: _code(response_text)}
    return float(run_tests(files, tests[0].removesuffix(".py")))


def _code(text: str) -> str:
    """The last fenced block; the whole text where there is none."""
    fenced = _FENCE.findall(text)
    return fenced[-1] if fenced else text


def _plain(text: str) -> str:
    return re.sub(r"\s|(?<=\d),(?=\d{3})|[$]", "", text)


_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
).split()
_MONTH = "(" + "|".join(_MONTHS) + ")"
_DAY_FIRST = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)? (?:of )?{_MONTH},? (\d{{4}})\b")
_MONTH_FIRST = re.compile(rf"\b{_MONTH} (\d{{1,2}})(?:st|nd|rd|th)?,? (\d{{4}})\b")
_WORD = re.compile(r"\d{4}-\d{2}-\d{2}|(?<!\w)-?\d+(?:\.\d+)?(?!\w)|\w+")
_ARTICLES = ("a", "an", "the")
_OPPOSITE = {"yes": "no", "no": "yes"}


def words_of(text: str) -> list[str]:
    """Words of ``text`` in SQuAD's normal form, numbers and dates in one writing."""
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.lower())
    text = _DAY_FIRST.sub(lambda m: _iso(m[3], m[2], m[1]), text)
    text = _MONTH_FIRST.sub(lambda m: _iso(m[3], m[1], m[2]), text)
    return [_plain_number(word) for word in _WORD.findall(text.replace("_", " "))]


def normalised(text: str) -> list[str]:
    """`words_of` a text without articles, as SQuAD's; one at the end stays: ``a`` may be the letter asked for."""
    words = words_of(text)
    return [word for word in words[:-1] if word not in _ARTICLES] + words[-1:]


def qa_match(example: Example, response_text: str) -> float:
    """1.0 where an answer stands in the response, word for word in their normal form.

    Articles are left out of both, or of neither: "Serie A" stands in "in Serie A, the top league". Of yes and no the
    response must say one and not the other.
    """
    without, with_articles = normalised(response_text), words_of(response_text)
    return float(any(_stands(answer, without, with_articles) for answer in example.answers))


def _stands(answer: str, without: list[str], with_articles: list[str]) -> bool:
    words = words_of(answer)
    return _holds(without, normalised(answer)) or (len(words) > 1 and _holds(with_articles, words))


def _holds(said: list[str], answer: list[str]) -> bool:
    if len(answer) == 1 and (other := _OPPOSITE.get(answer[0])):
        return answer[0] in said and other not in said
    width = len(answer)
    return width > 0 and any(said[i : i + width] == answer for i in range(len(said) - width + 1))


def _iso(year: str, month: str, day: str) -> str:
    return f"{year}-{_MONTHS.index(month) + 1:02d}-{int(day):02d}"


def _plain_number(word: str) -> str:
    if word in _NUMBERS:
        return str(_NUMBERS.index(word))
    return word.rstrip("0").rstrip(".") if re.fullmatch(r"-?\d+\.\d+", word) else word


Scorer = Callable[[Example, str], float]


def contains(text: str, answer: str) -> bool:
    """Whether ``answer`` stands in ``text`` as a whole: no letter or digit directly before or behind it."""
    return re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE) is not None


def substring_recall(example: Example, response_text: str) -> float:
    """Fraction of the answers that stand in the response (RULER's ``string_match_all``, on whole words)."""
    return sum(contains(response_text, answer) for answer in example.answers) / len(example.answers)


def exact_set(example: Example, response_text: str) -> float:
    r"""1.0 where the response names all the answers and nothing else of their kind, 0.0 otherwise.

    What an answer looks like is told by ``example.metadata["answer_pattern"]``, a regular expression such as
    ``\b[A-Z]{5}\b``: variables of the distractor chains and invented ones both count as wrong.
    """
    pattern = example.metadata.get("answer_pattern")
    if not pattern:
        needs = "metadata['answer_pattern'], a regular expression of what an answer looks like; or use substring_recall"
        raise ValueError(f"example {example.id}: exact_set needs {needs}")
    return float(set(re.findall(pattern, response_text)) == set(example.answers))


SCORERS: dict[str, Scorer] = {
    "substring_recall": substring_recall,
    "exact_set": exact_set,
    "boxed": boxed,
    "unit_tests": unit_tests,
    "qa_match": qa_match,
}


def score(example: Example, response_text: str, scorer: str | None = None) -> float:
    """Quality of an answer.

    Parameters
    ----------
    example : Example
        The problem, with its true answers.
    response_text : str
        What the model answered.
    scorer : str, optional
        A name in ``SCORERS``; the example's own where it is not given.

    Returns
    -------
    float
        From 0.0 (wrong) to 1.0 (right).

    Raises
    ------
    ValueError
        If the scorer is not registered, or the example has no answers.
    """
    name = example.scorer if scorer is None else scorer
    if name not in SCORERS:
        raise ValueError(f"unknown scorer {name!r}: choose one of {', '.join(SCORERS)}, or register it in SCORERS")
    if not example.answers:
        raise ValueError(f"example {example.id} has no answers: there is nothing to compare the response with")
    return SCORERS[name](example, response_text)


def is_correct(example: Example, response_text: str, scorer: str | None = None) -> bool:
    """Whether `score` is 1.0: all that was asked for is there (the filter of appendix E.4)."""
    return score(example, response_text, scorer) == 1.0
