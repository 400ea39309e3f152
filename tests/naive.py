"""The obviously right version: loops over layers, heads, sources and targets, in float64, from eager attention.

Shares no code with the library: attention maps come from ``output_attentions`` of the eager implementation, values
from the projection applied to the hooked norm output, x_mid from the residual addition done by hand.
"""

from __future__ import annotations

import copy

import torch


def _states(model, input_ids):
    """Per layer: x_in, values, attention maps, post-norm scale vectors, in float64."""
    model = copy.deepcopy(model).to(torch.float64)
    model.set_attn_implementation("eager")
    layers, kept, handles = model.model.layers, [], []
    for layer in layers:
        record = {}
        kept.append(record)

        def keep(name, record=record):
            return lambda module, args, kwargs, out: record.__setitem__(name, (args, kwargs, out))

        handles.append(layer.register_forward_hook(keep("layer"), with_kwargs=True))
        handles.append(layer.self_attn.v_proj.register_forward_hook(keep("v"), with_kwargs=True))
        handles.append(layer.self_attn.o_proj.register_forward_hook(keep("o"), with_kwargs=True))
        post = hasattr(layer, "pre_feedforward_layernorm") or not hasattr(layer, "input_layernorm")
        if post:
            handles.append(layer.post_attention_layernorm.register_forward_hook(keep("norm"), with_kwargs=True))
    with torch.no_grad():
        out = model(input_ids[None], output_attentions=True, use_cache=False)
    for handle in handles:
        handle.remove()
    states = []
    for layer, record, maps in zip(layers, kept, out.attentions, strict=True):
        args, kwargs, _ = record["layer"]
        x_in = (args[0] if args else kwargs["hidden_states"])[0]
        o = record["o"][2][0]
        normed = record["norm"][2][0] if "norm" in record else o
        # the norm is x * s element-wise with s fixed by the forward pass (appendix A.1)
        scale = normed / o  # [N, d]
        states.append(
            dict(
                x_in=x_in,
                x_mid=x_in + normed,
                v=record["v"][2][0].view(len(input_ids), -1, layer.self_attn.head_dim),  # [N, H_kv, head_dim]
                maps=maps[0],  # [H, N, N]
                w_o=layer.self_attn.o_proj.weight.detach(),  # [d, H * head_dim]
                b_o=layer.self_attn.o_proj.bias,
                scale=scale,
            )
        )
    return states


def _prox(z, y):
    return max(0.0, float(y.abs().sum() - (y - z).abs().sum()))


def naive_span(model, input_ids, rows, weights, heads="per_head"):
    """Distribution over the context for the weighted span, shape [N] float64."""
    total = torch.zeros(len(input_ids), dtype=torch.float64)
    for state in _states(model, input_ids):
        n_heads, n_kv = state["maps"].shape[0], state["v"].shape[1]
        dim = state["v"].shape[2]
        y = sum(w * state["x_mid"][i] for i, w in zip(rows, weights, strict=True))
        residual = sum(w * state["x_in"][i] for i, w in zip(rows, weights, strict=True))
        e = torch.zeros(len(input_ids), dtype=torch.float64)
        for j in range(len(input_ids)):
            parts = []
            for h in range(n_heads):
                f = state["w_o"][:, h * dim : (h + 1) * dim] @ state["v"][j, h // (n_heads // n_kv)]  # [d]
                z = torch.zeros_like(y)
                for i, w in zip(rows, weights, strict=True):
                    z = z + w * state["maps"][h, i, j] * f * state["scale"][i]
                parts.append(z)
            e[j] = sum(_prox(z, y) for z in parts) if heads == "per_head" else _prox(sum(parts), y)
        total += e / (e.sum() + _prox(residual, y))
    return total / total.sum()


def naive_flashtrace(
    model,
    sample,
    hops=1,
    heads="per_head",
    target_state="token",
    recursion="reasoning",
    skip_tokens=(),
    granularity="token",
    aggregation="sum",
):
    """Algorithm 1 spelled out; returns (final [|I|], list of hop distributions, flow)."""
    ids, seg = sample.input_ids, sample.segments
    keep = torch.tensor([0.0 if int(t) in skip_tokens else 1.0 for t in ids], dtype=torch.float64)

    def span(start, stop, weights):
        positions = [i - (target_state == "predictor") for i in range(start, stop)]
        weights = [float(w * keep[i]) for w, i in zip(weights, range(start, stop), strict=True)]
        if aggregation == "mean":
            scores = sum(
                w * naive_span(model, ids, [p], [1.0], heads) for w, p in zip(weights, positions, strict=True)
            ) / sum(weights)
        else:
            scores = naive_span(model, ids, positions, weights, heads)
        scores = scores * keep
        if granularity == "sentence":
            for a, b in sample.sentences:
                scores[a:b] = scores[a:b].mean()
        return scores / scores.sum()

    start, stop = seg.output
    if aggregation == "last":
        start = stop - 1
    done = [span(start, stop, [1.0] * (stop - start))]
    if seg.reasoning[0] < seg.reasoning[1]:
        start, stop = seg.reasoning if recursion == "reasoning" else (seg.reasoning[0], seg.output[1])
        for _ in range(hops):
            done.append(span(start, stop, done[-1][start:stop]))
    flow = [float(d[seg.reasoning[0] : seg.reasoning[1]].sum()) for d in done]
    final, carried = torch.zeros(seg.prompt[1] - seg.prompt[0], dtype=torch.float64), 1.0
    for scores, rho in zip(done, flow, strict=True):
        final = final + carried * scores[seg.prompt[0] : seg.prompt[1]]
        carried *= rho
    return final, done, flow
