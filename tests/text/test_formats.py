"""Where reasoning and answer stand in replies of every format, cut anywhere, and in replies of nonsense."""

import os
import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AddedToken

from flashtrace_lib.text.build_sample import build_sample
from flashtrace_lib.text.formats import ANSWERS, FORMATS
from flashtrace_lib.text.offsets import tokenise
from flashtrace_lib.text.reading import special_ids
from scripts import robustness_table as table
from tests.oracles.tiny_chat import TEMPLATE, make_tokenizer

N_FUZZED = int(os.environ.get("FLASHTRACE_FUZZED", "1000"))
# Tags as their makers write them, piece by piece.
TAGS = (
    *(f"<{slash}{word}>" for slash in ("", "/") for word in ("think", "thinking", "reasoning", "seed:think", "answer")),
    "◁think▷", "◁/think▷", "[THINK]", "[/THINK]", "<|begin_of_thought|>", "<|end_of_thought|>", "<|begin_of_solution|>",
    "<|end_of_solution|>", "<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>",
    "<|channel|>", "<|message|>", "<|return|>", "<|call|>",
)  # fmt: skip
WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="<>[]◁▷`\"'“”«»‘’|:"), min_size=1)
WORDS = WORDS.map(str.strip).filter(lambda words: re.search(r"\w", words))


@pytest.fixture(scope="module")
def toks():
    """Tokenizers that have the tags as special tokens, and that spell them."""
    return {True: make_tokenizer(additional_special_tokens=[*TAGS, "<|im_end|>"]), False: make_tokenizer()}


def said(sample, name):
    return "".join(sample.tokens[slice(*getattr(sample.segments, name))]).strip()


def rendered(row, thought, answer):
    """A reply in a format of the table, and where its answer begins."""
    marks = {kind: marks[-1].replace("…", "") for kind, marks in row.marks.items()}
    head = marks.get("open", "") + thought + marks.get("close", "") + marks.get("answer", "")
    return head + answer + row.marks.get("end", ("",))[0], len(head)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([*FORMATS, *ANSWERS]), WORDS, WORDS, st.booleans(), st.none() | st.floats(0, 1))
def test_any_words_in_any_format_cut_anywhere(toks, row, thought, answer, special, cut):
    reply, begins = rendered(row, thought, answer)
    ids = tokenise(toks[special], reply)[0]
    ids = ids[: len(ids) if cut is None else 1 + int(cut * (len(ids) - 1))]
    try:
        sample = build_sample(toks[special], "Well?", ids)
    except ValueError as error:
        assert len(toks[special].decode(ids).rstrip("\ufffd")) <= begins + len(answer) and cut is not None, error
        return
    if cut is None:
        assert (said(sample, "reasoning"), said(sample, "output")) == (thought, answer)
        assert sample.metadata["format"] == row.name and "cautions" not in sample.metadata
    elif not sample.metadata.get("cautions"):
        assert said(sample, "reasoning") == thought and answer.startswith(said(sample, "output").rstrip("\ufffd"))


def test_fuzzed_replies_never_end_within_a_tag(toks):
    draw = random.Random(0)
    pieces = [
        *TAGS, "Well", " so it is. ", "\n", "`", "```\n", '"', "Answer: 7", "\n\nNote: no", "\\boxed{7}", "<|end|>",
        "<|start|>assistant", "analysis", "final", "commentary", "<|start|>user\n", "< THINK >", "Here is my response:",
        "<", "日本", "<|im_end|>", "#### 7", "<th", "</ans", "[/TH",
    ]  # fmt: skip
    tags, built = re.compile("|".join(map(re.escape, TAGS))), 0
    for k in range(N_FUZZED):
        reply = "".join(draw.choices(pieces, k=draw.randint(1, 12)))
        prefix = draw.choice(["", "", "<think>\n", "<think>\n\n</think>\n", "[THINK]"])
        try:
            sample = build_sample(toks[k % 2 == 0], "Well?", reply, answer_prefix=prefix)
        except ValueError:
            continue
        built += 1
        inside = {i for match in tags.finditer("".join(sample.tokens)) for i in range(match.start() + 1, match.end())}
        for _, span in list(sample.segments.named())[1:]:
            assert not {len("".join(sample.tokens[:edge])) for edge in span} & inside, (reply, prefix, span)
    assert built > N_FUZZED / 3


def test_the_table_says_what_is_done():
    assert table.PAGE.read_text(encoding="utf-8") == table.page()


@pytest.mark.parametrize("given, thought, answer, caution", [case[1:] for case in table.REPLIES], ids=str)
def test_each_reply_of_the_table(given, thought, answer, caution):
    before, reply = given
    found = table.found(before, reply)
    assert found[:2] == (thought, answer) and re.search(caution or "^$", found[2])


def test_reasoning_opened_by_the_template():
    tok = make_tokenizer(TEMPLATE + "{% if add_generation_prompt %}<think>\n{% endif %}")
    sample = build_sample(tok, "What does <think> do? And </think>?", "It opens.</think>It is a tag.")
    assert (said(sample, "reasoning"), said(sample, "output")) == ("It opens.", "It is a tag.")
    with pytest.raises(ValueError, match="never closes it.*--max-new-tokens"):
        build_sample(tok, "Well?", "Still at it")
    named = build_sample(tok, "Well?", "Still at it", output="at it")
    assert (said(named, "reasoning"), said(named, "output")) == ("Still", "at it")


def test_marks_as_tokens_go_before_marks_that_are_spelled(toks):
    spelled, tok = tokenise(toks[False], "I write </think> here.")[0], toks[True]
    opened, closed = tok.convert_tokens_to_ids(["<think>", "</think>"])
    sample = build_sample(tok, "Well?", [opened, *spelled, closed, *tokenise(tok, "So.")[0]])
    assert (said(sample, "reasoning"), said(sample, "output")) == ("I write </think> here.", "So.")


@pytest.mark.parametrize(
    "reply", ["<think>a</think>One.<|end|>\n<|start|>user\nTwo?<|end|>", "One.<|im_end|>\nuser Two?"]
)
def test_a_second_turn_is_left_out(toks, reply):
    sample = build_sample(toks[True], "Well?", reply)
    assert said(sample, "output") == "One." and "Two" not in "".join(sample.tokens)
    assert any("goes on behind the end of its first turn, 'user" in note or "Two?" in note for note in
               sample.metadata["cautions"])  # fmt: skip
    assert said(build_sample(toks[True], "Well?", reply, output="Two?"), "output") == "Two?"


@pytest.mark.parametrize("output, starts", [("7", 12), (("7", 1), 0), (("7", 2), 6), ((re.compile(r"(\d),"), 2), 6)])
def test_an_output_by_its_place(toks, output, starts):
    sample = build_sample(toks[False], "Well?", "7, so 7, and 7", output=output, reasoning=None)
    assert len("".join(sample.tokens[sample.response[0] : sample.segments.output[0]]).rstrip()) in (starts, starts - 1)
    with pytest.raises(ValueError, match="text '7' has no occurrence 4: it occurs 3 times"):
        build_sample(toks[False], "Well?", "7, so 7, and 7", output=("7", 4))


def test_an_end_of_a_turn_that_is_special_without_a_name_is_no_word():
    tok = make_tokenizer()  # as Gemma-3's and Phi-3's: neither the end of a text nor among the named ones
    tok.add_tokens([AddedToken("<end_of_turn>", special=True)])
    end = tok.convert_tokens_to_ids("<end_of_turn>")
    assert end not in tok.all_special_ids and end in special_ids(tok)
    for reply in ("It is 7.<end_of_turn>", "It is 7.<end_of_turn>\nAnd <end_of_turn>"):
        assert said(build_sample(tok, "Which is it?", reply), "output") == "It is 7."
