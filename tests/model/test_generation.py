"""Generation: a batch answers as one by one, greedily, up to the model's end tokens."""

import pytest
from transformers import GenerationConfig

from flashtrace_lib.model.embedded import use_reasoner_template
from flashtrace_lib.model.generate import _end_tokens, _shared, generate
from flashtrace_lib.text import build_sample
from flashtrace_lib.text.chat_template import render_prompt
from flashtrace_lib.text.offsets import tokenise
from tests.oracles.tiny import COMMON
from tests.oracles.tiny_reasoner import load_tokenizer
from tests.support.boxes import EXAMPLES, example


def test_a_batch_answers_as_one_by_one(embedded):
    model, tokenizer = embedded
    texts = [render_prompt(tokenizer, e.prompt).text for e in (EXAMPLES[0], example(7, "91"))]
    texts.append(render_prompt(tokenizer, "Say hello.").text)
    assert _shared(model, [[1, 2, 3, 4], [5, 2, 3, 4]])[0] == 0 == _shared(model, [[1, 2, 3, 4]])[0]
    _answers_as_one_by_one(model, tokenizer, texts)
    questions = ("What is hidden?", "Say hello to everybody in the room, slowly.", "Count.")
    texts = [render_prompt(tokenizer, "The sky is blue. The number 7491 is hidden. " * 4 + q).text for q in questions]
    assert _shared(model, [tokenise(tokenizer, text)[0] for text in texts])[0] > 30  # what they share is read once
    _answers_as_one_by_one(model, tokenizer, texts)


def _answers_as_one_by_one(model, tokenizer, texts):
    together = generate(model, tokenizer, texts, 12)
    assert together == [generate(model, tokenizer, [text], 12)[0] for text in texts]
    assert all(0 < len(ids) <= 12 for ids in together)
    assert all(tokenizer.eos_token_id not in ids[:-1] for ids in together)  # cut behind the end token
    with pytest.raises(ValueError, match="at least 1"):
        generate(model, tokenizer, texts, 0)


def test_an_answer_ends_where_the_models_context_does(embedded, monkeypatch):
    (model, tokenizer), n = embedded, len(tokenise(embedded[1], "One, two, three, four")[0])
    monkeypatch.setattr("flashtrace_lib.model.generate.longest_context", lambda model: n + 3)
    assert len(generate(model, tokenizer, ["One, two, three, four"], 12)[0]) == 3
    with pytest.raises(ValueError, match="context is exceeded"):
        generate(model, tokenizer, ["One, two, three, four, five, six, seven"], 12)


def test_end_tokens_come_from_model_and_tokenizer(embedded):
    model, tokenizer = embedded
    assert tokenizer.eos_token_id in _end_tokens(model, tokenizer)
    assert COMMON["eos_token_id"] == 2


def test_a_request_is_part_of_the_turn_and_not_of_the_input():
    tokenizer = load_tokenizer()
    use_reasoner_template(tokenizer)
    words, request = "  What is 2 + 3? ", "\n\nPut it into a box.  "
    whole = render_prompt(tokenizer, words + request, template_kwargs={"enable_thinking": True})
    split = render_prompt(tokenizer, words, request=request, template_kwargs={"enable_thinking": True})
    assert split.text == whole.text and "Put it into a box." in split.text
    assert split.text[slice(*split.span)].strip() == words.strip()
    plain = render_prompt(tokenizer, words, request=request, template=False)
    assert plain.text[slice(*plain.span)] == words and plain.text.endswith(request)
    with pytest.raises(ValueError, match="none is applied"):
        render_prompt(tokenizer, words, template=False, template_kwargs={"tools": [{"type": "function"}]})
    sample = build_sample(tokenizer, words, "5", request=request, evidence=[(words.index("2"), words.index("2") + 1)])
    inside = "".join(sample.tokens[slice(*sample.segments.prompt)])
    assert "2 + 3" in inside and "box" not in inside and int(sample.gold.sum()) == 1


def test_generation_is_greedy_whatever_the_config_asks_for(embedded):
    model, tokenizer = embedded
    texts = ["The code of the box is 4127. The code of the box is"]
    plain = generate(model, tokenizer, texts, 8)
    kept, other = model.generation_config, {"no_repeat_ngram_size": 1, "num_beams": 3, "min_new_tokens": 8}
    model.generation_config = GenerationConfig(eos_token_id=kept.eos_token_id, repetition_penalty=5.0, **other)
    try:
        asked = model.generation_config
        assert generate(model, tokenizer, texts, 8) == plain and model.generation_config is asked
    finally:
        model.generation_config = kept
