"""One forward pass that keeps what attribution needs and nothing more (algorithm 1, line 1).

Per layer: keys and values of every position, queries and input states of the rows that can be targets. With
grouped-query attention that is about the key/value cache a server holds anyway; nothing quadratic in the context is
kept unless ``attention="cached"`` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ..model.architecture import decoder_layers, family
from ..model.state import evaluating
from ..sample import Span
from .activations import Activations, LayerActivations
from .attention import attention_in_blocks, attention_rows
from .interception import Attention, answering


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


def _recording_attention(recorders: Mapping[nn.Module, Callable[..., None]]) -> Attention:
    """Attention as sdpa computes it, after the module's recorder has seen the call."""

    def attention(module, query, key, value, mask, *, scaling, softcap, sinks, **kwargs) -> torch.Tensor:
        if module in recorders:
            recorders[module](query, key, value, mask, scaling=scaling, softcap=softcap, sinks=sinks)
        if softcap is None and sinks is None:
            return sdpa_attention_forward(module, query, key, value, mask, scaling=scaling, **kwargs)[0]
        return attention_in_blocks(query, key, value, mask, scaling, softcap, sinks)

    return attention


@torch.inference_mode()
def capture(
    model: nn.Module,
    input_ids: torch.Tensor,
    rows: Span,
    *,
    attention: str = "recompute",
    keep_mid: bool = False,
    keep_logits: bool = False,
) -> Activations:
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
    layers = [LayerActivations(parts) for parts in decoder_layers(model)]
    keep = _BufferPool(len(layers)).keep
    start, stop = rows

    def file(layer: LayerActivations, name: str, x: torch.Tensor) -> None:
        setattr(layer, name, keep(name, x))

    recorders = [_recorder(layer, rows, attention, keep) for layer in layers]
    n = len(input_ids)
    # A tensor: for a number, models whose last layers share keys run these on that many rows alone (Gemma-4).
    wanted = torch.arange(0 if keep_logits else n - 1, n)
    with listening(model, layers, recorders, lambda x: x[0, start:stop], file, keep_mid=keep_mid):
        out = model(input_ids[None].to(model.device), use_cache=False, logits_to_keep=wanted)
    for layer in layers:
        _check_pass(layer, n, rows, family(model))
    return Activations(layers, rows, n, out.logits[0] if keep_logits else None)


def _check_pass(layer: LayerActivations, n: int, rows: Span, kind: str) -> None:
    """ValueError unless the layer attended, and over the whole context."""
    where = f"unsupported architecture {kind!r}: layer {layer.parts.index}"
    if layer.k is None:
        raise ValueError(f"{where} did not call the attention interface")
    kept = rows[1] - rows[0]
    if layer.k.shape[1] != n or len(layer.x_in) != kept or (layer.maps is None and layer.q.shape[1] != kept):
        raise ValueError(f"{where} attended from other positions, or to other keys, than the {n} tokens it was given")


@contextmanager
def listening(
    model: nn.Module,
    layers: list[LayerActivations],
    recorders: list[Callable[..., None]],
    select: Callable[[torch.Tensor], torch.Tensor],
    file: Callable[[LayerActivations, str, torch.Tensor], None],
    *,
    keep_mid: bool = False,
) -> Iterator[None]:
    """Hand everything attribution reads from the model's forward passes to ``recorders`` and ``file``.

    Parameters
    ----------
    recorders : list of callable
        One a layer, called with query, key, value and attention mask of every pass, and with its ``scaling``,
        ``softcap`` and ``sinks``.
    select : callable
        Hidden states [1, m, d] -> those of the rows to keep.
    file : callable
        Takes a layer, ``"x_in"``, ``"x_mid"`` or ``"row_scale"``, and its values at these rows.

    Raises
    ------
    ValueError
        If another pass or recording of the model is being listened to.
    """
    by_module = {layer.parts.attention: recorder for layer, recorder in zip(layers, recorders, strict=True)}
    with ExitStack() as stack:
        stack.enter_context(answering(model, _recording_attention(by_module)))
        stack.enter_context(evaluating(model))
        for layer in layers:
            for handle in _hooks(layer, select, keep_mid, file):
                stack.callback(handle.remove)
        yield


def _recorder(layer: LayerActivations, rows: Span, attention: str, keep: Callable) -> Callable[..., None]:
    """Build the function that files q, k, v of one layer."""
    start, stop = rows

    def record(query, key, value, attention_mask, **how) -> None:
        if layer.k is not None:
            raise ValueError(f"unsupported architecture: layer {layer.parts.index} attends more than once in a pass")
        layer.scaling, layer.softcap, layer.sinks = how["scaling"], how["softcap"], how["sinks"]
        layer.k, layer.v = keep("k", key[0]), keep("v", value[0])  # [H_kv, N, head_dim]
        if attention == "cached":
            mask = None if attention_mask is None else attention_mask[0, 0]
            layer.maps = attention_rows(query[0], key[0], 0, mask=mask, **how)
            return
        layer.fused = attention == "fused" and layer.has_fused_kernel()
        layer.q = keep("q", query[0, :, start:stop])  # [H, M, head_dim]
        layer.mask = None if attention_mask is None else attention_mask[0, 0, start:stop]

    return record


def _hooks(layer: LayerActivations, select: Callable, keep_mid: bool, file: Callable) -> list:
    """Hooks that file x_in, and x_mid and the norm's scale where they are needed."""
    parts = layer.parts

    def states(args, kwargs) -> torch.Tensor:
        return select(args[0] if args else kwargs["hidden_states"])  # [M, d]

    def on_input(_, args, kwargs) -> None:
        # Of a model over several devices, the first layer of each is handed states that lie on the one before.
        file(layer, "x_in", states(args, kwargs).to(parts.device))

    def on_mid(_, args, kwargs) -> None:
        file(layer, "x_mid", states(args, kwargs))

    def on_norm(_, args, kwargs, out) -> None:
        file(layer, "row_scale", parts.row_scale(states(args, kwargs), select(out)))

    handles = [parts.layer.register_forward_pre_hook(on_input, with_kwargs=True)]
    if keep_mid:
        handles.append(parts.mid.register_forward_pre_hook(on_mid, with_kwargs=True))
    if parts.post_norm is not None:
        handles.append(parts.post_norm.register_forward_hook(on_norm, with_kwargs=True))
    return handles
