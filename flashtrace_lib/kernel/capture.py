"""One forward pass that keeps what attribution needs and nothing more (algorithm 1, line 1).

Per layer: keys and values of every position, queries and input states of the rows that can be targets. With
grouped-query attention that is about the key/value cache a server holds anyway; nothing quadratic in the context is
kept unless ``attention="cached"`` asks for it.
"""

from contextlib import ExitStack, suppress
from functools import partial

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ..model.architecture import decoder_layers, family
from ..model.state import evaluating, input_device
from ..sample import Span
from .activations import Activations, LayerActivations
from .attention import attention_in_blocks, attention_rows
from .interception import answering, in_this_thread
from .mixer_calls import Calls, listening, read_calls


class _Captured(Exception):
    """Everything is kept: what the pass would still compute, nobody reads."""


class _BufferPool:
    """One block of memory for the same tensor of all layers.

    On the CPU, what is kept and what the model's own forward frees would otherwise share one heap, and the holes
    between them cost a tenth of the whole. Pages of a block that no layer fills are never touched.
    """

    def __init__(self, n_layers: int) -> None:
        self._n_layers = n_layers
        self._blocks: dict[tuple, list[torch.Tensor]] = {}

    def keep(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """Copy ``x``, so that whatever it is a view of can be freed."""
        if x.device.type != "cpu":  # the caching allocator of a device has no such holes
            return x.clone()
        key = (name, x.shape, x.dtype)
        if not self._blocks.get(key):
            self._blocks[key] = list(torch.empty(self._n_layers, *x.shape, dtype=x.dtype).unbind())
        return self._blocks[key].pop().copy_(x)


@torch.inference_mode()
def capture(
    model: nn.Module, input_ids: torch.Tensor, rows: Span, *, attention: str = "recompute",
    keep_mid: bool = False, keep_logits: bool = False,
) -> Activations:  # fmt: skip
    """Run the model once and keep what attribution of the rows ``rows`` needs.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    input_ids : torch.LongTensor, shape [N]
    rows : (int, int)
        Range of positions that may be targets.
    attention : {"recompute", "fused", "cached"}
        Keep queries, to recompute attention rows from or to sum their columns through a fused kernel; or keep the
        attention maps of all rows (algorithm 1 as printed).
    keep_mid, keep_logits : bool
        Keep x_mid, and the logits of all positions, as well: for the checks of `decomposition`.

    Returns
    -------
    Activations

    Raises
    ------
    ValueError
        If the model's attention is of a kind that the decomposition does not know, or some layer did not attend
        once from every token to every token before it.
    """
    layers = [
        LayerActivations(parts, beside=[LayerActivations(other) for other in parts.beside])
        for parts in decoder_layers(model)
    ]
    by_module = {one.parts.attention: one for layer in layers for one in (layer, *layer.beside)}
    pool, n = _BufferPool(len(by_module)), len(input_ids)
    mixed: dict[nn.Module, torch.Tensor] = {}  # attention output of the rows, [M, H, head_dim], until W_O is called

    def attend(module, query, key, value, mask, *, scaling, softcap, sinks, **kwargs) -> torch.Tensor:
        """Attention as sdpa computes it, once the layer has kept what it needs of the call."""
        if module in by_module:
            _keep_call(by_module[module], pool, rows, attention, query, key, value, mask, scaling, softcap, sinks)
        if softcap is None and sinks is None:
            out = sdpa_attention_forward(module, query, key, value, mask, scaling=scaling, **kwargs)[0]
        else:
            out = attention_in_blocks(query, key, value, mask, scaling, softcap, sinks)
        if module in by_module:
            mixed[module] = out[0, slice(*rows)]
        return out

    # A tensor: for a number, models whose last layers share keys run these on that many rows alone (Gemma-4).
    wanted = torch.arange(0 if keep_logits else n - 1, n)
    with ExitStack() as stack:
        stack.enter_context(answering(model, attend))
        stack.enter_context(evaluating(model))
        keep = {module: partial(_keep_linear, one, pool, slice(*rows)) for module, one in by_module.items()}
        stack.enter_context(listening(keep))
        for module, one in by_module.items():
            hook = in_this_thread(partial(_keep_gate, one, mixed, module, slice(*rows)))
            stack.callback(one.parts.o_proj.register_forward_pre_hook(hook).remove)
        for layer in layers:
            for handle in _keep_states(layer, pool, slice(*rows), keep_mid):
                stack.callback(handle.remove)
        if not (keep_mid or keep_logits):
            hook = in_this_thread(partial(_stop, layers))
            stack.callback(layers[-1].parts.mid.register_forward_pre_hook(hook).remove)
        with suppress(_Captured):
            out = model(input_ids[None].to(input_device(model)), use_cache=False, logits_to_keep=wanted)
    for layer in layers:
        _check_pass(layer, n, rows, family(model))
        for other in layer.beside:
            _check_mixed(other, n, rows, family(model))
    return Activations(layers, rows, n, out.logits[0] if keep_logits else None)


def _stop(layers: list[LayerActivations], *_) -> None:
    """End the pass once all layers have attended: the last one's MLP and the logits take hundredths of the time."""
    if layers[-1].parts.mid is not layers[-1].parts.layer and all(
        x.v is not None for one in layers for x in one.mixers
    ):
        raise _Captured


def _keep_call(
    layer: LayerActivations, pool: _BufferPool, rows: Span, how: str, query, key, value, mask, scaling, softcap, sinks
) -> None:
    """Keep q, k, v of one call of a layer's attention, or its maps; [1, H, N, head_dim], mask [1, 1 or H, N, N]."""
    if layer.k is not None:
        raise ValueError(f"unsupported architecture: layer {layer.parts.index} attends more than once in a pass")
    layer.scaling, layer.softcap, layer.sinks = scaling, softcap, sinks
    layer.k, layer.v = pool.keep("k", key[0]), pool.keep("v", value[0])  # [H_kv, N, head_dim]
    if how == "cached":
        mask = None if mask is None else mask[0]
        layer.maps = attention_rows(query[0], key[0], 0, mask=mask, scaling=scaling, softcap=softcap, sinks=sinks)
        return
    layer.fused = how == "fused" and layer.has_fused_kernel()
    layer.q = pool.keep("q", query[0, :, slice(*rows)])  # [H, M, head_dim]
    layer.mask = None if mask is None else mask[0, :, slice(*rows)]


def _keep_linear(layer: LayerActivations, pool: _BufferPool, rows: slice, calls: Calls) -> None:
    """Keep what a linear layer computed from, unless its convolution stands before softmax attention."""
    if layer.v is not None or layer.gate is None:
        return
    layer.linear, q, k, v, out = read_calls(calls)
    layer.v = pool.keep("v", v)  # [H, N, c]
    if k is not None:
        layer.k, layer.q = pool.keep("k", k), pool.keep("q", q[:, rows])  # [H_k, N, d_k], [H_k, M, d_k]
    layer.gate = _gate(layer, out[rows], layer.gate)


def _keep_gate(layer: LayerActivations, mixed: dict, attention: nn.Module, rows: slice, _, args: tuple) -> None:
    """Keep what stands between the mixed values of softmax attention and W_O; of a linear layer, what W_O reads."""
    read = args[0].flatten(0, -2)[rows]  # [M, H * head_dim]
    if attention in mixed:
        layer.gate = _gate(layer, mixed.pop(attention), read)
    elif layer.v is None:
        layer.gate = read.clone()


def _gate(layer: LayerActivations, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor | None:
    """Factor [M, H, head_dim] that takes ``before`` to ``after``; None where they are the same."""
    if before.numel() != after.numel():
        raise ValueError(
            f"unsupported architecture: W_O of layer {layer.parts.index} ({type(layer.parts.layer).__name__}) reads "
            f"{after.shape[-1]} numbers a token, and {before[0].numel()} are mixed for it"
        )
    if before.data_ptr() == after.data_ptr():
        return None
    before, after = before.float(), after.reshape(before.shape).float()
    if torch.allclose(before, after, rtol=1e-6, atol=0):
        return None
    return torch.where(before == 0, 0, after / before)


def _keep_states(layer: LayerActivations, pool: _BufferPool, rows: slice, keep_mid: bool) -> list[RemovableHandle]:
    """Hooks that keep x_in, and x_mid and the norm's scale where they are needed."""
    parts = layer.parts

    def states(args, kwargs) -> torch.Tensor:
        x = args[0] if args else kwargs["hidden_states"]
        return x[0, rows] if x.ndim > 2 else x[rows]  # [M, d]; OPT's MLP reads [N, d]

    def on_input(_, args, kwargs) -> None:
        # Of a model over several devices, the first layer of each is handed states that lie on the one before.
        layer.x_in = pool.keep("x_in", states(args, kwargs).to(parts.device))

    def on_mid(_, args, kwargs) -> None:
        layer.x_mid = pool.keep("x_mid", states(args, kwargs))

    def on_norm(_, args, kwargs, out) -> None:
        layer.row_scale = pool.keep("row_scale", parts.row_scale(states(args, kwargs), out[0, rows]))

    handles = [parts.layer.register_forward_pre_hook(in_this_thread(on_input), with_kwargs=True)]

    def of_rows(out) -> torch.Tensor:
        return (out[0] if isinstance(out, tuple) else out)[0, rows]  # [M, d]

    added: list[torch.Tensor] = []  # what an MLP beside attention gives

    def on_output(_, args, out) -> None:
        fits = added and added[0].shape == of_rows(out).shape  # else `_check_pass` refuses the layer
        layer.x_mid = pool.keep("x_mid", of_rows(out) - added[0] if fits else of_rows(out))

    if keep_mid and (parts.parallel or parts.mid is parts.layer):
        handles.append(parts.layer.register_forward_hook(in_this_thread(on_output)))
    if keep_mid and parts.parallel:
        hook = in_this_thread(lambda _, args, out: added.append(of_rows(out)))
        handles.append(parts.mid.register_forward_hook(hook))
    elif keep_mid and parts.mid is not parts.layer:
        handles.append(parts.mid.register_forward_pre_hook(in_this_thread(on_mid), with_kwargs=True))
    if parts.post_norm is not None:
        handles.append(parts.post_norm.register_forward_hook(in_this_thread(on_norm), with_kwargs=True))
    return handles


def _check_mixed(layer: LayerActivations, n: int, rows: Span, kind: str) -> None:
    """ValueError unless the layer attended, and over the whole context."""
    where = f"unsupported architecture {kind!r}: layer {layer.parts.index}"
    if layer.v is None:
        raise ValueError(f"{where} did not call the attention interface, nor a recurrence or convolution that is known")
    if layer.v.shape[1] != n or (layer.q is not None and layer.q.shape[1] != rows[1] - rows[0]):
        raise ValueError(f"{where} attended from other positions, or to other keys, than the {n} tokens it was given")


def _check_pass(layer: LayerActivations, n: int, rows: Span, kind: str) -> None:
    """ValueError unless everything in the layer attended, and its states are those of the rows."""
    _check_mixed(layer, n, rows, kind)
    if layer.x_in.shape != (rows[1] - rows[0], layer.parts.o_proj.weight.shape[0]):
        raise ValueError(
            f"unsupported architecture {kind!r}: layer {layer.parts.index} reads states of shape "
            f"{tuple(layer.x_in.shape)} for {rows[1] - rows[0]} tokens, not one state for each"
        )
