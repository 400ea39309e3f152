"""Odd texts through spans, sentences, scorers and the command line: right positions and numbers, or a clear error."""

import json
import re
import time

import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flashtrace_lib import FlashTrace, trace
from flashtrace_lib.cli import read_prompt, read_text
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.scoring import SCORERS, score
from flashtrace_lib.text.build_sample import build_sample
from flashtrace_lib.text.labels import find_boxed
from flashtrace_lib.text.locate import locate_segments
from flashtrace_lib.text.offsets import decode_with_offsets, tokenise
from flashtrace_lib.text.segmenter import sentence_spans

MANY = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
# What breaks positions: marks without width, right-to-left words and their controls, joined emoji, combining accents,
# letters that grow when their case changes, line ends of other systems, the marks that the library itself looks for.
PIECES = st.sampled_from([
    "\u200b", "\u200d", "\ufeff", "\u00ad", "\u2060", "\u202e", "\u202c", "\u2067", "\u2069", "\u2028", "e\u0301",
    "שלום עולם", "مرحبا", "\U0001f469\u200d\U0001f469", "\U0001f3f3\ufe0f\u200d\U0001f308", "日本語。", "İ", "ß", "ﬁ",
    "\r\n", "\r", "\x0b", "\x1c", "\x00", "\ufffd", "\U0010ffff", " ", "\n\n", "\t", "Dr. No. ", "3.14", "1. ",
    "<think>", "</think>", "\\boxed{", "}", "{", "\\", "<|end|>", "(?", "[", "a.b", "U.S. ", "?!", "...",
])  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=8), min_size=1, max_size=8).map("".join)


def without_marks(text):
    return re.sub(r"</?think>|\\f?boxed|\\box|<\|end\|>|<\|start\|>", "", text)


@MANY
@given(TEXTS)
@example("x" * 20_000)
def test_offsets_cover_the_text_that_ids_spell(tok, text):
    ids, _ = tokenise(tok, text)
    decoded, offsets = decode_with_offsets(tok, ids)
    assert decoded == text and len(offsets) == len(ids)
    assert all(a < b and text[a:b] for a, b in offsets) and [a for a, _ in offsets] == sorted(a for a, _ in offsets)
    assert {i for a, b in offsets for i in range(a, b)} == set(range(len(text)))


@MANY
@given(st.lists(st.integers(0, 299), min_size=1, max_size=40))
def test_any_ids_have_offsets(tok, ids):
    """Ids that a model may write, half characters among them."""
    decoded, offsets = decode_with_offsets(tok, ids)
    assert len(offsets) == len(ids) and all(0 <= a <= b <= len(decoded) for a, b in offsets)
    assert offsets[-1][1] == len(decoded)


@settings(MANY, max_examples=100)
@given(TEXTS, TEXTS)
@example("a", "b")
@example("\u200b", "\u200b")
@example("x" * 10_000, "y" * 3_000)
def test_segments_hold_exactly_their_words(tok, prompt, answer):
    answer = without_marks(answer)
    try:
        sample = build_sample(tok, prompt, f"<think>\nso it is\n</think>\n{answer}")
    except ValueError as error:
        assert not answer.strip() or not prompt.strip() or "<think>" in prompt, error
        return
    words = ["".join(sample.tokens[a:b]) for _, (a, b) in sample.segments.named()]
    assert words[0].strip() == prompt.strip() and words[1].strip() == "so it is" and words[-1].strip() == answer.strip()
    assert "".join(sample.tokens) == tok.decode(sample.input_ids)
    tiles = [i for a, b in sample.sentences for i in range(a, b)]
    assert tiles == [i for _, (a, b) in sample.segments.named() for i in range(a, b)]


@MANY
@given(TEXTS, st.integers(0, 30), st.integers(1, 30))
def test_marked_evidence_is_the_tokens_of_its_words(tok, prompt, start, length):
    passage = prompt[start : start + length]
    try:
        sample = build_sample(tok, prompt, "yes", evidence=[(start, start + length)])
    except ValueError as error:
        assert not prompt.strip() or start + length > len(prompt), error
        return
    marked = "".join(t for t, gold in zip(sample.tokens, sample.gold.tolist(), strict=True) if gold)
    assert passage.strip() in marked or not marked.strip()
    assert bool(sample.gold.any()) == bool(passage.strip())


@MANY
@given(TEXTS, TEXTS | st.none(), st.sampled_from(["auto", None]))
def test_located_passages_lie_in_the_response(text, output, reasoning):
    try:
        found = locate_segments(text, reasoning, "auto" if output is None else output)
    except ValueError as error:
        assert len(str(error)) > 20
        return
    thought, answer = found.reasoning, found.output
    assert text[slice(*answer)].strip() == text[slice(*answer)] != ""
    assert thought is None or (thought[1] <= answer[0] and text[slice(*thought)].strip())
    box = find_boxed(text)
    assert box is None or text[slice(*box)].endswith("}")


@MANY
@given(TEXTS)
@example("word " * 2_000)
@example("\r\n" * 500)
@example("a" * 9_000)
@example("")
@example("\n\nOne.\n\n\tTwo (e.g. this).\n")
def test_sentences_tile_any_text(text):
    spans = sentence_spans(text)
    assert "".join(text[a:b] for a, b in spans) == text
    assert all(a < b for a, b in spans) and (len(spans) < 2 or all(text[a:b].strip() for a, b in spans))


def test_a_word_of_a_hundred_thousand_letters_takes_seconds(tok):
    started, sample = time.perf_counter(), build_sample(tok, "x" * 100_000, "y" * 1_000)
    assert "".join(sample.tokens[slice(*sample.segments.prompt)]) == "x" * 100_000
    assert sum(b - a for a, b in sentence_spans("x" * 100_000)) == 100_000
    broken = [tok.convert_tokens_to_ids("Ã")] * 3_000  # a byte that starts a character and is never followed up
    assert len(decode_with_offsets(tok, broken)[1]) == 3_000
    assert time.perf_counter() - started < 30


@settings(MANY, max_examples=100)
@given(st.sampled_from(sorted(set(SCORERS) - {"unit_tests", "exact_set"})), TEXTS, TEXTS)
@example("qa_match", "3,14", "3.14")
@example("boxed", "(", "\\boxed{(}")
def test_any_answer_gets_a_score_between_0_and_1(scorer, answer, response):
    found = score(Example(id="x", task="t", cell="c", prompt="p", answers=(answer,), scorer=scorer), response)
    assert isinstance(found, float) and 0 <= found <= 1
    if scorer == "substring_recall":
        assert found == float(re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", response, re.IGNORECASE) is not None)


@settings(MANY, max_examples=30)
@given(TEXTS.map(without_marks), TEXTS.map(without_marks))
@example("a", "b")
@example("\u200b", "\u202e")
def test_a_trace_of_any_text_is_finite_and_survives_its_file(tok, model, tmp_path, prompt, answer):
    try:
        result = trace(model, tok, prompt, f"<think>so</think>{answer}", method=FlashTrace(hops=1))
    except ValueError as error:
        assert not answer.strip() or not prompt.strip(), error
        return
    scores = result.attribution.scores
    assert scores.isfinite().all() and (scores >= 0).all() and 0 < scores.sum() <= 1 + 1e-4
    again = type(result).from_json(result.to_json(tmp_path / "t.json"))
    assert torch.equal(again.attribution.scores, scores) and again.sample.tokens == result.sample.tokens
    n_words = (result.to_frame().dropna()["text"].str.strip() != "").sum()
    assert len(result.top(3)) == min(3, n_words) and result.to_html(tmp_path / "t.html").stat().st_size > 1000


@MANY
@given(st.binary(max_size=40) | TEXTS.map(lambda t: t.encode("utf-8", "surrogatepass")))
@example(b"\xef\xbb\xbf[]")
@example(b"[1]")
def test_any_prompt_file_is_read_or_refused(tmp_path, raw):
    for name in ("p.txt", "p.json"):
        path = tmp_path / name
        path.write_bytes(raw)
        try:
            found, tools = read_prompt(str(path))
        except ValueError as error:
            assert name in str(error)
        else:
            assert not tools and found and isinstance(found, list if name.endswith("json") else str)


@MANY
@given(TEXTS)
def test_a_text_file_is_read_as_it_stands(tmp_path, text):
    """Line ends of other systems are kept; what editors add, a byte order mark and a line end last, is not."""
    path = tmp_path / "p.txt"
    path.write_bytes(text.encode())
    if text.removeprefix("\ufeff").strip():
        assert read_text(str(path), "prompt") == text.removeprefix("\ufeff").rstrip("\r\n")


@MANY
@given(st.recursive(st.none() | st.integers() | TEXTS, lambda x: st.lists(x, max_size=3) | st.dictionaries(
    st.sampled_from(["role", "content", "messages", "x"]), x, max_size=3), max_leaves=8))  # fmt: skip
@example([{"role": "user", "content": "a"}])
@example([{"role": "user", "content": None}])
@example([{"role": "user"}])
@example(["user"])
@example([{"role": "tool", "content": ["x"]}])
def test_any_conversation_is_built_or_refused(tok, tmp_path, messages):
    path = tmp_path / "c.json"
    path.write_text(json.dumps(messages), encoding="utf-8")
    try:
        sample = build_sample(tok, read_prompt(str(path))[0], "yes", whole=True)
    except ValueError as error:
        assert len(str(error)) > 10
    else:
        assert "".join(sample.tokens[slice(*sample.segments.output)]).strip() == "yes"
