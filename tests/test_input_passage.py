"""A passage of the prompt as the input: what is ranked, what becomes context, and how it is named."""

import re

import numpy as np
import pytest

from flashtrace_lib import Trace, trace
from flashtrace_lib.methods import FlashTrace, Position
from flashtrace_lib.text.build_sample import build_sample
from flashtrace_lib.viewer.message_shares import REST_OF_PROMPT, parts
from tests.oracles.tiny_chat import EVIDENCE, PROMPT, RESPONSE


def words(sample):
    return "".join(sample.tokens[slice(*sample.segments.prompt)]).strip()


@pytest.mark.parametrize("passage", [EVIDENCE, re.compile(r"The secret[^.]*\."), re.compile(r"\n(The secret .*?\.) ")])
def test_only_the_passage_is_ranked(model, tok, passage):
    narrow, whole = (trace(model, tok, PROMPT, RESPONSE, input=which) for which in (passage, "auto"))
    assert words(narrow.sample) == EVIDENCE and narrow.sample.input_ids.tolist() == whole.sample.input_ids.tolist()
    start, stop = narrow.sample.segments.prompt
    assert narrow.top(500)["position"].between(start, stop - 1).all() and len(narrow.top(500)) == stop - start
    by_range = trace(model, tok, PROMPT, RESPONSE, input=(start, stop))
    assert by_range.attribution.scores.tolist() == narrow.attribution.scores.tolist()
    names = [(part.name, part.kind) for part in parts(narrow.sample)]
    rest = (REST_OF_PROMPT, "context")
    assert names[:5] == [("template", "context"), rest, ("user", "input"), rest, ("template", "context")]
    assert [i for part in parts(narrow.sample) for i in range(*part.span)] == list(range(len(narrow.sample)))


def test_a_method_sees_a_shorter_input_in_the_same_context(model, tok):
    sample, whole = build_sample(tok, PROMPT, RESPONSE, input=EVIDENCE), build_sample(tok, PROMPT, RESPONSE)
    found, all_of_it = (FlashTrace(hops=0).attribute(model, s) for s in (sample, whole))
    first = sample.segments.prompt[0] - whole.segments.prompt[0]
    inside = all_of_it.scores[first : first + len(found.scores)]
    np.testing.assert_allclose(found.scores / found.scores.sum(), inside / inside.sum(), rtol=1e-5)
    assert sample.sentences != whole.sentences


def test_a_passage_of_one_message_of_a_conversation(model, tok, tmp_path):
    said = ("user", "The key is red. The door is blue."), ("assistant", "Noted."), ("user", "Which key?")
    talk = [{"role": role, "content": text} for role, text in said]
    result = trace(model, tok, talk, "Red.", input="The key is red.", method=Position())
    assert words(result.sample) == "The key is red."
    kinds = {part.name: part.kind for part in parts(result.sample)}
    assert kinds["1 user"] == "input" and kinds["2 assistant"] == kinds["3 user"] == "context"
    assert result.shares().set_index("part")["share"]["1 user"] == pytest.approx(1)
    result.to_json(tmp_path / "t.json")
    again = Trace.from_json(tmp_path / "t.json")
    assert [p.span for p in parts(again.sample)] == [p.span for p in parts(result.sample)]
    result.to_html(tmp_path / "t.html")
    assert REST_OF_PROMPT in (tmp_path / "t.html").read_text()


@pytest.mark.parametrize(("passage", "message"), [
    ("Paris", "input: the text 'Paris' does not occur in the prompt"), ("assistant", "does not occur in the prompt"),
    ((0, 2), "token range of the prompt .* got .0, 2."), (None, "input must be a text.*got None"),
    ((3, 3), "token range of the prompt .* not empty, got .3, 3."),
])  # fmt: skip
def test_a_passage_that_is_not_there(tok, passage, message):
    with pytest.raises(ValueError, match=message):
        build_sample(tok, PROMPT, RESPONSE, input=passage)


def test_sentences_are_ranked_by_the_sum_of_their_words(model, tok, tmp_path):
    result = trace(model, tok, PROMPT, RESPONSE)
    found = result.top(9, by="sentence")
    assert found["score"].is_monotonic_decreasing and found["share"].sum() == pytest.approx(1)
    scores, tokens = dict(zip(found["sentence"], found["score"], strict=True)), result.to_frame()
    tokens = tokens[~tokens["text"].str.isspace()]  # white space counts nowhere
    for row in found.itertuples():
        assert row.score == pytest.approx(tokens[tokens["start"].between(row.start, row.stop - 1)]["score"].sum())
    assert EVIDENCE in scores and len(result.top(1, by="sentence")) == 1
    again = Trace.from_json(result.to_json(tmp_path / "t.json"))
    assert again.top(9, by="sentence").equals(found)
    assert again.attribution.by_sentence().tolist() == result.attribution.by_sentence().tolist()
    with pytest.raises(ValueError, match="by must be 'token' or 'sentence', got 'word'"):
        result.top(by="word")


def test_a_letter_of_several_tokens_is_no_white_space(tok):
    sample = build_sample(tok, "猫 \n犬?", "Yes.")
    assert "" in sample.tokens and sample.not_blank[slice(*sample.segments.prompt)].count(False) == 2
