"""Between characters and tokens: the ids of a text, the text of ids, and the tokens of a character span."""

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import index
from typing import Any

import torch

from ..sample import Span

CharSpan = tuple[int, int]  # half-open character range [start, stop)
_SURROGATE = re.compile("[\ud800-\udfff]")


def strip_span(text: str, span: CharSpan) -> CharSpan:
    """``span`` without the white space at its ends; an empty span at ``start`` where nothing is left."""
    start, stop = span
    words = text[start:stop]
    if not words.strip():
        return start, start
    return start + len(words) - len(words.lstrip()), stop - len(words) + len(words.rstrip())


def content_span(text: str, span: CharSpan) -> CharSpan:
    """Characters at which a token counts as standing: those that are not white space, or else its first one."""
    start, stop = strip_span(text, span)
    return (start, stop) if start < stop else (span[0], min(span[0] + 1, span[1]))


def display_spans(tokens: Sequence[str]) -> list[CharSpan]:
    """Characters that each of the display tokens takes in the text that they make together."""
    ends = list(accumulate(map(len, tokens)))
    return list(zip([0, *ends], ends, strict=False))


def tokens_in(token_spans: Sequence[CharSpan], span: CharSpan, first: int = 0) -> Span:
    """Range of the tokens that share a character with ``span``; ``(first, first)`` where there is none.

    ``token_spans`` [N] holds the characters of each token; tokens before ``first`` are left out.
    """
    inside = [i for i in range(first, len(token_spans)) if token_spans[i][0] < span[1] and token_spans[i][1] > span[0]]
    return (inside[0], inside[-1] + 1) if inside else (first, first)


def char_spans_to_token_mask(
    offsets: Sequence[CharSpan], spans: Sequence[CharSpan], text: str | None = None
) -> torch.BoolTensor:
    """Mask of the tokens that share a character with a span.

    Parameters
    ----------
    offsets : sequence of (int, int), length N
        Characters that each token covers, as a fast tokenizer's ``offset_mapping`` gives them. A token without
        characters (a special token) is never marked.
    spans : sequence of (int, int)
        Half-open character ranges of the same text.
    text : str, optional
        With the text, spans lose the white space at their ends: a token that shares nothing else with a span is left
        out. Without it, spans are taken as they are.

    Returns
    -------
    torch.BoolTensor, shape [N]

    Raises
    ------
    ValueError
        If a span is empty, reversed or ends behind ``text``.
    """
    for start, stop in spans:
        if not 0 <= start < stop or (text is not None and stop > len(text)):
            raise ValueError(f"evidence range ({start}, {stop}) is empty or not within the text: give characters of it")
    spans = spans if text is None else [strip_span(text, span) for span in spans]
    shared = [any(max(a, start) < min(b, stop) for start, stop in spans) for a, b in offsets]
    return torch.tensor(shared, dtype=torch.bool)


def tokenise(tokenizer: Any, text: str) -> tuple[list[int], list[CharSpan]]:
    """Ids of ``text``, nothing added, and the characters of ``text`` that each of them covers.

    Raises
    ------
    ValueError
        If the tokenizer cannot say which characters a token covers, or the text holds half a surrogate pair.
    """
    if half := _SURROGATE.search(text):
        around = text[max(0, half.start() - 20) : half.end() + 20]
        remedy = 'text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")'
        raise ValueError(f"{around!r} holds half a surrogate pair, {half[0]!r}, which is no character: try {remedy}")
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(f"{type(tokenizer).__name__} gives no character offsets: load the fast tokenizer")
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
    return list(encoded["input_ids"]), _with_marks(text, [(int(a), int(b)) for a, b in encoded["offset_mapping"]])


def _with_marks(text: str, offsets: list[CharSpan]) -> list[CharSpan]:
    """Offsets with the accents behind a letter that a tokenizer composes, but counts as the letter alone."""
    covered = {i for start, stop in offsets for i in range(start, stop)}

    def end(stop: int) -> int:
        while 0 < stop < len(text) and stop not in covered and not text[stop].isspace():
            stop += 1
        return stop

    return offsets if len(covered) == len(text) else [(start, end(stop)) for start, stop in offsets]


def decode_with_offsets(tokenizer: Any, ids: Sequence[int], before: Sequence[int] = ()) -> tuple[str, list[CharSpan]]:
    """Text of ``ids`` and the characters that each of them covers, without tokenising anything again.

    Decodes a few tokens at a time. Byte-level tokenizers may split one character over several tokens: these are
    decoded together, and each of them covers what they make together.

    Parameters
    ----------
    ids : sequence of int, length n
        Token ids, special tokens included.
    before : sequence of int
        Ids in front of them: in some tokenizers the text of a first token depends on them.

    Returns
    -------
    (str, list of (int, int))
        The text, and n half-open character ranges of it.
    """
    # not from within a character, which has up to four bytes, each of which may be a token
    context = next((last for n in range(1, 5) if decode(tokenizer, last := before[-n:])[:1] != "\ufffd"), before[-1:])
    text, offsets = "", []
    first = 0  # first token of the group being decoded
    head = joint = decode(tokenizer, context)
    for stop in range(1, len(ids) + 1):
        unfinished, joint = joint, decode(tokenizer, [*context, *ids[first:stop]])
        complete = joint.startswith(head) and not joint.endswith("\ufffd")
        if not complete and stop < len(ids):
            continue  # a character is not finished yet
        # bytes that the last token did not make a character of never become one: they stand alone, before it
        broken = complete and joint.startswith(unfinished) and unfinished.startswith(head)
        cuts = [first, stop - 1, stop] if broken else [first, stop]
        for start, end in pairwise(cuts):
            piece = joint[len(head) :] if end == stop else unfinished[len(head) :]
            offsets += [(len(text), len(text) + len(piece))] * (end - start)
            text, head = text + piece, (joint if end == stop else unfinished)
        context, first = ids[cuts[-2] : stop], stop
        head = joint = decode(tokenizer, context)
    return text, offsets


def checked_ids(ids: Any, n_vocabulary: int = 2**31) -> list[int]:
    """Token ids as a list of int; ValueError where some are no whole numbers, or no token has them."""
    listed = ids.tolist() if hasattr(ids, "tolist") else ids
    try:
        if isinstance(ids, bytes) or any(isinstance(i, bool) for i in listed):
            raise TypeError("neither bytes nor truth values are ids")
        listed = [index(i) for i in listed]
    except TypeError as error:
        raise ValueError(f"token ids must be one flat list of whole numbers, got {ids!r:.80}: {error}") from error
    outside = [i for i in listed if not 0 <= i < n_vocabulary]
    if outside:
        remedy = "give ids of this very model, without padding such as -100"
        raise ValueError(f"id {outside[0]} is outside the model's vocabulary of {n_vocabulary} tokens: {remedy}")
    return listed


def is_own_spelling(tokenizer: Any, before: str, ids: list[int]) -> bool:
    """Whether ``ids`` are those that the tokenizer makes of their text, alone or behind the text ``before``."""
    text = decode(tokenizer, ids)
    return ids in (tokenise(tokenizer, text)[0], tokenise(tokenizer, before + text)[0][-len(ids) :])


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Text of ``ids`` as they stand, special tokens included."""
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False) if len(ids) else ""
