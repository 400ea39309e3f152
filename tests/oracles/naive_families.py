"""FlashTrace by definition on a model of any family, from the model's own eager forward pass in float64.

Shares no code with the library and knows no family: what a source hands to the rows is computed with that source alone
(`naive_mixers`), from what the family's own functions are given; what the layer makes of it comes from running the
layer's own module again, with norms frozen, on every source's part. The output projection, a norm after it and the
state after attention are found by looking for the numbers that the definition asks for. What it cannot find, it does
not explain.
"""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from tests.oracles.naive_mixers import FUNCTIONS, RECURRENCES, by_source

TOLERANCE = 1e-6  # of the identity, relative to what attention adds; some families compute norms in float32


class Unexplained(Exception):
    """The model's forward pass is not x_mid = x_in + Σ m · N(Σ_hj z_hij W_O^h + b_O) in every layer."""


@torch.no_grad()
def family_states(model: nn.Module, input_ids: torch.Tensor) -> list[dict]:
    """Residual states of every layer, and what each source hands to each row through each head of what mixes.

    Returns
    -------
    list of dict
        ``x_in`` and ``x_mid`` [N, d], and ``mixers``: a list of ([J, N, H, c], W_O [d, H * c], scale [N, d]).

    Raises
    ------
    Unexplained
        If a layer mixes positions in an unknown way, or does not add its contributions to the residual stream.
    """
    model = copy.deepcopy(model).to(torch.float64)
    model.set_attn_implementation("eager")
    for module in model.modules():
        if hasattr(module, "config"):
            module.config._experts_implementation = "eager"  # grouped products know no float64
    names = {module: name for name, module in model.named_modules()}
    with _patched(model) as functions:
        with _module_calls(model, functions) as calls:
            model(input_ids[None], use_cache=False)
        stacks: dict[str, dict[int, list]] = {}
        for module, made in functions.calls.items():
            mixed, found = by_source(made), re.fullmatch(r"(.*\.)(\d+)(\..*)", names[module])
            if not found:
                raise Unexplained(f"{names[module]} is no attention of a stack of layers")
            mixers = stacks.setdefault(found[1], {}).setdefault(int(found[2]), [])
            mixers.append(_through_gate(module, mixed, calls, functions))
    if len(stacks) != 1:
        raise Unexplained(f"attention stands in {len(stacks)} stacks of layers")
    ((prefix, states),) = stacks.items()
    layers = model.get_submodule(prefix.rstrip("."))
    for i, layer in enumerate(layers):
        if i not in states and layer in calls and not _position_wise(layer, calls[layer][0]):
            raise Unexplained(f"layer {i} mixes positions in an unknown way")
    return [_layer_state(layers[i], states[i], calls) for i in sorted(states)]


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
            e, e_res = _proximities(state, list(range(start, stop)), weights)
            total += e / (e.sum() + e_res)
        return total / total.sum()

    first = span(*seg.output, [1.0] * (seg.output[1] - seg.output[0]))  # [N]
    reasoning = first[slice(*seg.reasoning)]
    second = span(*seg.reasoning, reasoning.tolist())  # [N]
    return [(first + reasoning.sum() * second)[slice(*seg.prompt)], first, second]


def _proximities(state: dict, rows: list[int], weights: list[float]) -> tuple[torch.Tensor, float]:
    """Proximity of every source, summed over heads [N], and of the residual."""
    w = torch.tensor(weights, dtype=torch.float64)
    y, residual = w @ state["x_mid"][rows], w @ state["x_in"][rows]
    e = torch.zeros(len(state["x_in"]), dtype=torch.float64)
    for mixed, w_o, scale in state["mixers"]:
        heads, width = mixed.shape[2:]
        for h in range(heads):
            given = mixed[:, rows, h] @ w_o[:, h * width : (h + 1) * width].T  # [J, m, d]
            for j, z in enumerate((w[:, None] * scale[rows] * given).sum(1)):
                e[j] += _proximity(z, y)
    return e, _proximity(residual, y)


def _proximity(z: torch.Tensor, y: torch.Tensor) -> float:
    return max(0.0, float(y.abs().sum() - (y - z).abs().sum()))


class _Functions:
    """The functions of the families' files that mix positions: their calls, and what answers in their place."""

    def __init__(self) -> None:
        self.calls: dict[nn.Module, dict[str, tuple]] = {}
        self.running: list[nn.Module] = []  # modules whose forward pass has begun and not ended
        self.answers: dict[str, torch.Tensor] = {}

    def recording(self, original, name):
        """``original``, computed in float64 where it is a recurrence; or the answer that stands in its place."""

        def function(*args, **kwargs):
            out = original(*args, **kwargs)
            if not self.running:
                return self._like(out, self.answers.get(name))
            call = inspect.signature(original).bind(*args, **kwargs).arguments
            made = self.calls.setdefault(call.get("module", self.running[-1]), {})
            if name in made:
                raise Unexplained(f"a module calls {name} more than once")
            if name in RECURRENCES:
                argument, recurrence = RECURRENCES[name]
                out = self._like(out, recurrence(call, call[argument].double()))
            made[name] = (call, out)
            return out

        return function

    @staticmethod
    def _like(out, first):
        if first is None:
            return out
        return (first, *out[1:]) if isinstance(out, tuple) else first


@contextmanager
def _patched(model: nn.Module) -> Iterator[_Functions]:
    functions = _Functions()
    with ExitStack() as stack:
        for file in {sys.modules[type(module).__module__] for module in model.modules()}:
            for name in FUNCTIONS:
                if hasattr(file, name):
                    stack.enter_context(patch.object(file, name, functions.recording(getattr(file, name), name)))
        yield functions


def _through_gate(module: nn.Module, mixed: torch.Tensor, calls: _Calls, functions: _Functions) -> tuple:
    """What of every source W_O is given, [J, N, H, c], with gates and norms as they were; W_O; when, and its output."""
    inside = [(m, call) for m in module.modules() for call in calls.get(m, []) if isinstance(m, nn.Linear | Conv1D)]
    if not inside:
        raise Unexplained("nothing is projected")
    o_proj, (time, given, out) = max(inside, key=lambda pair: pair[1][0])
    name = next(name for name in FUNCTIONS if name in functions.calls[module])
    alone = mixed[:, :, 0].transpose(1, 2) if name == "causal_conv1d_fn" else mixed.contiguous()  # [J, C, N]
    args, kwargs = calls.inputs[module]
    args = tuple(_for_each(mixed, x) for x in args)
    kwargs = {name: _for_each(mixed, x) if name == "hidden_states" else x for name, x in kwargs.items()}
    found: list[torch.Tensor] = []
    with ExitStack() as stack:
        stack.enter_context(patch.object(functions, "answers", {name: alone}))
        stack.callback(o_proj.register_forward_pre_hook(lambda _, args: found.append(args[0])).remove)
        for norm in calls.factors.keys() & set(module.modules()):
            stack.enter_context(patch.object(norm, "forward", _frozen(calls.factors[norm], len(mixed))))
        module.forward(*args, **kwargs)
    if not _close(found[-1].sum(0), given):
        raise Unexplained("what W_O is given is not the sum of what every source gives")
    w_o = o_proj.weight.detach().T if isinstance(o_proj, Conv1D) else o_proj.weight.detach()  # [d, H * c]
    if out is None or not _close(given @ w_o.T + (0 if o_proj.bias is None else o_proj.bias), out):
        raise Unexplained("the output projection is not linear")
    return found[-1].unflatten(-1, mixed.shape[2:]), w_o, time, out


def _for_each(mixed: torch.Tensor, x):
    """States [1, N, d] once for every source."""
    return x.repeat(len(mixed), 1, 1) if isinstance(x, torch.Tensor) and x.ndim == 3 else x


def _frozen(factors: list[torch.Tensor], n_sources: int):
    """A norm's forward that multiplies with what it multiplied with before, call by call, for a batch of sources."""
    factors = iter(factors)
    return lambda x, *_, **__: (x.reshape(n_sources, -1) * next(factors).reshape(1, -1)).reshape(x.shape)


class _Calls(dict):
    """First input and output [N, d] of every call of every module that maps states to states, in order of time."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: dict[nn.Module, tuple] = {}  # all arguments of the last call
        self.factors: dict[nn.Module, list] = {}  # what a norm multiplied with, call by call


@contextmanager
def _module_calls(model: nn.Module, functions: _Functions) -> Iterator[_Calls]:
    calls, clock = _Calls(), iter(range(10**9))

    def states(args, kwargs):
        x = args[0] if args else kwargs.get("hidden_states")
        x = x[None] if isinstance(x, torch.Tensor) and x.ndim == 2 else x  # OPT's MLP reads [N, d]
        return x[0].clone() if isinstance(x, torch.Tensor) and x.ndim == 3 and len(x) == 1 else None

    def enter(module, args, kwargs):
        functions.running.append(module)
        calls.inputs[module], x = (args, kwargs), states(args, kwargs)
        if x is not None:
            calls.setdefault(module, []).append([next(clock), x, None])

    def leave(module, args, kwargs, out):
        functions.running.pop()
        out = out if isinstance(out, tuple) else (out,)
        if states(args, kwargs) is not None:
            calls[module][-1][2] = states(out, {})
        if "RMSNorm" in type(module).__name__:
            calls.factors.setdefault(module, []).append((out[0] / args[0]).nan_to_num())

    with ExitStack() as stack:
        for module in model.modules():
            stack.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(leave, with_kwargs=True).remove)
        yield calls


def _position_wise(layer: nn.Module, call: list) -> bool:
    """Whether the layer gives turned round states for states turned round."""
    _, x, out = call
    turned = layer.forward(x.flip(0)[None])
    return out is not None and _close((turned[0] if isinstance(turned, tuple) else turned)[0].flip(0), out)


def _layer_state(layer, mixers: list[tuple], calls: _Calls) -> dict:
    """The quantities of one layer; every one is checked against the numbers of the forward pass."""
    if layer not in calls:
        raise Unexplained("a layer reads something else than states [1, N, d]")
    _, x_in, x_out = calls[layer][0]
    time, outs = max(time for *_, time, _ in mixers), [out for *_, out in mixers]
    later = [call for m in layer.modules() for call in calls.get(m, []) if call[0] > time]
    after = [c[1] for c in sorted((c for c in later if c[1].shape == x_in.shape), key=lambda call: call[0])]
    parallel = [x_out - c[2] for c in later if c[2] is not None and c[2].shape == x_in.shape]  # Cohere's MLP
    choices = [outs]
    if len(outs) == 1:
        choices += [[c[2]] for c in later if c[2] is not None and _close(c[1], outs[0]) and c[2].shape == x_in.shape]
    for x_mid in [*after, *parallel, x_out]:
        for added in choices:
            columns = torch.stack([a.flatten() for a in added], 1)  # [N * d, mixers]
            factors = torch.linalg.lstsq(columns, (x_mid - x_in).flatten()[:, None]).solution[:, 0]
            if (factors.abs() > 1e-3).all() and _close((x_mid - x_in).flatten(), columns @ factors):
                scales = [f * _row_scale(o, a) for f, o, a in zip(factors, outs, added, strict=True)]  # [N, d] each
                parts = [(mixed, w_o, s) for (mixed, w_o, *_), s in zip(mixers, scales, strict=True)]
                return dict(x_in=x_in, x_mid=x_mid, mixers=parts)
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
