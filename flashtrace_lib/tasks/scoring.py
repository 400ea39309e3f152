r"""Is the answer right? One registry of scorers, each a function (example, text of the answer) -> [0, 1].

Answers are matched as whole words, so that ``12345`` is not found in ``123456``; letter case does not matter, as
in RULER's own metric. Hand over the words that are to be judged: the final answer, without the reasoning, wherever
the reasoning names more than the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .answers import boxed, same_code, unit_tests
from .base import Example
from .qa import qa_em, qa_f1, qa_match

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
        raise ValueError(
            f"example {example.id}: exact_set needs metadata['answer_pattern'], a regular expression of what an "
            "answer looks like; use substring_recall for a task without one"
        )
    return float(set(re.findall(pattern, response_text)) == set(example.answers))


SCORERS: dict[str, Scorer] = {
    "substring_recall": substring_recall,
    "exact_set": exact_set,
    "boxed": boxed,
    "same_code": same_code,
    "unit_tests": unit_tests,
    "qa_match": qa_match,
    "qa_em": qa_em,
    "qa_f1": qa_f1,
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
