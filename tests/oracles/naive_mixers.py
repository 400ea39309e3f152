"""What each source position hands to every row, one source at a time: the functions that mix positions, in loops.

Each takes the arguments of the function of the same name in transformers, in float64, and returns [J, N, H, c]: row i's
mixed values where only what stands at source j is not zero. The sum over J is the function's own result.
"""

import torch
from torch.nn.functional import conv1d, softplus
from transformers.activations import ACT2FN


def softmax(value, maps, out):
    """Attention [1, N, H, c] from maps [1, H, N, N] that a sink may have left unscaled, and values [1, H_kv, N, c]."""
    value = value[0].repeat_interleave(maps.shape[1] // value.shape[1], 0)  # [H, N, c]
    mixed = torch.einsum("hij,hjc->jihc", maps[0], value)
    total = mixed.sum(0)
    return mixed * ((out[0] * total).sum(-1) / total.square().sum(-1))[None, :, :, None]


def convolution(call):
    """Short convolution over [1, C, N] with everything behind it frozen; a bias belongs to its own position."""
    x, weight, bias = call["hidden_states"][0].double(), call["weight"].double(), call.get("bias")
    channels, n = x.shape
    alone = torch.diag_embed(x).permute(1, 0, 2)  # [J, C, N]: the input at j, zero elsewhere
    out = conv1d(alone, weight[:, None], padding=weight.shape[1] - 1, groups=channels)[..., :n]
    if bias is not None:
        out = out + torch.einsum("jt,c->jct", torch.eye(n, dtype=torch.float64), bias.double())
    if call.get("activation"):
        total = out.sum(0)
        out = out * (ACT2FN[call["activation"]](total) / total).nan_to_num()
    return out.permute(0, 2, 1)  # [J, N, C]


def delta_rule(call, values):
    """S_t = γ_t S + β_t k_t (v_t − k_t γ_t S), o_t = q_t S, for values [J, N, H, c]."""
    q, k, g, beta = (call[name][0].double() for name in ("query", "key", "g", "beta"))
    if call.get("use_qk_l2norm_in_kernel"):
        q, k = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    q, k = (x.repeat_interleave(values.shape[2] // x.shape[1], 1) for x in (q / q.shape[-1] ** 0.5, k))
    state, out = 0, []
    for t in range(len(q)):
        decayed = state * g[t].exp().view(len(beta[t]), -1, 1)
        held = (decayed * k[t][..., None]).sum(-2) if t else 0  # [J, H, c]
        state = decayed + k[t][..., None] * (beta[t][:, None] * (values[:, t] - held))[..., None, :]
        out.append((q[t][..., None] * state).sum(-2))
    return torch.stack(out, 1)


def state_space(call, values):
    """S_t = exp(A Δ_t) S + Δ_t B_t x_t, o_t = C_t S + D x_t, for values [J, N, H, p]."""
    dt = softplus(call["dt"][0].double() + call["dt_bias"].double()).clamp(*call["dt_limit"])  # [N, H]
    b, c = (call[name][0].double().repeat_interleave(values.shape[2] // call[name].shape[2], 1) for name in "BC")
    state, out = 0, []
    for t in range(len(dt)):
        entering = dt[t][:, None, None] * b[t][..., None] * values[:, t, :, None]  # [J, H, n, p]
        state = state * (call["A"].double() * dt[t]).exp()[:, None, None] + entering
        out.append((c[t][..., None] * state).sum(-2) + call["D"].double()[:, None] * values[:, t])
    return torch.stack(out, 1)


RECURRENCES = {
    "torch_chunk_gated_delta_rule": ("value", delta_rule), "chunk_kimi_delta_attention": ("value", delta_rule),
    "mamba2_chunk_scan": ("hidden_states", state_space),
}  # fmt: skip
FUNCTIONS = (*RECURRENCES, "eager_attention_forward", "causal_conv1d_fn")  # the first that is called, mixes last


def by_source(calls):
    """Of one module's calls {name: (arguments, output)}, what reaches W_O but for the gate, [J, N, H, c]."""
    if "eager_attention_forward" in calls:
        call, (out, maps) = calls["eager_attention_forward"]
        return softmax(call["value"], maps, out)
    values = convolution(calls["causal_conv1d_fn"][0])  # [J, N, C]
    for name in RECURRENCES.keys() & calls.keys():
        call, (argument, recurrence) = calls[name][0], RECURRENCES[name]
        value = call[argument][0].double()  # [N, H, c]
        flat = value.flatten(1)
        starts = range(0, values.shape[2] - flat.shape[1] + 1)
        at = [s for s in starts if torch.allclose(values.sum(0)[:, s : s + flat.shape[1]], flat, rtol=1e-6, atol=1e-9)]
        return recurrence(call, values[:, :, at[0] : at[0] + flat.shape[1]].unflatten(2, value.shape[1:]))
    return values[:, :, None]
