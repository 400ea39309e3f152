"""Gemma's ways: attention in both directions by a mask, norms without a weight, embeddings that are undone."""

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, Gemma3TextConfig

from flashtrace_lib import FlashTrace
from flashtrace_lib.methods import AttnLRP, IntegratedGradients
from tests.oracles.tiny import tiny_sample


def scores(model, method=None):
    return (method or FlashTrace()).attribute(model, tiny_sample()).scores


def test_a_decoder_that_looks_ahead_by_its_mask_is_refused():
    sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    for ahead in (False, True):
        config = Gemma3TextConfig(**sizes, **heads, use_bidirectional_attention=ahead)
        model = AutoModelForCausalLM.from_config(config).eval()
        if ahead:
            with pytest.raises(ValueError, match="attends in both directions"):
                scores(model)
        else:
            assert torch.isfinite(scores(model)).all()


def test_a_model_that_undoes_its_embeddings_is_refused_by_integrated_gradients():
    config = CONFIG_MAPPING["gemma4_text"](
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, global_head_dim=8, max_position_embeddings=64, vocab_size_per_layer_input=97,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    for method in (AttnLRP(), IntegratedGradients()):  # the first has no rule for the product with each layer's own
        with pytest.raises(ValueError, match="use another method"):
            scores(model, method)
    config.hidden_size_per_layer_input = 0
    model = AutoModelForCausalLM.from_config(config).eval()
    assert scores(model, AttnLRP()).abs().sum() == pytest.approx(1, abs=1e-4)  # whose norms have no weight
