"""The obviously right version: loops over layers, heads, sources and targets, in float64, from eager attention.

Shares no code with the library: attention maps come from ``output_attentions`` of the eager implementation, values
from the projection applied to the hooked norm output, x_mid from the residual addition done by hand.
"""

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
        if hasattr(layer, "pre_feedforward_layernorm") or not hasattr(layer, "input_layernorm"):
            handles.append(layer.post_attention_layernorm.register_forward_hook(keep("norm"), with_kwargs=True))
    with torch.no_grad():
        out = model(input_ids[None], output_attentions=True, use_cache=False)
    for handle in handles:
        handle.remove()
    states = []
    for layer, record, maps in zip(layers, kept, out.attentions, strict=True):
        args, kwargs, _ = record["layer"]
        x_in, o = (args[0] if args else kwargs["hidden_states"])[0], record["o"][2][0]
        normed = record["norm"][2][0] if "norm" in record else o
        normed = normed * getattr(layer, "residual_multiplier", 1.0)  # Granite
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
                b_v=_value_bias(layer.self_attn),  # [H_kv, head_dim]
                scale=scale,
            )
        )
    return states


def _prox(z, y):
    return max(0.0, float(y.abs().sum() - (y - z).abs().sum()))


def _value_bias(attention):
    bias, size = attention.v_proj.bias, attention.v_proj.weight.shape[0]
    return (torch.zeros(size, dtype=torch.float64) if bias is None else bias.detach()).view(-1, attention.head_dim)


def naive_layer(state, n, rows, weights, heads, value_bias):
    """Proximities of one layer to the weighted span: of every source, and of the residual."""
    n_heads, n_kv = state["maps"].shape[0], state["v"].shape[1]
    dim, y = state["v"].shape[2], sum(w * state["x_mid"][i] for i, w in zip(rows, weights, strict=True))
    residual = sum(w * state["x_in"][i] for i, w in zip(rows, weights, strict=True))
    e = torch.zeros(n, dtype=torch.float64)
    for j in range(n):
        parts = []
        for h in range(n_heads):
            kv = h // (n_heads // n_kv)
            value = state["v"][j, kv] - (state["b_v"][kv] if value_bias == "left_out" else 0)
            f = state["w_o"][:, h * dim : (h + 1) * dim] @ value  # [d]
            z = torch.zeros_like(y)
            for i, w in zip(rows, weights, strict=True):
                z = z + w * state["maps"][h, i, j] * f * state["scale"][i]
            parts.append(z)
        e[j] = sum(_prox(z, y) for z in parts) if heads == "per_head" else _prox(sum(parts), y)
    return e, _prox(residual, y)


def naive_span(model, input_ids, rows, weights, heads="per_head", value_bias="included", raw=False):
    """Distribution over the context for the weighted span, shape [N] float64; or its raw sum over layers."""
    total = torch.zeros(len(input_ids), dtype=torch.float64)
    for state in _states(model, input_ids):
        e, e_res = naive_layer(state, len(input_ids), rows, weights, heads, value_bias)
        total += e / (e.sum() + e_res)
    return total if raw else total / total.sum()


def naive_rollout(model, input_ids, rows, weights, heads="per_head", value_bias="included", each=False):
    """As `naive_span`, but the residual's share, and what the span's own rows give, go on to the layer below."""
    n, u = len(input_ids), {i: w / sum(weights) for i, w in zip(rows, weights, strict=True)}
    out = torch.zeros(n, dtype=torch.float64)
    for state in reversed(_states(model, input_ids)):
        below = dict.fromkeys(u, 0.0)
        for span in [{i: w} for i, w in u.items()] if each else [u]:
            mass = sum(span.values())
            if mass == 0:
                continue
            e, e_res = naive_layer(state, n, list(span), list(span.values()), heads, value_bias)
            for j in range(n):
                share = mass * float(e[j] / (e.sum() + e_res))
                if j in below:
                    below[j] += share
                else:
                    out[j] += share
            for i, w in span.items():
                below[i] += w * float(e_res / (e.sum() + e_res))
        u = below
    for i, w in u.items():
        out[i] += w
    return out


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
    residual="denominator",
    hop_scale="distribution",
    first_hop="output",
    flow="reasoning",
    value_bias="included",
    sink="kept",
):
    """Algorithm 1 spelled out; returns (final [|I|], list of hop distributions, flow)."""
    ids, seg = sample.input_ids, sample.segments
    keep = torch.tensor([0.0 if int(t) in skip_tokens else 1.0 for t in ids], dtype=torch.float64)
    if sink == "removed":
        keep[0] = 0
    totals = []

    def span(start, stop, weights):
        positions = [i - (target_state == "predictor") for i in range(start, stop)]
        weights = [float(w * keep[i]) for w, i in zip(weights, range(start, stop), strict=True)]
        raw = hop_scale == "raw"
        if residual == "propagated":
            scores = naive_rollout(model, ids, positions, weights, heads, value_bias, each=aggregation == "mean")
        elif aggregation == "mean":
            scores = sum(
                w * naive_span(model, ids, [p], [1.0], heads, value_bias, raw)
                for w, p in zip(weights, positions, strict=True)
            ) / sum(weights)
        else:
            scores = naive_span(model, ids, positions, weights, heads, value_bias, raw)
        scores = scores * keep
        if granularity == "sentence":
            for a, b in sample.sentences:
                scores[a:b] = scores[a:b].mean()
        totals.append(float(scores.sum()) if raw else 1.0)
        return scores / scores.sum()

    start, stop = seg.output if first_hop == "output" else (seg.generated[0], seg.output[1])
    if aggregation == "last":
        start = stop - 1
    done = [span(start, stop, [1.0] * (stop - start))]
    if seg.reasoning[0] < seg.reasoning[1] or flow == "generation":
        start, stop = seg.reasoning if recursion == "reasoning" else seg.generated
        for _ in range(hops):
            done.append(span(start, stop, done[-1][start:stop]))
    first, last = seg.reasoning if flow == "reasoning" else seg.generated
    flow = [float(d[first:last].sum()) for d in done]
    final, carried = torch.zeros(seg.prompt[1] - seg.prompt[0], dtype=torch.float64), 1.0
    for scores, rho, total in zip(done, flow, totals, strict=True):
        final = final + carried * total * scores[seg.prompt[0] : seg.prompt[1]]
        carried *= rho
    return final, done, flow
