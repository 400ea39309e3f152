"""Layers whose state is linear in their values, and gates: against loops, both of transformers' kernels, and misreadings."""

import threading

import pytest
import torch
from torch import nn
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

N, HEADS, KEYS, WIDTH, STATE = 150, 4, 2, 5, 6  # more than two chunks of any kernel


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def delta_call(*decay):
    q, k = normal(1, N, KEYS, STATE), normal(1, N, KEYS, STATE) + 0.3
    g = -normal(1, N, *decay).abs() * 0.2
    beta = normal(1, N, decay[0]).sigmoid() * 1.9  # above 1: the state's eigenvalues may be negative
    return dict(query=q, key=k, value=None, g=g, beta=beta, initial_state=None, output_final_state=False,
                use_qk_l2norm_in_kernel=True)  # fmt: skip


def heads_alike(call):
    """KDA has no groups of heads."""
    return call | {name: call[name].repeat_interleave(HEADS // KEYS, 2) for name in ("query", "key")}


def scan(hidden_states, recurrent, **call):
    """Mamba-2's two kernels: chunks, or a state that is updated token by token."""
    call = {"hidden_states": hidden_states, **call}
    if not recurrent:
        return bamba.mamba2_chunk_scan(**call)
    state, out = torch.zeros(1, HEADS, WIDTH, STATE), []
    for t in range(N):
        wide = {name: call[name][:, None].expand(-1, WIDTH) for name in ("D", "dt_bias")}
        dt, a = call["dt"][0, t][None, :, None].expand(-1, -1, WIDTH), call["A"][:, None, None]
        out.append(bamba.mamba2_selective_state_update(
            state, hidden_states[:, t], dt, a.expand(-1, WIDTH, STATE), call["B"][:, t], call["C"][:, t],
            dt_softplus=True, **wide,
        ))  # fmt: skip
    return torch.stack(out, 1)


SCAN = dict(
    hidden_states=None, dt=normal(1, N, HEADS), A=-normal(HEADS).exp(), B=normal(1, N, KEYS, STATE),
    C=normal(1, N, KEYS, STATE), chunk_size=64, D=normal(HEADS), dt_bias=normal(HEADS), dt_softplus=True,
    dt_limit=(0.0, float("inf")),
)  # fmt: skip
KINDS = {
    "torch_chunk_gated_delta_rule": (
        "value", delta_call(HEADS), qwen.torch_chunk_gated_delta_rule, qwen.torch_recurrent_gated_delta_rule,
    ),
    "chunk_kimi_delta_attention": (
        "value", heads_alike(delta_call(HEADS, STATE)), kimi.chunk_kimi_delta_attention,
        kimi.recurrent_kimi_delta_attention,
    ),
    "mamba2_chunk_scan": (
        "hidden_states", SCAN, lambda **call: scan(recurrent=False, **call), lambda **call: scan(recurrent=True, **call),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_contributions_equal_loops_over_sources_and_add_up_to_both_kernels(name):
    argument, call, chunked, recurrent = KINDS[name]
    start = 0 if name == "mamba2_chunk_scan" else 7  # other channels of the convolution, before the values or behind
    inputs, channels = normal(1, HEADS * WIDTH + 7, N), slice(start, start + HEADS * WIDTH)
    through = dict(hidden_states=inputs, weight=normal(inputs.shape[1], 4), bias=normal(inputs.shape[1]),
                   activation="silu")  # fmt: skip
    value = convolution(through).sum(0)[None, :, channels].unflatten(2, (HEADS, WIDTH)).float()
    outs = [kernel(**call | {argument: value}) for kernel in (chunked, recurrent)]
    outs = [out[0] if isinstance(out, tuple) else out for out in outs]
    call = call | {argument: value}
    linear, q, k, p, _ = mixer_calls.read_calls({"causal_conv1d_fn": [through], name: [call | {"out": outs[0]}]})
    first, spans = 60, torch.eye(N)[60:145]  # rows that begin within a chunk and end before the last token
    found = linear.contributions(q[:, first:145], k, p, spans[:, None, first:145, None].expand(-1, HEADS, -1, WIDTH), first)
    expected = by_source({"causal_conv1d_fn": (through, None), name: (call, None)})[:, first:145]  # [J, m, H, c]
    torch.testing.assert_close(found.permute(2, 0, 1, 3), expected.float(), atol=2e-5, rtol=1e-4)
    for out in outs:
        torch.testing.assert_close(found.sum(2), out[0, first:145], atol=5e-5, rtol=1e-4)


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


class Centred(nn.Module):
    """A norm that is none: what it takes off a value depends on the other values."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x, gate):
        return self.norm(x - x.mean(-1, keepdim=True), gate)


def centred(model, _):
    mixer = model.model.layers[0].mamba
    mixer.norm = Centred(mixer.norm)


def without_norm(model, patch):
    right = mixer_calls._delta_rule
    patch.setattr(mixer_calls, "_delta_rule", lambda **call: right(**call | {"use_qk_l2norm_in_kernel": False}))


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("bamba", centred, "layer 0 does more to its mixed values than a gate or an RMSNorm"),
        ("jamba", None, "layer 0 does more to its mixed values than a gate or an RMSNorm"),  # a recurrence of its own
        ("qwen3_next", without_norm, "contributions do not add up"),
        ("minimax", None, "layer 1 did not call the attention interface, nor a recurrence"),
        ("zamba2", None, r"layers \[3\] of 4 \(Zamba2HybridLayer\) have no self_attn.o_proj"),
    ],
)
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
