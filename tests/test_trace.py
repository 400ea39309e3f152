import json

import numpy as np
import pytest
import torch

from flashtrace_lib import Trace, load_model, trace
from flashtrace_lib.attribution import Attribution, Method
from flashtrace_lib.methods import IFR
from flashtrace_lib.model.answer import NotExplained
from flashtrace_lib.model.generate import generate
from flashtrace_lib.text.chat_template import STEP_BY_STEP, render_prompt
from flashtrace_lib.text.offsets import tokenise
from tests.oracles.tiny_chat import PROMPT, RESPONSE, TEMPLATE, make_chat_model, make_tokenizer, spelled


class Uniform(Method):
    """A method for the tests: scores rise with the position."""

    name = "uniform"

    def _attribute(self, model, sample):
        return Attribution(torch.arange(1.0, len(sample.prompt_ids) + 1), self.name)


CUT = "So it is 7261 🦜"


@pytest.mark.parametrize(
    ("ids", "own", "text"),
    [
        (lambda tok: torch.tensor(tokenise(tok, RESPONSE)[0]), True, RESPONSE),
        (lambda tok: np.array(spelled(tok, RESPONSE)), False, RESPONSE),
        (lambda tok: spelled(tok, CUT)[:-2], False, CUT[:-1] + "\ufffd"),
        (lambda tok: [*spelled(tok, CUT)[:-1], *tokenise(tok, "!")[0]], False, CUT[:-1] + "\ufffd!"),
        (lambda tok: [*tokenise(tok, CUT)[0], len(tok) + 3], False, CUT),  # a row of the embedding without a token
    ],
)
def test_ids_are_explained_as_they_were_sampled(tok, tmp_path, ids, own, text):
    model, given = make_chat_model(tok, vocab_size=len(tok) + 9), ids(tok)
    result = trace(model, tok, PROMPT, given, method=Uniform())
    start, stop = result.sample.response
    assert result.sample.input_ids[start:stop].tolist() == list(map(int, given)) and result.response == text
    assert [t for t in result.sample.tokens[start:] if "\ufffd" in t] == ["\ufffd"] * text.count("\ufffd")
    told = [note for note in Trace.from_json(result.to_json(tmp_path / "t.json")).cautions() if "not canonical" in note]
    assert len(told) == (not own)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([5, -1], "id -1 .* outside the model's vocabulary of 290"), ([5, 290], "id 290 "), ([10**12], "vocabulary"),
        ([5, 1.0], "flat list of whole numbers"), ([5, True], "whole numbers"), (["a"], "whole numbers"),
        (torch.tensor([[5, 6]]), "whole numbers"), (torch.tensor([5.5]), "whole numbers"), (b"ab", "whole numbers"),
        (torch.tensor(5), "whole numbers"), ([5, None], "whole numbers"), ([], "is empty"),
    ],
)  # fmt: skip
def test_ids_that_are_none_of_the_models_are_refused(tok, ids, message):
    model = make_chat_model(tok, vocab_size=290)
    with pytest.raises(ValueError, match=message):
        trace(model, tok, PROMPT, ids, method=Uniform())


def test_trace_of_a_given_response(model, tok, tmp_path):
    result = trace(model, tok, PROMPT, response=RESPONSE, output="7261", hops=2)
    assert result.answer == "7261"
    assert result.response == RESPONSE
    assert len(result.attribution.hops) == 3
    top = result.top(5)
    start, stop = result.sample.segments.prompt
    assert list(top.columns) == ["token", "position", "score"]
    assert top["score"].is_monotonic_decreasing and top["position"].between(start, stop - 1).all()
    assert top["score"].iloc[0] == pytest.approx(float(result.attribution.scores.max()))
    assert all(result.sample.tokens[p] == t for t, p in zip(top["token"], top["position"], strict=True))
    stored = json.loads(result.to_json(tmp_path / "t.json").read_text(encoding="utf-8"))
    assert stored["input_ids"] == result.sample.input_ids.tolist()
    assert stored["segments"]["output"] == list(result.sample.segments.output)
    assert torch.allclose(torch.tensor(stored["scores"]), result.attribution.scores)
    assert stored["options"]["hops"] == 2
    assert "7261" in repr(result) and "&lt;|end|&gt;" in result._repr_html_() and "<|end|>" not in result._repr_html_()


def test_trace_generates_what_the_model_would(model, tok):
    result = trace(model, tok, PROMPT, max_new_tokens=6, reasoning=None, method=Uniform())
    text = render_prompt(tok, PROMPT).text
    ids, _ = tokenise(tok, text)
    generated = generate(model, tok, [text], 6)[0]
    assert result.sample.input_ids.tolist() == ids + generated
    with torch.no_grad():
        logits = model(torch.tensor([ids + generated])).logits[0]
    assert logits[len(ids) - 1 : -1].argmax(-1).tolist() == generated  # greedy
    frame = result.to_frame().dropna()
    words = frame.loc[frame["text"].str.strip() != "", "score"]
    assert list(result.top(3)["score"]) == sorted(words, reverse=True)[:3]


def test_trace_reports_the_words_that_begin_the_turn_with_the_template(model, tok):
    result = trace(model, tok, PROMPT, " It is 7261.\nAnswer: 7261", **STEP_BY_STEP)
    shares = result.shares().set_index("part")
    assert result.answer == "Answer: 7261" and result.response.strip() == "It is 7261.\nAnswer: 7261"
    own = len(result.sample.prompt_ids)
    assert shares["tokens"]["user"] == own and shares["tokens"].sum() == len(result.sample)
    assert shares["tokens"]["template"] >= result.sample.response[0] - own and shares["hop 0"]["template"] > 0
    assert result.top(10**6)["position"].between(*result.sample.segments.prompt).all()
    text = render_prompt(tok, PROMPT, request=STEP_BY_STEP["request"], answer_prefix=STEP_BY_STEP["answer_prefix"]).text
    written = trace(model, tok, PROMPT, max_new_tokens=6, method=Uniform(), **STEP_BY_STEP)
    assert written.sample.input_ids.tolist() == [*tokenise(tok, text)[0], *generate(model, tok, [text], 6)[0]]


def test_trace_takes_a_method_by_its_name(model, tok):
    named = trace(model, tok, PROMPT, RESPONSE, method="ifr").attribution
    given = trace(model, tok, PROMPT, RESPONSE, method=IFR()).attribution
    assert named.method == "ifr" and torch.equal(named.scores, given.scores)
    with pytest.raises(ValueError, match="Did you mean 'flashtrace'"):
        trace(model, tok, PROMPT, method="flash_trace")  # said before anything is generated


def test_trace_rejects_bad_counts(model, tok):
    with pytest.raises(ValueError, match="max_new_tokens"):
        trace(model, tok, PROMPT, max_new_tokens=0)
    with pytest.raises(ValueError, match="at least 1"):
        trace(model, tok, PROMPT, response=RESPONSE, method=Uniform()).top(0)


def test_the_model_has_the_name_it_was_loaded_by(tok, tmp_path):
    saved = make_chat_model(tok)
    (tmp_path / "my model").mkdir()
    saved.save_pretrained(tmp_path / "my model")
    tok.save_pretrained(tmp_path / "my model")
    loaded, tokenizer = load_model(str(tmp_path / "my model"))
    assert trace(loaded, tokenizer, PROMPT, RESPONSE).model_name == "my model"  # nobody's folders get into a page
    saved.config._name_or_path = "some/model"
    assert trace(saved, tok, PROMPT, RESPONSE).model_name == "some/model"
    saved.config._name_or_path = ""
    assert trace(saved, tok, PROMPT, RESPONSE).model_name == "LlamaForCausalLM"


def test_reasoning_that_is_cut_is_kept_and_the_limit_named(model):
    tok = make_tokenizer(TEMPLATE + "{% if add_generation_prompt %}<think>\n{% endif %}")
    said = r"never closes it.*wrote 6 tokens, max_new_tokens \(--max-new-tokens\) is 6"
    with pytest.raises(NotExplained, match=said) as e:
        trace(model, tok, PROMPT, max_new_tokens=6, method=Uniform())
    kept = e.value
    assert str(kept.path) in str(kept) and len(str(kept)) <= 600 and kept.text == tok.decode(kept.response_ids)
    assert kept.path.read_text(encoding="utf-8") == kept.text and len(kept.response_ids) == 6


def test_what_cannot_be_decided_is_told_and_survives_the_file(tok, model, tmp_path):
    written = trace(model, tok, PROMPT, max_new_tokens=6, method=Uniform())
    assert any("cut at 6 tokens by max_new_tokens (--max-new-tokens)" in note for note in written.cautions())
    given = trace(model, tok, PROMPT, tokenise(tok, "<think>a</think>b. <think>c</think>d")[0], method=IFR())
    assert given.format == "<think>…</think>" and given.answer == "d"
    notes = " ".join(given.cautions())
    assert "neither reasoning T nor answer O, and count as context: 'a', 'b.'" in notes and "an end token" in notes
    read = Trace.from_json(given.to_json(tmp_path / "t.json"))
    assert (read.format, read.cautions()) == (given.format, given.cautions())
    page = given.to_html(tmp_path / "t.html").read_text(encoding="utf-8")
    assert "told apart by: &lt;think&gt;…&lt;/think&gt;" in page and "an end token" in page
