"""The gate is passed again where weights, adapters or modules have changed since."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from flashtrace_lib import IFR, FlashTrace
from flashtrace_lib.kernel import decomposition
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.kernel.decomposition import check_decomposition
from flashtrace_lib.methods import CAGE, AttnLRP, IGAttention, Rollout
from tests.oracles.tiny import tiny_model, tiny_sample

GATED = [FlashTrace(), IFR(), CAGE(), Rollout(), AttnLRP(), IGAttention()]


def scores(model, method=None):
    return (method or FlashTrace()).attribute(model, tiny_sample()).scores


def lora(*targets):
    return LoraConfig(target_modules=list(targets), r=4, init_lora_weights=False)


def test_an_adapter_added_later_is_seen():
    model = tiny_model("llama")
    check_decomposition(model)
    model.add_adapter(lora("o_proj"))
    for method in GATED:
        with pytest.raises(ValueError, match=r"adapter \(default\) stands beside o_proj of layer 0.* merge it first"):
            scores(model, method)


def test_adapters_that_are_off_or_merged_are_right():
    plain, wrapped = scores(tiny_model("llama")), get_peft_model(tiny_model("llama"), lora("o_proj", "v_proj"))
    with wrapped.disable_adapter():
        torch.testing.assert_close(scores(wrapped), plain)
    with pytest.raises(ValueError, match="merge it first"):
        scores(wrapped)
    wrapped.merge_adapter()
    merged = scores(wrapped)
    assert (merged - plain).abs().max() > 1e-3
    torch.testing.assert_close(scores(wrapped.merge_and_unload()), merged)


def test_the_adapter_that_is_set_decides():
    wrapped = get_peft_model(tiny_model("llama"), lora("o_proj"))
    wrapped.add_adapter("on_queries", lora("q_proj"))
    wrapped.set_adapter("on_queries")
    torch.manual_seed(0)
    found = scores(wrapped)
    wrapped.set_adapter("default")
    with pytest.raises(ValueError, match="merge it first"):
        scores(wrapped)
    wrapped.set_adapter("on_queries")
    torch.testing.assert_close(scores(wrapped), found)


def test_a_check_that_was_passed_is_not_repeated_until_something_changes(monkeypatch):
    model, passes = tiny_model("llama"), []
    monkeypatch.setattr(decomposition, "capture", lambda *args, **kwargs: passes.append(1) or capture(*args, **kwargs))
    check_decomposition(model)
    check_decomposition(model)
    assert len(passes) == 1
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.mul_(2)
    check_decomposition(model)
    assert len(passes) == 2
    model.model.layers[1].mlp = tiny_model("llama", seed=1).model.layers[1].mlp
    check_decomposition(model)
    assert len(passes) == 3


def test_weights_made_in_inference_mode_are_checked_every_time():
    with torch.inference_mode():
        model = tiny_model("llama")
    check_decomposition(model)
    with torch.inference_mode():
        model.model.layers[1].self_attn.register_forward_hook(lambda m, a, out: (out[0] * 0.5, out[1]))
    with pytest.raises(ValueError, match="do not add up"):
        check_decomposition(model)


def test_a_hook_added_later_is_seen():
    model = tiny_model("llama")
    scores(model)
    model.model.layers[0].self_attn.o_proj.register_forward_hook(lambda _, __, out: 3 * out)
    with pytest.raises(ValueError, match="do not add up"):
        scores(model)
