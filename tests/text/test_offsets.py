"""Which tokens a span of characters covers."""

import re
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from flashtrace_lib.text.build_sample import build_sample
from flashtrace_lib.text.locate import find_passage
from flashtrace_lib.text.offsets import char_spans_to_token_mask, decode_with_offsets
from tests.oracles.tiny_chat import make_tokenizer

pairs = st.tuples(st.integers(0, 9), st.integers(0, 3)).map(lambda p: (p[0], p[0] + p[1]))


@given(st.lists(pairs, min_size=5, max_size=20), st.lists(pairs.filter(lambda p: p[0] < p[1]), max_size=2))
def test_mask_marks_tokens_that_share_a_character(offsets, spans):
    mask, marked = char_spans_to_token_mask(offsets, spans), {c for a, b in spans for c in range(a, b)}
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
    vocabulary = {f"<0x{i:02X}>": i for i in range(256)} | {w: 256 + i for i, w in enumerate(["▁Say:", "▁Hi", "▁"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def test_bytes_of_a_character_before_do_not_spoil_what_follows():
    tokenizer, bird = byte_fallback_tokenizer(), list("🦜".encode())
    text, offsets = decode_with_offsets(tokenizer, [*bird, 257], before=[256, 258, *bird])
    assert text == "🦜 Hi" and offsets == [(0, 1)] * 4 + [(1, 4)]


def test_bytes_that_never_become_a_character_stand_alone():
    bird = list("🦜".encode())[:3]
    text, offsets = decode_with_offsets(byte_fallback_tokenizer(), [257, *bird, 257, *bird], before=[256])
    half = "\ufffd" * 3  # one for each byte, as this decoder has it
    assert text == f" Hi{half} Hi{half}" and offsets == [(0, 3)] + [(3, 6)] * 3 + [(6, 9)] + [(9, 12)] * 3


WORDS = "Un café, là. 한국의 각 ấ café!"


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("other", ["NFC", "NFD"])
@pytest.mark.parametrize("passage", ["café", "là. 한국의", "각", "ấ c", "(?<=c)afé!"])
def test_a_passage_is_found_in_either_normal_form(form, other, passage):
    text, sought = normalize(form, WORDS), normalize(other, passage)
    start, stop = find_passage(text, re.compile(sought) if "(" in sought else sought, "output", (0, len(text)))
    parts = [normalize("NFC", part) for part in (text[:start], text[start:stop], text[stop:])]
    assert parts[1] == passage.removeprefix("(?<=c)") and "".join(parts) == WORDS


@pytest.mark.parametrize(("text", "part"), [("q\u0303é", "q\u0303e"), (normalize("NFD", "각é"), "가")])
def test_half_a_letter_is_no_passage(text, part):
    with pytest.raises(ValueError, match="does not occur"):
        find_passage(text, part, "output", (0, len(text)))


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_tokenizer_that_composes_accents_keeps_them_with_their_letters(form):
    tok = make_tokenizer()
    tok.backend_tokenizer.normalizer = normalizers.NFC()
    prompt, response = normalize(form, "Où? 각"), normalize(form, "Au café là. Bien.")
    sample = build_sample(tok, prompt, response, input=normalize("NFC", "각"), output=normalize("NFD", "café là"))
    shown = {name: "".join(sample.tokens[a:b]).strip() for name, (a, b) in sample.segments.named()}
    assert shown["output"] == normalize(form, "café là") and shown["prompt"] == normalize(form, "각")
    assert normalize("NFC", "".join(sample.tokens)) == tok.decode(sample.input_ids)
