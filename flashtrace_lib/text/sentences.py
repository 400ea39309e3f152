"""Sentences as token ranges: those that tile the words of the segments, and all those of a response."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..sample import Sample, Span, outside
from .formats import ALL_MARKS, MARKS
from .offsets import CharSpan, content_span, display_spans, strip_span
from .segmenter import sentence_spans

_MARKED = re.compile(r"\s*Question:")
_ENDS_ASKING = re.compile(r"[?？؟][\s\"'”’)\]$\\』」】）]*$")
# Without a question mark: a question word at the head of a sentence, or an instruction, there or behind a comma, "and"
# or "then".
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
    """Index of the sentence at which a text begins to ask its question, judged by its words alone.

    The question begins at the last sentence that starts with "Question:". Without one, it begins at the last run of
    sentences that end with a question mark, begin with a question word or tell one to do something ("Find …").
    Without such a run, it is the last sentence. A piece without a letter or digit, such as the "$" behind a full stop
    in a formula, goes with the sentence before it.

    Raises
    ------
    ValueError
        If there are no sentences.
    """
    if not sentences:
        raise ValueError("a text without sentences asks nothing")
    marked = [i for i, sentence in enumerate(sentences) if _MARKED.match(sentence)]
    if marked:
        return marked[-1]
    worded = [i for i, sentence in enumerate(sentences) if re.search(r"\w", sentence)] or [0]
    asks = [bool(_ENDS_ASKING.search(sentences[i]) or _TELLS.search(sentences[i])) for i in worded]
    first = max((k for k, asking in enumerate(asks) if asking), default=len(asks) - 1)
    while first > 0 and asks[first - 1]:
        first -= 1
    return worded[first]


def question_in(tokens: Sequence[str], sentences: Iterable[Span], segment: Span) -> int:
    """Token at which a segment begins to ask: the start of the sentence that `asking_from` finds in it."""
    first, stop = segment
    inside = sorted((a, b) for a, b in sentences if first <= a and b <= stop)
    return inside[asking_from(["".join(tokens[a:b]) for a, b in inside])][0]


def template_marks(tokenizer: Any) -> re.Pattern:
    """Pattern of the marks that a chat template writes between words, with the white space around them.

    Special tokens, think tags, and added tokens such as ``<tool_call>``; not ``<table>``, which some vocabularies have.
    """
    added = tokenizer.added_tokens_decoder.values()
    marks = {token.content for token in added if token.special or re.fullmatch(r"<\S*[_|]\S*>", token.content)}
    marks |= {*(mark for mark in ALL_MARKS if not mark[0].isalpha() and "…" not in mark), *tokenizer.all_special_tokens}
    return re.compile(rf"\s*(?:{'|'.join(re.escape(mark) for mark in sorted(marks) if mark.strip())})\s*")


def sentence_ranges(text: str, content: list[CharSpan], words: Mapping[Span, CharSpan]) -> list[Span]:
    """Token ranges of sentences that tile all runs of words; a token goes with the sentence it begins in.

    ``content`` [N] holds the `offsets.content_span` of each token, ``words`` the characters of each token range.
    """
    begins = [start for start, _ in content]
    ranges: list[Span] = []
    for (first, stop), (segment_start, segment_stop) in words.items():
        edges = {first, stop}
        for start, _ in sentence_spans(text[segment_start:segment_stop]):
            edges.add(bisect_left(begins, segment_start + start, first, stop))
        ranges += pairwise(sorted(edges))
    return sorted(ranges)


def response_sentences(sample: Sample, special: Iterable[str] = ()) -> list[Span]:
    """Token ranges of all sentences of the response, in order: those of T, of O, and of the text between them.

    Marks of reasoning and answer, special tokens and pieces without a letter or digit are no sentences.

    Parameters
    ----------
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
    spans = [span for span in sample.sentences if first <= span[0] and span[1] <= stop]
    text, chars = "".join(sample.tokens), display_spans(sample.tokens)
    content = [content_span(text, span) for span in chars]
    pattern = re.compile("|".join([MARKS.pattern, *(re.escape(mark) for mark in special if mark)]), re.IGNORECASE)
    marks = [mark.span() for mark in pattern.finditer(text, chars[first][0])]
    for gap in outside(sample.response, [sample.segments.reasoning, sample.segments.output]):
        for piece in outside((chars[gap[0]][0], chars[gap[1] - 1][1]), marks):
            start, end = strip_span(text, piece)
            inside = [i for i in range(*gap) if start <= content[i][0] and content[i][1] <= end]
            if start < end and inside:  # a token that holds part of a mark belongs to none
                words = {(inside[0], inside[-1] + 1): (content[inside[0]][0], end)}
                spans += sentence_ranges(text, content, words)
    return sorted(span for span in spans if re.search(r"\w", "".join(sample.tokens[slice(*span)])))
