"""Scorers of answers in words: exact match, F1 and containment, after the normalisation that SQuAD introduced.

Beyond SQuAD's (case, punctuation, articles), numbers and dates are written in one way: ``1,000`` is ``1000``, ``324.0``
is ``324``, ``two`` is ``2``, and both ``22 May 1982`` and ``May 22, 1982`` are ``1982-05-22``.
"""

from __future__ import annotations

import re
from collections import Counter

from .base import Example

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
_LEAD = re.compile(r"^\s*(?:so )?(?:the )?(?:final )?answer(?: is|:)\s*", re.IGNORECASE)
_ARTICLES = ("a", "an", "the")
_OPPOSITE = {"yes": "no", "no": "yes"}


def normalised(text: str) -> list[str]:
    """Words of ``text`` in SQuAD's normal form, numbers and dates in one writing.

    An article at the end is kept: ``a`` may be the letter that was asked for.
    """
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.lower())
    text = _DAY_FIRST.sub(lambda m: _iso(m[3], m[2], m[1]), text)
    text = _MONTH_FIRST.sub(lambda m: _iso(m[3], m[1], m[2]), text)
    words = [_plain_number(word) for word in _WORD.findall(text.replace("_", " "))]
    return [word for word in words[:-1] if word not in _ARTICLES] + words[-1:]


def qa_match(example: Example, response_text: str) -> float:
    """1.0 where an answer stands in the response, word for word in their normal form.

    Of yes and no the response must say one and not the other.
    """
    said = normalised(response_text)
    return float(any(_holds(said, normalised(answer)) for answer in example.answers))


def qa_em(example: Example, response_text: str) -> float:
    """1.0 where the response, but for "The answer is", is an answer in normal form (exact match)."""
    said = normalised(_LEAD.sub("", response_text))
    return float(any(said == normalised(answer) for answer in example.answers))


def qa_f1(example: Example, response_text: str) -> float:
    """Harmonic mean of the words' precision and recall, of the best answer; "The answer is" aside."""
    said = normalised(_LEAD.sub("", response_text))
    return max(_f1(said, normalised(answer)) for answer in example.answers)


def _holds(said: list[str], answer: list[str]) -> bool:
    if len(answer) == 1 and (other := _OPPOSITE.get(answer[0])):
        return answer[0] in said and other not in said
    width = len(answer)
    return width > 0 and any(said[i : i + width] == answer for i in range(len(said) - width + 1))


def _f1(said: list[str], answer: list[str]) -> float:
    shared = sum((Counter(said) & Counter(answer)).values())
    return 2 * shared / (len(said) + len(answer)) if shared else 0.0


def _iso(year: str, month: str, day: str) -> str:
    return f"{year}-{_MONTHS.index(month) + 1:02d}-{int(day):02d}"


def _plain_number(word: str) -> str:
    if word in _NUMBERS:
        return str(_NUMBERS.index(word))
    return word.rstrip("0").rstrip(".") if re.fullmatch(r"-?\d+\.\d+", word) else word
