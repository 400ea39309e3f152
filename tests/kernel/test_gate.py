"""What is let in and what is refused: layers, attention calls, logits, the identity, adapters, weights, contexts."""

import dataclasses

import pytest
import torch
from torch import nn
from transformers import AttentionInterface, GraniteConfig, GraniteForCausalLM

from flashtrace_lib import IFR, FlashTrace, Sample, Segments
from flashtrace_lib.kernel import attention as kernel
from flashtrace_lib.kernel.attention import attention_in_blocks, attention_maps, attention_rows, check_call, mix
from flashtrace_lib.kernel.decomposition import check_decomposition, decomposition_gaps
from flashtrace_lib.kernel.interception import IMPLEMENTATION
from flashtrace_lib.methods import CAGE, GIM, AttnLRP, IGAttention, IntegratedGradients, Perturbation, Rollout
from flashtrace_lib.model import architecture
from flashtrace_lib.model.context import longest_context
from tests.oracles.tiny import tiny_model, tiny_sample
from tests.oracles.tiny_families import tiny_random_model

GATED = [FlashTrace(), IFR(), CAGE(), Rollout(), AttnLRP(), GIM(), IGAttention()]


def scores(model, method=None):
    return (method or FlashTrace()).attribute(model, tiny_sample()).scores


# --- attention calls ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyword", ["position_bias", "what_comes_next", "block_indices"])
def test_the_attention_function_swallows_no_keyword(keyword):
    q = torch.randn(1, 2, 5, 4)
    with pytest.raises(ValueError, match=f"passes '{keyword}' to its attention"):
        AttentionInterface()[IMPLEMENTATION](nn.Module(), q, q, q, None, scaling=0.5, **{keyword: torch.ones(1)})


@pytest.mark.parametrize(("mask", "message"), [
    (torch.zeros(1, 1, 3, 3), "attention mask of torch.float32"),
    (torch.ones(1, 3, 3, 3, dtype=torch.bool), "for all heads or for each"),
])  # fmt: skip
def test_masks_of_another_kind_are_refused(mask, message):
    with pytest.raises(ValueError, match=message):
        check_call(nn.Module(), torch.zeros(1, 2, 3, 4), mask, {})


def test_attention_in_both_directions_is_refused():
    with pytest.raises(ValueError, match="attends in both directions"):
        check_call(nn.Module(), torch.zeros(1, 2, 3, 4), None, {"is_causal": False})


def test_chosen_keys_are_those_that_the_indices_name():
    indices = torch.tensor([[[[0], [0], [1], [-1]], [[-1], [0], [0], [1]]]])  # [B, G, m, k], blocks of two keys
    found = kernel.chosen_keys(None, indices, 4, block=2)[0].tolist()  # [G, m, n]
    for group, rows in zip(found, indices[0].tolist(), strict=True):
        assert group == [[j <= i and j // 2 in row for j in range(4)] for i, row in enumerate(rows)]


# --- layers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", GATED, ids=lambda m: m.name)
def test_a_stack_with_layers_of_another_kind_is_refused(method):
    with pytest.raises(ValueError, match=r"layers \[.*have no self_attn.o_proj"):
        scores(tiny_random_model("zamba2"), method)


def test_a_layer_whose_attention_has_another_name_is_missed():
    model = tiny_model("llama")
    layer = model.model.layers[1]
    layer.blend = layer.self_attn
    del layer.self_attn
    with pytest.raises(ValueError, match=r"'llama': layers \[1\] of 3 \(LlamaDecoderLayer\)"):
        check_decomposition(model)


def test_a_configuration_that_counts_other_layers_is_refused():
    model = tiny_model("llama")
    model.config.num_hidden_layers = 4
    with pytest.raises(ValueError, match="3 decoder layers were located, but its configuration counts 4"):
        check_decomposition(model)


def test_a_layer_that_runs_twice_is_refused():
    model = tiny_model("llama")
    layers = model.model.layers
    layers[2].self_attn.forward = layers[1].self_attn.forward
    with pytest.raises(ValueError, match="layer 1 attends more than once"):
        check_decomposition(model)


# --- logits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_forward_pass_that_depends_on_the_name_of_the_attention_is_refused(dtype):
    """The identity holds in such a pass: it is another model's."""
    model = tiny_model("llama", dtype)

    def weaken(module, args, kwargs):
        factor = 0.5 if module.self_attn.config._attn_implementation == IMPLEMENTATION else 1.0
        return (args[0] * factor, *args[1:]), kwargs

    model.model.layers[1].register_forward_pre_hook(weaken, with_kwargs=True)
    assert max(decomposition_gaps(model, torch.arange(3, 27))) < 1e-4
    with pytest.raises(ValueError, match="with captured attention its logits are not those of an ordinary pass"):
        check_decomposition(model)


@pytest.mark.parametrize("method", [AttnLRP(), IGAttention(), IntegratedGradients()], ids=lambda m: m.name)
def test_gradients_through_embeddings_that_are_not_all_the_model_reads_are_refused(method):
    """A model that looks at the tokens themselves reads something else when it is handed embeddings."""
    model, forward = tiny_model("llama"), nn.Embedding.forward
    by_hand = {}

    def embed(self, ids):
        by_hand["embedding"] = self
        return forward(self, ids)

    model.model.embed_tokens.forward = embed.__get__(model.model.embed_tokens)

    def from_tokens(module, args, kwargs):
        if kwargs.get("input_ids") is not None:
            kwargs = {**kwargs, "inputs_embeds": 2 * module.embed_tokens(kwargs["input_ids"]), "input_ids": None}
        return args, kwargs

    model.model.register_forward_pre_hook(from_tokens, with_kwargs=True)
    with pytest.raises(ValueError, match=f"under {method.name}.* its logits are not those of an ordinary pass"):
        scores(model, method)


# --- the identity ---------------------------------------------------------------------------------------------


def granite(dtype=torch.float32):
    """Granite with the published multipliers and its own initialisation: attention adds little to a large state."""
    torch.manual_seed(0)
    config = GraniteConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.0078125,
        logits_scaling=16.0,
    )  # fmt: skip
    return GraniteForCausalLM(config).eval().to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_missing_residual_multiplier_is_seen_in_every_dtype(dtype, monkeypatch):
    check_decomposition(granite(dtype))
    parts = architecture._parts
    monkeypatch.setattr(architecture, "_parts", lambda *args: dataclasses.replace(parts(*args), multiplier=1.0))
    with pytest.raises(ValueError, match="do not add up"):
        check_decomposition(granite(dtype))


def test_attnlrp_reads_the_logits_that_granite_scales():
    att, sample = AttnLRP().attribute(granite(), tiny_sample()), tiny_sample()
    start, stop = sample.segments.output
    with torch.no_grad():
        logits = granite()(sample.input_ids[None]).logits[0, start - 1 : stop - 1]
    expected = logits.gather(-1, sample.input_ids[start:stop, None]).sum()
    assert att.metadata["logit"] == pytest.approx(float(expected), rel=1e-4)


def test_sinks_take_mass_and_have_no_value():
    """softmax over [scores, sink] with a value of zero behind it, written out."""
    torch.manual_seed(0)
    q, k, v, sinks = torch.randn(2, 5, 4), torch.randn(1, 5, 4), torch.randn(1, 5, 3), torch.tensor([0.7, -1.0])
    exponents = (q @ k[0].T * 0.5).exp().tril()  # [H, N, N]
    expected = exponents / (exponents.sum(-1, keepdim=True) + sinks.exp()[:, None, None])
    torch.testing.assert_close(attention_rows(q, k, 0, scaling=0.5, sinks=sinks), expected)
    torch.testing.assert_close(attention_maps(q[None], k[None], None, 0.5, sinks=sinks)[0], expected)
    out = attention_in_blocks(q[None], k[None], v[None], None, 0.5, sinks=sinks)
    torch.testing.assert_close(out[0].transpose(0, 1), expected @ v[0])
    torch.testing.assert_close(out, mix(expected[None], v[None]))


def test_relevance_is_conserved_where_heads_have_sinks():
    """Under CP-LRP a sink, which has no value, gets no relevance: without biases the sum is the logit."""
    model = tiny_random_model("granite_swa")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    att = AttnLRP(rule="cp_lrp").attribute(model, tiny_sample())
    assert att.metadata["relevance"] == pytest.approx(att.metadata["logit"], rel=1e-3)


# --- output projections that cannot be read -------------------------------------------------------------------


class Packed(nn.Module):
    """A quantised layer as its libraries lay it out: no weight, or one of integers."""

    def __init__(self, linear, weight=None):
        super().__init__()
        self.linear = [linear]  # hidden from the module tree
        self.in_features, self.bias = linear.in_features, None
        if weight is not None:
            self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x):
        return self.linear[0](x)


class Quantised(torch.Tensor):
    """A weight that multiplies, and has no transpose."""


@pytest.mark.parametrize(
    ("weight", "held"), [(None, "no weight of its own"),
    (torch.zeros(512, 1, dtype=torch.uint8), r".*torch.uint8, shape \[512, 1\]"),
    (torch.zeros(32, 32, dtype=torch.int8), ".*torch.int8"),
    (torch.zeros(32, 32, dtype=torch.float8_e4m3fn), ".*torch.float8_e4m3fn"),
    (torch.zeros(32, 32).as_subclass(Quantised), "a Quantised"), ],
    ids=["gptq", "bitsandbytes-4bit", "int8", "fp8", "subclass"],
)  # fmt: skip
def test_a_packed_output_projection_is_refused(weight, held):
    model = tiny_model("llama")
    attention = model.model.layers[2].self_attn
    attention.o_proj = Packed(attention.o_proj, weight)
    with pytest.raises(ValueError, match=f"W_O of layer 2 cannot be read in 'llama': Packed holds {held}"):
        scores(model)
    torch.testing.assert_close(scores(model, Perturbation()), scores(tiny_model("llama"), Perturbation()))


@pytest.mark.parametrize(("family", "message"), [
    ("mpt", "no module that reads the state after attention alone"), ("qwen4_exp_text", "not one state for each"),
    ("doge", "attention mask of torch.float32"), ("moshi", "W_O of layer 0 cannot be read"),
])  # fmt: skip
def test_families_that_fit_no_form_are_refused(family, message):
    with pytest.raises(ValueError, match=message):
        check_decomposition(tiny_random_model(family))


# --- latent attention -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["deepseek_v2", "deepseek_v3"])
def test_latent_attention_works_in_every_method_on_contributions(family):
    """Its heads have values of another width than keys, and no `head_dim`."""
    model, sample = tiny_random_model(family), tiny_sample()
    one, span = FlashTrace().attribute(model, sample), sample.segments.output
    torch.testing.assert_close(FlashTrace().attribute_many(model, sample, [span])[0].scores, one.scores)
    for method in (CAGE(), Rollout()):
        assert scores(model, method).sum() == pytest.approx(1, abs=1e-4)


# --- contexts -------------------------------------------------------------------------------------------------


def sample_of(ids):
    return Sample(torch.tensor(ids), Segments((1, 4), (4, 6), (6, 8)), mask_token_id=0)


@pytest.mark.parametrize("method", [FlashTrace(), AttnLRP(), IFR()], ids=lambda m: m.name)
@pytest.mark.parametrize(("ids", "message"), [
    ([5, 6, 7, 97, 9, 10, 11, 12], "token id 97 is outside the model's vocabulary of 97"),
    ([5, 6, 7, -1, 9, 10, 11, 12], "token id -1 is outside"),
    ([0, 0, 7, 8, 9, 10, 11, 12], "begins with 2 padding tokens"),
    ([0, 6, 7, 8, 9, 10, 11, 12], "begins with 1 padding tokens"),
    ([5] * 300, "has 300 tokens, the model reads 256 at most"),
])  # fmt: skip
def test_contexts_that_the_model_cannot_read_are_refused(ids, message, method):
    model, sample = tiny_model("llama"), sample_of(ids)
    with pytest.raises(ValueError, match=message):
        method.attribute(model, sample)
    if isinstance(method, FlashTrace):
        with pytest.raises(ValueError, match=message):
            method.attribute_many(model, sample, [(6, 8)])


def test_one_padding_token_that_begins_every_text_is_none():
    model = tiny_model("llama")
    model.config.bos_token_id = model.config.pad_token_id
    assert FlashTrace().attribute(model, sample_of([0, 6, 7, 8, 9, 10, 11, 12])).scores.sum() > 0


@pytest.mark.parametrize(("rope", "longest"), [
    ({"rope_type": "default", "rope_theta": 1e4}, 256),
    ({"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 256}, 1024),
    ({"full_attention": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}, 512),
])  # fmt: skip
def test_positions_that_rotary_scaling_adds_count(rope, longest):
    model = tiny_model("llama")
    model.config.rope_parameters = rope
    assert longest_context(model) == longest
