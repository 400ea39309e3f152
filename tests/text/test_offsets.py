"""Which tokens a span of characters covers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from flashtrace_lib.text.offsets import char_spans_to_token_mask, decode_with_offsets

pairs = st.tuples(st.integers(0, 9), st.integers(0, 3)).map(lambda p: (p[0], p[0] + p[1]))


@given(st.lists(pairs, min_size=5, max_size=20), st.lists(pairs.filter(lambda p: p[0] < p[1]), max_size=2))
def test_mask_marks_tokens_that_share_a_character(offsets, spans):
    mask = char_spans_to_token_mask(offsets, spans)
    marked = {c for a, b in spans for c in range(a, b)}
    assert mask.tolist() == [any(c in marked for c in range(a, b)) for a, b in offsets]


def test_white_space_alone_is_no_overlap():
    text = "See. A fact.\n\nNext"
    offsets = [(0, 4), (4, 6), (6, 11), (11, 14), (14, 18)]  # the fourth token is ".\n\n"
    assert char_spans_to_token_mask(offsets, [(4, 14)], text).tolist() == [False, True, True, True, False]
    offsets[3:4] = [(11, 12), (12, 14)]
    assert char_spans_to_token_mask(offsets, [(4, 14)], text).tolist() == [False, True, True, True, False, False]
    for span in ((3, 3), (5, 2), (-1, 2), (0, 99)):
        with pytest.raises(ValueError, match="is empty or not within the text"):
            char_spans_to_token_mask(offsets, [span], text)


def byte_fallback_tokenizer():
    """Pieces for a few words, and a token for every byte of what has none."""
    vocabulary = {f"<0x{i:02X}>": i for i in range(256)} | {
        word: 256 + i for i, word in enumerate(["▁Say:", "▁Hi", "▁"])
    }
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def test_bytes_of_a_character_before_do_not_spoil_what_follows():
    tokenizer = byte_fallback_tokenizer()
    bird = list("🦜".encode())
    text, offsets = decode_with_offsets(tokenizer, [*bird, 257], before=[256, 258, *bird])
    assert text == "🦜 Hi" and offsets == [(0, 1)] * 4 + [(1, 4)]
