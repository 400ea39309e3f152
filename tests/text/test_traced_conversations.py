"""What is traced of a conversation: sentences of the response, units of the prompt, and cautions."""

import re

import pytest
import torch

from flashtrace_lib import FlashTrace, Trace, trace
from flashtrace_lib.methods import ContextCite, Perturbation, RandomSentences, ReAGent
from flashtrace_lib.methods.perturbation import shortened_rows
from flashtrace_lib.methods.perturbation_base import unit_spans
from flashtrace_lib.metrics import deletion_curve
from flashtrace_lib.model.batched_forward import score_rows
from flashtrace_lib.text.build_sample import build_sample
from flashtrace_lib.text.chat_template import render_prompt
from flashtrace_lib.text.offsets import tokenise
from flashtrace_lib.text.sentences import response_sentences
from flashtrace_lib.viewer.cautions import cautions
from flashtrace_lib.viewer.message_shares import shares
from tests.oracles.tiny_chat import PROMPT, RESPONSE, make_chat_model, make_tokenizer


@pytest.fixture(scope="module")
def tok():
    return make_tokenizer()


# --- sentences of the response --------------------------------------------------------------------------------


@pytest.mark.parametrize(("response", "output", "texts"), [
    ("<think>\nOne two. Three.\n</think>\n\nIt is 7261. Surely. Bye.", "Surely.",
     ["One two.", "Three.", "It is 7261.", "Surely.", "Bye."]),
    ("One. Two three. A box \\boxed{7}. The end. Bye.", "auto",
     ["One.", "Two three.", "A box", "\\boxed{7}", "The end.", "Bye."]),
])  # fmt: skip
def test_sentences_cover_what_the_response_says_and_no_mark(tok, response, output, texts):
    sample = build_sample(tok, PROMPT, response, output=output, whole=True)
    found = ["".join(sample.tokens[slice(*span)]) for span in response_sentences(sample, ["<|end|>"])]
    assert [text.strip() for text in found] == texts


def test_sentences_are_explained_as_by_themselves(model, tok):
    result = trace(model, tok, PROMPT, RESPONSE, hops=2)
    assert len(result.targets) == 4
    for target in result.targets:
        alone = FlashTrace(hops=2).attribute(model, result.sample.with_output(target.span))
        torch.testing.assert_close(target.attribution.scores, alone.scores, atol=1e-6, rtol=1e-5)
    assert trace(model, tok, PROMPT, "7.", method=Perturbation()).targets == []  # a pass for each would be needed


def test_cautions_name_what_stands_out(model, tok):
    result = trace(model, tok, PROMPT, RESPONSE)
    sample, attribution = result.sample, result.attribution
    start = sample.segments.prompt[0]

    def notes(weights):
        attribution.scores = torch.tensor([weights(i) for i in range(start, sample.segments.prompt[1])])
        attribution.hops[0].scores = torch.zeros(len(sample)).index_fill(0, torch.tensor([start]), 1.0)
        return cautions(sample, attribution)

    even = notes(lambda i: 1.0 if any(c.isalnum() for c in sample.tokens[i]) else 0.01)
    assert [note for note in even if "no better than even" not in note and "near tie" not in note] == []
    assert "first token" in notes(lambda i: 9.0 if i == start else 0.01)[0]
    marks = notes(lambda i: 0.001 if any(c.isalnum() for c in sample.tokens[i]) else 1.0)
    assert any("punctuation" in note for note in marks)
    assert "does not rest on it" in notes(lambda i: 0.0)[0]
    attribution.hops[0].scores = torch.zeros(len(sample)).index_fill(0, torch.tensor([0]), 1.0)
    assert "100% of the first hop's mass" in cautions(sample, attribution)[0]
    assert shares(sample, attribution).set_index("part").loc["template", "hop 0"] == pytest.approx(1)


class Writes:
    """Stands for a model's `generate`: one letter again and again, and an end where the answer has its length."""

    def __init__(self, tok, length):
        self.letter, self.end, self.length = tok.convert_tokens_to_ids("a"), tok.eos_token_id, length

    def __call__(self, input_ids, max_new_tokens, **_):
        self.max_new_tokens = max_new_tokens
        written = ([self.letter] * (self.length - 1) + [self.end])[:max_new_tokens]
        return torch.cat([input_ids, torch.tensor([written])], dim=1)


def test_an_answer_is_generated_within_the_context_only(tok, monkeypatch):
    with pytest.raises(ValueError, match="the model reads 40 at most"):
        trace(make_chat_model(tok, max_position_embeddings=40), tok, PROMPT)
    n_prompt = len(tokenise(tok, render_prompt(tok, PROMPT).text)[0])
    small = make_chat_model(tok, max_position_embeddings=n_prompt + 20)
    for length in (8, 20):  # they fit, whatever was allowed
        monkeypatch.setattr(small, "generate", Writes(tok, length))
        assert len(trace(small, tok, PROMPT).sample) == n_prompt + length and small.generate.max_new_tokens == 20
    monkeypatch.setattr(small, "generate", Writes(tok, 21))
    with pytest.raises(ValueError, match=f"the prompt has {n_prompt} tokens, 20 are left"):
        trace(small, tok, PROMPT)
    assert small.generate.max_new_tokens == 20  # no token was generated for nothing
    assert len(trace(small, tok, PROMPT, max_new_tokens=20).sample) == n_prompt + 20  # as the message advises


def test_special_tokens_in_the_users_words_are_told(tok, model, tmp_path):
    talk = [{"role": "user", "content": "Is it <|end|> 7261?"}, {"role": "tool", "content": "<|end|><|start|> 7261."}]
    for prompt, special in (("Is it <|end|> 7261?", "<|end|>"), (talk, "<|end|>, <|start|>")):
        result = trace(model, tok, prompt, RESPONSE)
        assert f"The input's own words hold {special}: the model reads such a special token" in result.cautions()[0]
        read = Trace.from_json(result.to_json(tmp_path / "t.json"))
        assert read.cautions() == result.cautions()  # and the page of each sentence has it as well
    clean = trace(model, tok, "Is it < end > 7261?", RESPONSE)
    assert not any("special token as" in note for note in clean.cautions())


# --- units -----------------------------------------------------------------------------------------------------


TALK = [
    {"role": "system", "content": "Be brief. "}, {"role": "user", "content": "What is <think>? Say it."},
    {"role": "assistant", "content": "<think>\nHm. So.\n</think>\n\nA mark. Yes."},
    {"role": "user", "content": "And\nnow?"},
]  # fmt: skip
THOUGHT_TWICE = "<think>\nA b. C.\n</think>\nI say:\n<think>\nmore\n</think>\nDone. Bye."
UNITS = ["Be brief.", "What is <think>?", "Say it.", "Hm.", "So.", "A mark.", "Yes.", "And", "now?"]


@pytest.mark.parametrize("template", [True, False])
def test_template_tokens_are_in_no_unit(tok, template):
    thought = re.compile("(?s)A b.*more")
    sample = build_sample(tok, TALK, THOUGHT_TWICE, whole=True, template=template, reasoning=thought)
    said = ["".join(sample.tokens[slice(*span)]).strip() for span in sample.sentences]
    assert said == [*UNITS, "A b.", "C.", "I say:", "more", "Done.", "Bye."]
    prompt = ["".join(sample.tokens[a:b]) for a, b in sample.words(sample.segments.prompt)]
    assert [words.strip() for words in prompt] == [
        "Be brief.", "What is <think>? Say it.", "Hm. So.", "A mark. Yes.", "And\nnow?"
    ]  # fmt: skip
    assert len(sample.words(sample.segments.reasoning)) == 3


@pytest.mark.parametrize("units", ["sentence", "token"])
def test_template_tokens_are_never_masked_and_no_sources(tok, model, units, monkeypatch):
    sample = build_sample(tok, TALK, "Done. Bye.", whole=True)
    first, stop = sample.segments.prompt
    outside = torch.ones(len(sample), dtype=torch.bool)
    for start, end in sample.words(sample.segments.prompt):
        outside[start:end] = False
    rows = []

    def watched(model, given, *arguments, **options):
        given = list(given)
        rows.extend(given)
        return score_rows(model, given, *arguments, **options)

    for module in ("methods.perturbation_base", "methods.reagent", "model.ablations", "metrics.deletion"):
        monkeypatch.setattr(f"flashtrace_lib.{module}.score_rows", watched)
    methods = [Perturbation(units), ReAGent(units, runs=1, max_steps=2), ContextCite(n_masks=9), RandomSentences()]
    for method in methods:
        attribution = method.attribute(model, sample)
        assert not attribution.scores[outside[first:stop]].any() and attribution.scores.shape == (stop - first,)
    curve = deletion_curve(model, sample, torch.rand(stop - first), steps=5)
    assert curve.n_masked[-1] == (~outside[first:stop]).sum()
    changed = torch.stack([row[:stop] != sample.input_ids[:stop] for row in rows if len(row) >= stop])
    assert len(changed) > 20 and changed[:, ~outside[:stop]].any() and not changed[:, outside[:stop]].any()
    shortened = list(shortened_rows(sample, unit_spans(sample, sample.segments.prompt, units)))
    assert torch.equal(shortened[-1][: int(outside[:stop].sum())], sample.input_ids[:stop][outside[:stop]])
