"""FlashTrace by definition on a model of any family, from the model's own eager forward pass in float64.

Shares no code with the library and knows no family: attention maps and values are what the family's own
``eager_attention_forward`` returns and receives; the output projection, a norm after it and the state after attention
are found by looking for the numbers that the definition asks for. What it cannot find, it does not explain.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch import nn

from tests.oracles.naive import naive_layer

TOLERANCE = 1e-6  # of the identity, relative to what attention adds; some families compute norms in float32


class Unexplained(Exception):
    """The model's forward pass is not x_mid = x_in + m · N(Σ_hj α_hij v_j W_O^h + b_O) in every layer."""


@torch.no_grad()
def family_states(model: nn.Module, input_ids: torch.Tensor) -> list[dict[str, torch.Tensor]]:
    """Attention maps, values and residual states of every layer, as `naive.naive_layer` takes them.

    Raises
    ------
    Unexplained
        If a layer has no attention, or does not add its contributions to the residual stream.
    """
    model = copy.deepcopy(model).to(torch.float64)
    model.set_attn_implementation("eager")
    for module in model.modules():
        if hasattr(module, "config"):
            module.config._experts_implementation = "eager"  # grouped products know no float64
    names = {module: name for name, module in model.named_modules()}
    with ExitStack() as stack:
        attended = stack.enter_context(_eager_calls(model))
        calls = stack.enter_context(_module_calls(model))
        model(input_ids[None], use_cache=False)
    stacks: dict[str, dict[int, dict]] = {}
    for module, value, maps, out in attended:
        found = re.fullmatch(r"(.*\.)(\d+)(\..*)", names[module])
        if not found or int(found[2]) in stacks.get(found[1], {}):
            raise Unexplained(f"{names[module]} is no attention of a stack of layers, or attends twice")
        layer, weights = model.get_submodule(found[1] + found[2]), _weights(value[0], maps[0], out[0])
        stacks.setdefault(found[1], {})[int(found[2])] = _layer_state(layer, module, value[0], weights, calls)
    if len(stacks) != 1:
        raise Unexplained(f"attention stands in {len(stacks)} stacks of layers")
    ((prefix, states),) = stacks.items()
    layers = model.get_submodule(prefix.rstrip("."))
    missing = [i for i, layer in enumerate(layers) if i not in states and layer in calls]
    if missing:
        raise Unexplained(f"layers {missing} have no softmax attention")
    return [states[i] for i in sorted(states)]


def family_scores(model: nn.Module, sample) -> list[torch.Tensor]:
    """Section 4.3 with K = 1: hop 0 explains O, hop 1 explains T weighted by hop 0.

    Returns
    -------
    list of torch.DoubleTensor
        Final scores [|I|], then both hops' distributions over the context [N].
    """
    states, n, seg = family_states(model, sample.input_ids), len(sample.input_ids), sample.segments

    def span(start: int, stop: int, weights: list[float]) -> torch.Tensor:
        total = torch.zeros(n, dtype=torch.float64)
        for state in states:
            e, e_res = naive_layer(state, n, list(range(start, stop)), weights, "per_head", "included")
            total += e / (e.sum() + e_res)
        return total / total.sum()

    first = span(*seg.output, [1.0] * (seg.output[1] - seg.output[0]))  # [N]
    reasoning = first[slice(*seg.reasoning)]
    second = span(*seg.reasoning, reasoning.tolist())  # [N]
    return [(first + reasoning.sum() * second)[slice(*seg.prompt)], first, second]


@contextmanager
def _eager_calls(model: nn.Module) -> Iterator[list[tuple[nn.Module, torch.Tensor, torch.Tensor, torch.Tensor]]]:
    """Calls of a family's own eager attention: module, values [1, H_kv, N, c], maps [1, H, N, N], out [1, N, H, c]."""
    calls = []

    def recording(original):
        def eager(module, query, key, value, *args, **kwargs):
            out, maps = original(module, query, key, value, *args, **kwargs)
            calls.append((module, value, maps, out))
            return out, maps

        return eager

    with ExitStack() as stack:
        for name in {type(module).__module__ for module in model.modules()}:
            file = sys.modules[name]
            if hasattr(file, "eager_attention_forward"):
                original = file.eager_attention_forward
                stack.enter_context(patch.object(file, "eager_attention_forward", recording(original)))
        yield calls


@contextmanager
def _module_calls(model: nn.Module) -> Iterator[dict[nn.Module, list]]:
    """First input and output [N, d] of every call of every module that maps states to states, in order of time."""
    calls, clock = {}, iter(range(10**9))

    def enter(module, args, kwargs):
        x = args[0] if args else kwargs.get("hidden_states")
        if isinstance(x, torch.Tensor) and x.ndim == 3 and len(x) == 1:
            calls.setdefault(module, []).append([next(clock), x[0].clone(), None])

    def leave(module, args, kwargs, out):
        x = args[0] if args else kwargs.get("hidden_states")
        if isinstance(x, torch.Tensor) and x.ndim == 3 and len(x) == 1:
            out = out[0] if isinstance(out, tuple) else out
            calls[module][-1][2] = out[0].clone() if isinstance(out, torch.Tensor) and out.ndim == 3 else None

    handles = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(module.register_forward_hook(leave, with_kwargs=True))
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _weights(value: torch.Tensor, maps: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Attention weights [H, N, N] that make ``out`` of the values; a sink may scale a row of the returned maps."""
    mixed = _mixed(value, maps)  # [N, H, c]
    scale = (out * mixed).sum(-1) / mixed.square().sum(-1)  # [N, H]
    if out.shape != mixed.shape or not _close(scale[..., None] * mixed, out):
        raise Unexplained("the output of attention is not a weighted sum of values")
    return maps * scale.T[..., None]


def _mixed(value: torch.Tensor, maps: torch.Tensor) -> torch.Tensor:
    """Σ_j α_hij v_hj, shape [N, H, c]."""
    return torch.einsum("hij,hjc->ihc", maps, value.repeat_interleave(len(maps) // len(value), 0))


def _layer_state(layer, attention, value, maps, calls) -> dict:
    """The quantities of one layer; every one is checked against the numbers of the forward pass."""
    if layer not in calls:
        raise Unexplained("a layer reads something else than states [1, N, d]")
    mixed = _mixed(value, maps).flatten(1)  # [N, H * c]
    inside = [(m, call) for m in attention.modules() for call in calls.get(m, []) if isinstance(m, nn.Linear)]
    projections = [(m, call) for m, call in inside if _close(call[1], mixed)]
    if len(projections) != 1:
        raise Unexplained("what attention mixes does not go straight into one output projection")
    o_proj, (time, _, o) = projections[0]
    bias = 0 if o_proj.bias is None else o_proj.bias
    if o is None or not _close(mixed @ o_proj.weight.T + bias, o):
        raise Unexplained("the output projection is not linear")
    (_, x_in, _) = calls[layer][0]
    later = [call for m in layer.modules() for call in calls.get(m, []) if call[0] > time]
    normed = [o, *(out for _, x, out in later if out is not None and _close(x, o) and out.shape == o.shape)]
    for _, x_mid, _ in sorted((c for c in later if c[1].shape == o.shape), key=lambda call: call[0]):
        for added in normed:
            multiplier = ((x_mid - x_in) * added).sum() / added.square().sum()
            if abs(multiplier) > 1e-3 and _close(x_mid - x_in, multiplier * added):
                scale = multiplier * _row_scale(o, added)  # [N, d]
                v = value.transpose(0, 1)  # [N, H_kv, c]
                return dict(x_in=x_in, x_mid=x_mid, v=v, maps=maps, w_o=o_proj.weight.detach(), b_v=0, scale=scale)
    raise Unexplained("no state after attention is the layer's input plus what attention adds")


def _row_scale(o: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
    """Element-wise scale [N, d] of a norm that maps o to ``added``; it must be g_d · r_i."""
    if added is o:
        return torch.ones_like(o)
    scale = added / o
    row = scale.abs().sum(-1, keepdim=True)  # [N, 1]
    if not _close(scale / row, (scale / row)[:1].expand_as(scale)):
        raise Unexplained("the norm after attention does more than scale")
    return scale


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and float((a - b).norm()) <= TOLERANCE * float(b.norm())
