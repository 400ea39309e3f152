"""Sentences as token ranges: those that tile the segments, and those of everything that a response says."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from ..sample import Sample, Span
from .locate import THINK_CLOSE, THINK_OPEN, sentence_spans, strip_span
from .offsets import CharSpan

_MARKED = re.compile(r"\s*Question:")
_ENDS_ASKING = re.compile(r"\?[\s\"'”’)\]$\\]*$")
# Without a question mark: a question word at the head of a sentence, or what a problem tells one to do, there or behind
# a comma, "and" or "then".
_VERBS = (
    "answer|calculate|compute|convert|describe|determine|enter|estimate|evaluate|express|factor|find|give|list|name|prove|"
    "rationalize|round|say|show|simplify|solve|state|tell|write"
)
_TELLS = re.compile(
    rf"^\W*(?:(?:at|by|for|in|of|on|to|with)\s+)?(?:how|what|which|who|whom|whose|why)\b"
    rf"|(?:^\W*|[,;:]\s*|\b(?:and|then|please)\s+)(?:{_VERBS})\b",
    re.IGNORECASE,
)


def asking_from(sentences: Sequence[str]) -> int:
    """Index of the sentence from which on a text asks, where nothing but its words says so.

    The last sentence that begins with "Question:"; else the last sentences, one behind the other, that end with a
    question mark, begin with a question word or tell one to do something ("Find …"), and what follows them; else the
    last sentence. A piece without a letter or digit, such as the "$" behind a full stop in a formula, goes with the
    sentence before it.

    Parameters
    ----------
    sentences : sequence of str
        All sentences of the text.

    Raises
    ------
    ValueError
        If there is none.
    """
    if not sentences:
        raise ValueError("a text without sentences asks nothing")
    marked = [i for i, sentence in enumerate(sentences) if _MARKED.match(sentence)]
    if marked:
        return marked[-1]
    said = [i for i, sentence in enumerate(sentences) if re.search(r"\w", sentence)] or [0]
    asks = [bool(_ENDS_ASKING.search(sentences[i]) or _TELLS.search(sentences[i])) for i in said]
    first = max((k for k, asking in enumerate(asks) if asking), default=len(asks) - 1)
    while first > 0 and asks[first - 1]:
        first -= 1
    return said[first]


def sentence_ranges(text: str, cores: list[CharSpan], ranges: Mapping[Span, CharSpan]) -> list[Span]:
    """Token ranges of sentences that tile every segment; a token goes with the sentence it begins in.

    Parameters
    ----------
    text : str
    cores : list of (int, int), length N
        Characters of ``text`` that each token counts as standing at.
    ranges : mapping of (int, int) to (int, int)
        Token range of each segment, and its characters.
    """
    begins = [a for a, _ in cores]
    out: list[Span] = []
    for (first, stop), (a, b) in ranges.items():
        cuts = {bisect_left(begins, a + start, first, stop) for start, _ in sentence_spans(text[a:b])}
        edges = sorted({first, stop} | cuts)
        out += zip(edges, edges[1:], strict=False)
    return sorted(out)


def response_sentences(sample: Sample, special: Iterable[str] = ()) -> list[Span]:
    """Token ranges of all sentences of the response, in order: of T, of O, and of what else it says.

    Thinking marks, special tokens and passages without a letter or digit are no sentences.

    Parameters
    ----------
    sample : Sample
        With display tokens and sentences, as `text.build_sample` makes it.
    special : iterable of str
        The tokenizer's special tokens.

    Raises
    ------
    ValueError
        If the sample has no display tokens or no sentences.
    """
    if sample.tokens is None or sample.sentences is None:
        raise ValueError(f"sample {sample.id} has no display tokens or no sentences: build it with text.build_sample")
    first, stop = sample.response
    out = [span for span in sample.sentences if first <= span[0] and span[1] <= stop]
    marks = re.compile("|".join(re.escape(mark) for mark in (THINK_OPEN, THINK_CLOSE, *special) if mark))
    for gap in _gaps(sample):
        out += _loose_sentences(sample.tokens, gap, marks)
    return sorted(span for span in out if re.search(r"\w", "".join(sample.tokens[slice(*span)])))


def _gaps(sample: Sample) -> Iterator[Span]:
    """Token ranges of the response that lie neither in T nor in O."""
    at = sample.response[0]
    for start, stop in (sample.segments.reasoning, sample.segments.output):
        if at < start < stop:
            yield at, start
        at = max(at, stop) if start < stop else at
    if at < sample.response[1]:
        yield at, sample.response[1]


def _loose_sentences(tokens: list[str], gap: Span, marks: re.Pattern) -> list[Span]:
    """Sentences between the marks of a passage; a token that holds part of a mark belongs to none."""
    tokens = tokens[slice(*gap)]
    text, ends = "".join(tokens), list(accumulate(map(len, tokens)))
    # A token stands where its first letter does: the space before a word is no part of the sentence before it.
    begins = [end - len(token.lstrip() or token) for token, end in zip(tokens, ends, strict=True)]
    edges = [0, *(edge for match in marks.finditer(text) for edge in match.span()), len(text)]
    out = []
    for a, b in zip(edges[::2], edges[1::2], strict=True):
        for start, stop in sentence_spans(text[a:b]):
            lower, upper = strip_span(text, (a + start, a + stop))
            first, last = bisect_left(begins, lower), bisect_left(begins, upper)
            last -= last > first and ends[last - 1] > b
            out += [(gap[0] + first, gap[0] + last)] if first < last else []
    return out
