"""From characters to tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

CharSpan = tuple[int, int]  # half-open character range [start, stop)
_SURROGATE = re.compile("[\ud800-\udfff]")


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
        The text. With it, spans lose the white space at their ends, so that a token which shares nothing else
        with a span is left out. Without it, spans are taken as they are.

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
    for start, stop in (_checked(span, text) for span in spans):
        mask |= (begin < stop) & (end > start) & (begin < end)
    return mask


def _checked(span: CharSpan, text: str | None) -> CharSpan:
    """The span without white space at its ends."""
    start, stop = (int(x) for x in span)
    if not 0 <= start < stop or (text is not None and stop > len(text)):
        raise ValueError(f"evidence range ({start}, {stop}) is empty or not within the text: give character positions")
    if text is None:
        return start, stop
    passage = text[start:stop]
    return start + len(passage) - len(passage.lstrip()), start + len(passage.rstrip())


def tokenise(tokenizer: Any, text: str) -> tuple[list[int], list[CharSpan]]:
    """Ids of ``text``, nothing added, and the characters of ``text`` that each of them covers.

    Raises
    ------
    ValueError
        If the tokenizer cannot say which characters a token covers, or the text holds half a surrogate pair.
    """
    if half := _SURROGATE.search(text):
        around = text[max(0, half.start() - 20) : half.end() + 20]
        mend = 'text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")'
        raise ValueError(f"{around!r} holds half a surrogate pair, {half[0]!r}, which is no character: try {mend}")
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
    tokenizer : transformers.PreTrainedTokenizerBase
    ids : sequence of int, length n
        Token ids, special tokens included.
    before : sequence of int
        Ids in front of them: what a first token looks like depends on them in some tokenizers.

    Returns
    -------
    (str, list of (int, int))
        The text, and n half-open character ranges of it.
    """
    ids, context = [int(i) for i in ids], [int(i) for i in before][-1:]
    text, offsets = "", []
    first = 0  # first token of the group being decoded
    head = _decode(tokenizer, context)
    for stop in range(1, len(ids) + 1):
        joint = _decode(tokenizer, context + ids[first:stop])
        complete = joint.startswith(head) and not joint.endswith("\ufffd")
        if not complete and stop < len(ids):
            continue  # a character is not finished yet
        piece = joint[len(head) :]
        offsets += [(len(text), len(text) + len(piece))] * (stop - first)
        text, context, first = text + piece, ids[first:stop], stop
        head = _decode(tokenizer, context)
    return text, offsets


def check_retokenises(tokenizer: Any, ids: Sequence[int] | torch.Tensor) -> None:
    """Raise ValueError unless the text of ``ids`` is tokenised to these ids again.

    Ids a model generated need not pass; ids that somebody hands over and that fail are mostly from another
    tokenizer.
    """
    ids = [int(i) for i in ids]
    again, _ = tokenise(tokenizer, _decode(tokenizer, ids))
    if again != ids:
        where = next((k for k, (a, b) in enumerate(zip(ids, again, strict=False)) if a != b), min(len(ids), len(again)))
        raise ValueError(
            f"the response does not re-tokenise to itself: it differs from token {where} on. "
            "Give the response as text, or ids made by this model's tokenizer"
        )


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False) if len(ids) else ""
