"""Who answers a model's attention: one at a time, and nobody afterwards."""

import pytest
import torch

from flashtrace_lib.kernel import interception
from flashtrace_lib.kernel.attention import attend
from flashtrace_lib.kernel.interception import IMPLEMENTATION, answering
from flashtrace_lib.methods.lrp_rules import lrp_rules
from tests.oracles.tiny import tiny_model, tiny_sample


def test_every_attention_of_the_model_is_answered_and_no_other_models():
    model, other, ids = tiny_model(), tiny_model(seed=1), tiny_sample().input_ids[None]
    asked = []

    def answer(module, query, key, value, mask, **how):
        asked.append(module)
        return attend(module, query, key, value, mask, **how)

    with torch.no_grad():
        plain, plain_other = model(ids).logits, other(ids).logits
        with answering(model, answer):
            assert torch.equal(model(ids).logits, plain) and torch.equal(other(ids).logits, plain_other)
    assert asked == [layer.self_attn for layer in model.model.layers]


def test_all_is_as_it_was_after_an_error():
    model, ids = tiny_model(), tiny_sample().input_ids[None]

    def fail(*args, **how):
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"), answering(model, fail):
        assert model.config._attn_implementation == IMPLEMENTATION
        model(ids)
    assert model.config._attn_implementation == "sdpa" and not len(interception._ANSWERS)
    model(ids)


def test_two_cannot_answer_for_one_model():
    model = tiny_model()
    with lrp_rules(model):
        with pytest.raises(ValueError, match="another method is attributing in this model"), lrp_rules(model):
            pass
        assert len(interception._ANSWERS)  # the first one goes on
    assert not len(interception._ANSWERS) and model.config._attn_implementation == "sdpa"
