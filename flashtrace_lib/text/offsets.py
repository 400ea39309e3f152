"""Between characters and tokens: the ids of a text, the text of ids, and the tokens of a character span."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
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
    bounds = torch.tensor(list(offsets), dtype=torch.long).reshape(-1, 2)  # [N, 2]
    begin, end = bounds[:, 0], bounds[:, 1]  # [N] each
    mask = torch.zeros(len(bounds), dtype=torch.bool)  # [N]
    for span in spans:
        start, stop = (int(x) for x in span)
        if not 0 <= start < stop or (text is not None and stop > len(text)):
            raise ValueError(
                f"evidence range ({start}, {stop}) is empty or not within the text: give character positions"
            )
        if text is not None:
            start, stop = strip_span(text, (start, stop))
        if start < stop:  # more than white space
            mask |= (begin < stop) & (end > start) & (begin < end)
    return mask


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
    return list(encoded["input_ids"]), [(int(a), int(b)) for a, b in encoded["offset_mapping"]]


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
    ids, before = [int(i) for i in ids], [int(i) for i in before]
    context = next((last for n in range(1, 5) if _is_text(decode(tokenizer, last := before[-n:]))), before[-1:])
    text, offsets = "", []
    first = 0  # first token of the group being decoded
    head = decode(tokenizer, context)
    for stop in range(1, len(ids) + 1):
        joint = decode(tokenizer, context + ids[first:stop])
        complete = joint.startswith(head) and not joint.endswith("\ufffd")
        if not complete and stop < len(ids):
            continue  # a character is not finished yet
        piece = joint[len(head) :]
        offsets += [(len(text), len(text) + len(piece))] * (stop - first)
        text, context, first = text + piece, ids[first:stop], stop
        head = decode(tokenizer, context)
    return text, offsets


def _is_text(text: str) -> bool:
    """Whether it does not begin within a character; one has up to four bytes, each of which may be a token."""
    return not text.startswith("\ufffd")


def check_retokenises(tokenizer: Any, ids: Sequence[int] | torch.Tensor) -> None:
    """Raise ValueError unless the text of ``ids`` is tokenised to these ids again.

    Ids that a model generated need not pass. Ids from a user that fail are mostly from another tokenizer.
    """
    ids = [int(i) for i in ids]
    again, _ = tokenise(tokenizer, decode(tokenizer, ids))
    if again != ids:
        differing = (k for k, (a, b) in enumerate(zip(ids, again, strict=False)) if a != b)
        where = next(differing, min(len(ids), len(again)))
        raise ValueError(
            f"the response does not re-tokenise to itself: it differs from token {where} on. "
            "Give the response as text, or ids made by this model's tokenizer"
        )


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Text of ``ids`` as they stand, special tokens included."""
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False) if len(ids) else ""
