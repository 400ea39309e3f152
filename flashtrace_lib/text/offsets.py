"""From characters to tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch

CharSpan = tuple[int, int]  # half-open character range [start, stop)


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
