"""Layers whose state is linear in their values, and gates: against loops and both of transformers' kernels."""

import threading

import pytest
import torch
from transformers.models.bamba import modeling_bamba as bamba
from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.qwen3_next import modeling_qwen3_next as qwen

from flashtrace_lib import FlashTrace
from flashtrace_lib.kernel import mixer_calls
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.kernel.decomposition import check_decomposition, decomposition_gaps
from flashtrace_lib.kernel.fused_attention import attention_used
from flashtrace_lib.kernel.proximity import span_scores
from flashtrace_lib.methods import AT2, AttnLRP, IGAttention
from scripts import model_table as table
from tests.oracles.naive_mixers import by_source, convolution
from tests.oracles.tiny_families import tiny_random_model

N, HEADS, WIDTH, STATE = 150, 4, 5, 6  # more than two chunks of any kernel


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def delta_call(groups, *decay):
    """β up to 1.9: the state's eigenvalues may be negative. KDA has decay by channel, and no groups of heads."""
    q, k, g = normal(1, N, groups, STATE), normal(1, N, groups, STATE) + 0.3, -normal(1, N, *decay).abs() * 0.2
    beta = normal(1, N, HEADS).sigmoid() * 1.9
    how = dict(use_qk_l2norm_in_kernel=True, initial_state=None, output_final_state=False)
    return dict(query=q, key=k, g=g, beta=beta, **how)


SCAN = dict(dt=normal(1, N, HEADS), A=-normal(HEADS).exp(), B=normal(1, N, 2, STATE), C=normal(1, N, 2, STATE))
SCAN |= dict(D=normal(HEADS), dt_bias=normal(HEADS), dt_softplus=True, dt_limit=(0.0, float("inf")), chunk_size=64)


def state_updates(hidden_states, dt, A, B, C, D, dt_bias, **_):
    """Mamba-2 token by token, as its kernel for generation has it."""
    state, a = torch.zeros(1, HEADS, WIDTH, STATE), A[:, None, None].expand(-1, WIDTH, STATE)
    d, bias = (x[:, None].expand(-1, WIDTH) for x in (D, dt_bias))
    steps = zip(*(x.unbind(1) for x in (hidden_states, dt[..., None].expand(-1, -1, -1, WIDTH), B, C)), strict=True)
    update = bamba.mamba2_selective_state_update
    return torch.stack([update(state, x, t, a, b, c, d, dt_bias=bias, dt_softplus=True) for x, t, b, c in steps], 1)


@pytest.mark.parametrize(("name", "call", "kernels"), [
    ("torch_chunk_gated_delta_rule", delta_call(2, HEADS), [qwen.torch_recurrent_gated_delta_rule]),
    ("chunk_kimi_delta_attention", delta_call(HEADS, HEADS, STATE), [kimi.recurrent_kimi_delta_attention]),
    ("mamba2_chunk_scan", SCAN, [state_updates]),
])  # fmt: skip
def test_contributions_equal_loops_over_sources_and_add_up_to_both_kernels(name, call, kernels):
    argument, start = ("hidden_states", 0) if call is SCAN else ("value", 7)  # where the values are among the channels
    inputs, channels = normal(1, HEADS * WIDTH + 7, N), slice(start, start + HEADS * WIDTH)
    through = dict(hidden_states=inputs, weight=normal(27, 4), bias=normal(27), activation="silu")
    call = call | {argument: convolution(through).sum(0)[None, :, channels].unflatten(2, (HEADS, WIDTH)).float()}
    chunked = next(getattr(file, name) for file in (qwen, kimi, bamba) if hasattr(file, name))
    outs = [kernel(**call) for kernel in (chunked, *kernels)]
    outs = [out[0] if isinstance(out, tuple) else out for out in outs]  # [1, N, H, c] each
    linear, q, k, p, _ = mixer_calls.read_calls({"causal_conv1d_fn": [through], name: [call | {"out": outs[0]}]})
    rows = slice(60, 145)  # begin within a chunk and end before the last token
    one_each = torch.eye(N)[rows, None, rows, None].expand(-1, HEADS, -1, WIDTH)
    found = linear.contributions(q[:, rows], k, p, one_each, 60)  # [B, H, J, c]
    expected = by_source({"causal_conv1d_fn": (through, None), name: (call, None)})[:, rows]  # [J, B, H, c]
    torch.testing.assert_close(found.permute(2, 0, 1, 3), expected.float(), atol=2e-5, rtol=1e-4)
    for out in outs:
        torch.testing.assert_close(found.sum(2), out[0, rows], atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "family", ["qwen3_next", "kimi_linear", "olmo_hybrid", "falcon_h1", "nemotron_h", "lfm3", "step3p7", "bitnet"]
)
def test_hybrids_and_gates_are_right_in_both_precisions(family):
    assert table.verdict(family).kind == table.RIGHT
    ids = torch.randint(3, 90, (100,), generator=torch.Generator().manual_seed(1))
    assert max(decomposition_gaps(tiny_random_model(family), ids)) < 1e-5
    check_decomposition(tiny_random_model(family).to(torch.bfloat16))


def test_a_span_of_many_is_what_it_is_alone(monkeypatch):
    model, target = tiny_random_model("qwen3_5_text"), (20, 40)
    activations = capture(model, table.tiny_sample().input_ids, target)
    together = span_scores(activations, torch.eye(20), target)
    monkeypatch.setattr("flashtrace_lib.kernel.proximity.BLOCK_BYTES", 1)
    torch.testing.assert_close(span_scores(activations, torch.eye(20), target), together)
    alone = span_scores(activations, torch.ones(1, 1), (39, 40))
    torch.testing.assert_close(alone[0], together[-1], atol=1e-6, rtol=1e-4)
    assert together[0, 21:].abs().max() == 0 and (together.sum(-1) - 1).abs().max() < 1e-5  # causal, distributions
    assert attention_used(activations) == {"used": "recompute"}


@pytest.mark.parametrize("method", [AttnLRP(), IGAttention(), AT2(weights="uniform")], ids=lambda m: m.name)
@pytest.mark.parametrize("family", ["falcon_h1", "afmoe"])
def test_methods_on_attention_weights_refuse_layers_that_have_others(family, method):
    with pytest.raises(ValueError, match="needs softmax attention without a gate"):
        method.attribute(tiny_random_model(family), table.tiny_sample())


# --- misreadings ----------------------------------------------------------------------------------------------


def centred(model, patch):
    """A norm that is none: what it takes off a value depends on the other values."""
    norm = model.model.layers[0].mamba.norm
    patch.setattr(norm, "forward", lambda x, gate, right=norm.forward: right(x - x.mean(-1, keepdim=True), gate))


def without_norm(model, patch):
    right = mixer_calls._delta_rule
    patch.setattr(mixer_calls, "_delta_rule", lambda **call: right(**call | {"use_qk_l2norm_in_kernel": False}))


@pytest.mark.parametrize(("family", "change", "message"), [
    ("bamba", centred, "layer 0 does more to its mixed values than a gate or an RMSNorm"),
    ("jamba", None, "layer 0 does more to its mixed values than a gate or an RMSNorm"),
    ("qwen3_next", without_norm, "contributions do not add up"),
    ("minimax", None, "layer 1 did not call the attention interface, nor a recurrence"),
])  # fmt: skip
def test_what_is_read_wrongly_is_refused(family, change, message, monkeypatch):
    model = tiny_random_model(family)
    if change is not None:
        change(model, monkeypatch)
    with pytest.raises(ValueError, match=message):
        FlashTrace().attribute(model, table.tiny_sample())


def test_a_pass_in_another_thread_is_not_listened_to():
    model, other, ids = tiny_random_model("qwen3_next"), tiny_random_model("qwen3_next", 1), torch.arange(3, 40)
    alone = capture(model, ids, (0, 37)).layers[0].v
    handle = model.model.layers[0].linear_attn.register_forward_pre_hook(
        lambda *_: (run := threading.Thread(target=other, args=(ids[None],))).start() or run.join()
    )
    torch.testing.assert_close(capture(model, ids, (0, 37)).layers[0].v, alone)
    handle.remove()
