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

# A label, a heading or a tag of its own before the question.
_MARKED = re.compile(
    r"[\s*_#<>]*(?:(?i:questions?|frage|pregunta|domanda|вопрос)|Q|问题|問題|質問|질문)(?:\s*\d+)?[\s*_]*(?:[:\uff1a>][*_]*|$)"
)
_ENDS_ASKING = re.compile(r"[?？؟\u037e\u055e፧⁇⁈‽][\s\"'”’»›)\]$\\』」】）*_!?]*(?:</\w+>\s*)*$")
# Without a question mark: a question word at the head of a sentence, or an instruction, there or behind a comma, "and"
# or "then".
_VERBS = (
    "answer|calculate|compute|convert|describe|determine|enter|estimate|evaluate|express|factor|find|give|list|name|prove|"
    "rationalize|round|say|show|simplify|solve|state|tell|write"
)
_AT_HEAD = "choose|classify|decide|explain|extract|identify|paraphrase|predict|rewrite|select|summari[sz]e|translate"
_TELLS = re.compile(
    rf"^\W*(?:(?:at|by|for|in|of|on|to|with)\s+)?(?:how|what|which|who|whom|whose|why)\b"
    rf"|^\W*(?:please\s+)?(?:{_AT_HEAD})\b|(?:^\W*|[,;:]\s*|\b(?:and|then|please)\s+)(?:{_VERBS})\b",
    re.IGNORECASE,
)


def asking(sentences: Sequence[str]) -> Span:
    """Range of the sentences that are a text's question, judged by its words alone.

    The question begins at the one sentence that starts with "Question:" or the like. Without one, of several, or where
    the last sentence ends with a question mark, it is the last run of sentences that start so, end with a question
    mark, begin with a question word or tell one to do something ("Find …"). Without such a run, it is the last
    sentence. A piece without a letter or digit, such as the "$" behind a full stop in a formula, goes with the sentence
    before it.

    Raises
    ------
    ValueError
        If there are no sentences.
    """
    if not sentences:
        raise ValueError("a text without sentences asks nothing")
    worded = [i for i, sentence in enumerate(sentences) if re.search(r"\w", sentence)] or [0]
    texts = [sentences[i] for i in worded]
    asks = [bool(_ENDS_ASKING.search(text) or _TELLS.search(text)) for text in texts]
    marked = [k for k, text in enumerate(texts) if _MARKED.match(text)]
    if len(marked) == 1 and not _ENDS_ASKING.search(texts[-1]):
        first, last = marked[0], marked[0] + bool(_MARKED.fullmatch(texts[marked[0]].rstrip()))
        while any(asks[last + 1 : last + 2]):
            last += 1
    else:
        first = last = max((k for k, asking in enumerate(asks) if asking or k in marked), default=len(asks) - 1)
        while first > 0 and first not in marked and asks[first - 1]:
            first -= 1
    return worded[first], [*worded[1:], len(sentences), len(sentences)][last]


def question_in(
    tokens: Sequence[str], sentences: Iterable[Span], segment: Span, messages: Iterable[Mapping[str, Any]] = ()
) -> dict[str, int]:
    """Where the question of a segment stands, as `Sample` has it in its metadata.

    ``question_start``, the token at which it begins (`asking`), in the user's last message; and ``question_stop``, the
    token behind it, where a message follows, or words that are more than those before it and than its own.
    """
    asked = [(m["start"], m["stop"]) for m in messages if m["role"] == "user"][-1:]
    inside = sorted((a, b) for a, b in sentences if segment[0] <= a and b <= segment[1])
    own = [(a, b) for a, b in inside if not asked or asked[0][0] <= a < asked[0][1]] or inside
    texts = ["".join(tokens[a:b]) for a, b in own]
    first, stop = asking(texts)
    before, run, behind = (len("".join(part)) for part in (texts[:first], texts[first:stop], texts[stop:]))
    end = own[stop][0] if behind > max(before, run) else own[-1][1]
    return {"question_start": own[first][0]} | ({"question_stop": end} if end < inside[-1][1] else {})


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
                spans += sentence_ranges(text, content, {(inside[0], inside[-1] + 1): (content[inside[0]][0], end)})
    return sorted(span for span in spans if re.search(r"\w", "".join(sample.tokens[slice(*span)])))
