"""The numeric kernel: span-aggregated L1 proximity (sections 4.1 and 4.2, appendix A.2).

For spans b with row weights w_bi, one layer gives

    a_bhj = Σ_i w_bi α_hij                        pre-aggregated attention, eq. 8
    z_bhj = a_bhj · v_hj W_O^h                    contribution of source j through head h
    R_b   = Σ_i w_bi x^in_i                       residual
    Y_b   = R_b + Σ_hj z_bhj + Σ_i w_bi b_O       target; equals Σ_i w_bi x^mid_i (checked once per model)
    e_bj  = Σ_h max(0, ‖Y_b‖₁ − ‖Y_b − z_bhj‖₁)   proximity, eq. 4 per head
    s_bj  = e_bj / (Σ_j e_bj + e_res)             layer score; the total is the sum over layers

Everything is float32 whatever the model's dtype. No tensor of shape [H, N, d] exists; `contributions` has the
kernel of the proximity.
"""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Lock

import torch

from ..model.state import default_budget
from ..sample import Span
from .activations import Activations, LayerActivations
from .attention import attention_rows, row_blocks
from .fused_attention import fused_column_sums
from .l1_proximity import per_head, proximity

BLOCK_BYTES = 64 * 2**20  # of sums that have a number for every channel
LAYERS_AT_ONCE = 4  # at most, on the CPU; each has its share of the threads
_POOL = Lock()  # how many threads there are is a setting of the whole process: one attribution at a time divides them


@torch.inference_mode()
def span_scores(activations: Activations, weights: torch.Tensor, target: Span) -> torch.Tensor:
    """Distribution over the context of what one or more weighted spans came from.

    Parameters
    ----------
    activations : Activations
        The captured pass.
    weights : torch.FloatTensor, shape [B, m]
        Row weights of B spans over the same rows; any positive scale (the result does not depend on it).
    target : (int, int)
        The m rows, as positions in the context; must lie within ``activations.rows``.

    Returns
    -------
    torch.FloatTensor, shape [B, N]
        Summed over layers and normalised: every row sums to 1. Zero where nothing came from anywhere.

    Raises
    ------
    ValueError
        If activations are not finite; the message names the layer.
    """
    total = span_sums(activations, weights, target)  # [B, N]
    return total / total.sum(-1, keepdim=True).clamp_min(1e-30)


@torch.inference_mode()
def span_sums(activations: Activations, weights: torch.Tensor, target: Span) -> torch.Tensor:
    """Layer scores summed over layers, not normalised, shape [B, N]; arguments as in `span_scores`.

    A row's sum is the number of layers less the shares of their residuals.
    """
    total = torch.zeros(len(weights), activations.n_tokens)  # [B, N]
    scores = partial(_finite_scores, weights=weights, target=target, first_row=activations.rows[0])
    with _side_by_side(activations.layers) as each:
        for found in each(scores, activations.layers):  # in order, so that the sum is the same each time
            total += found
    return total


@contextmanager
def _side_by_side(layers: list[LayerActivations]) -> Iterator[Callable]:
    """A `map` over layers; on the CPU it runs several at once, as products of one layer are too small for all cores.

    Not layers with a fused kernel: which kernels may be taken is one setting of the whole process.
    """
    threads = torch.get_num_threads()
    n = min(threads, LAYERS_AT_ONCE)
    apart = any(layer.fused or layer.v.device.type != "cpu" for layer in layers)
    if n == 1 or apart or not _POOL.acquire(blocking=False):
        yield map
        return
    torch.set_num_threads(threads // n)  # new threads begin with it
    try:
        with ThreadPoolExecutor(n) as pool:
            yield pool.map
    finally:
        torch.set_num_threads(threads)
        _POOL.release()


@torch.inference_mode()
def span_rollout(
    activations: Activations, weights: torch.Tensor, own: torch.Tensor, target: Span, *, each: bool = False
) -> torch.Tensor:
    """Distribution over the context when the residual's share goes on to the layer below, instead of being lost.

    From the last layer down, the mass u on the span's rows is divided: what the layer's attention took from outside
    the span stays there; what it took from the span's own rows, and the residual's share, are the mass of the layer
    below; what has passed the first layer lies on the tokens themselves. With ``each`` the rows are divided one by
    one, which is the product of the layers' matrices A + diag(r) with the rows outside the span set to the identity;
    without, a layer divides the whole span by one proximity (eq. 5), with weights u.

    Parameters
    ----------
    activations, weights, target
        As in `span_scores`.
    own : torch.BoolTensor, shape [B, m]
        The rows that belong to each span, whatever their weight.
    each : bool
        Divide the rows one by one.

    Returns
    -------
    torch.FloatTensor, shape [B, N]
        Every row sums to 1.
    """
    u = weights.float() / weights.float().sum(-1, keepdim=True)  # [B, m]
    out = torch.zeros(len(u), activations.n_tokens)  # [B, N]
    for layer in reversed(activations.layers):
        parts = torch.eye(u.shape[1]).split(spans_at_once(activations)) if each else (u,)
        taken = torch.cat([_finite_scores(layer, part, target, activations.rows[0]) for part in parts])  # [m or B, N]
        left = (1 - taken.sum(-1)).clamp_min(0)  # the residual's share
        if each:
            moved, kept = u @ taken, u * left
        else:
            moved, kept = u.sum(-1, keepdim=True) * taken, u * left[:, None]
        inside = moved[:, slice(*target)] * own
        moved[:, slice(*target)] -= inside
        out += moved
        u = inside + kept
    out[:, slice(*target)] += u
    return out


def _finite_scores(layer: LayerActivations, weights: torch.Tensor, target: Span, first_row: int) -> torch.Tensor:
    """`layer_scores` on the CPU; ValueError where they are not finite."""
    scores = layer_scores(layer, weights, target, first_row)
    if not torch.isfinite(scores).all():
        raise ValueError(
            f"non-finite activations in layer {layer.parts.index}: the forward pass overflowed; "
            "load the model in float32 or bfloat16"
        )
    return scores.cpu()


def spans_at_once(activations: Activations) -> int:
    """How many spans `span_scores` may take together within the memory that is free, at least 1."""
    layers = activations.layers
    per_source = max(layer.n_heads for layer in layers)  # float32 column sums [H, N] and what is made of them
    budget = min(default_budget(device) for device in {layer.v.device for layer in layers})
    return max(1, budget // (LAYERS_AT_ONCE * 3 * 4 * per_source * activations.n_tokens))


@torch.inference_mode()
def layer_scores(layer: LayerActivations, weights: torch.Tensor, target: Span, first_row: int) -> torch.Tensor:
    """Layer score s_bj of the module's formula, shape [B, N]; arguments as in `span_scores`."""
    at_once = min(map(_spans_of, layer.mixers))
    if len(weights) > at_once:
        return torch.cat([layer_scores(layer, part, target, first_row) for part in weights.split(at_once)])
    aggregated, residual, y = aggregate(layer, weights, target, first_row)
    e = sum(head_proximity(one, sums, y).sum(1) for one, sums in zip(layer.mixers, aggregated, strict=True))  # [B, N]
    e_res = proximity(residual, y)  # [B]
    return e / (e.sum(-1) + e_res).clamp_min(1e-30)[:, None]


def _spans_of(layer: LayerActivations) -> int:
    """Spans whose sums fit a block: with a number for every channel they would not all fit together."""
    if layer.is_plain():
        return sys.maxsize
    return max(1, BLOCK_BYTES // (4 * layer.v.shape[1] * layer.parts.o_proj.weight.shape[1]))


@torch.inference_mode()
def aggregate(
    layer: LayerActivations, weights: torch.Tensor, target: Span, first_row: int
) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """Span aggregates of one layer.

    Returns
    -------
    aggregated : list of torch.FloatTensor, shape [B, H, N] or [B, H, N, head_dim]
        a_bhj, the pre-aggregated attention, of everything in the layer that mixes positions (as a rule, one); where a
        row weights every channel on its own, Σ_i w_bi α_hij ⊙ v_hj in its place.
    residual : torch.FloatTensor, shape [B, d]
        R_b.
    y : torch.FloatTensor, shape [B, d]
        Y_b.
    """
    start, stop = target[0] - first_row, target[1] - first_row
    w = weights.to(layer.x_in.device, torch.float32)  # [B, m]
    residual = w @ layer.x_in[start:stop].float()  # [B, d]
    if layer.row_scale is not None:  # a post-attention norm scales row i's contributions: fold it into w_i
        w = w * layer.row_scale[start:stop]
    aggregated, y = [], residual
    for one in layer.mixers:
        sums = (column_sums if one.is_plain() else channel_sums)(one, w, target, first_row)
        y = y + _attention_output(one, sums)  # [B, d]
        bias = one.parts.bias()
        if bias is not None:
            y = y + w.sum(-1, keepdim=True) * bias
        aggregated.append(sums)
    return aggregated, residual, y


def column_sums(layer: LayerActivations, weights: torch.Tensor, target: Span, first_row: int) -> torch.Tensor:
    """Pre-aggregated attention a_bhj = Σ_i w_bi α_hij, shape [B, H, N] (eq. 8); memory is one block of rows."""
    if layer.fused:
        try:
            return fused_column_sums(layer, weights, target, first_row)
        except RuntimeError:  # no kernel of this device takes these shapes
            layer.fused = False
    out = torch.zeros(layer.n_heads, len(weights), layer.k.shape[1], device=weights.device)  # [H, B, N]
    for start, stop, alpha in _attention_blocks(layer, target, first_row):
        first, last = _with_weight(weights[:, start:stop])
        sums, rows = out[:, first:last, : alpha.shape[-1]], weights[first:last, start:stop]
        torch.baddbmm(sums, rows.expand(len(out), -1, -1), alpha, out=sums)  # adds in place
    return out.transpose(0, 1)


def channel_sums(layer: LayerActivations, weights: torch.Tensor, target: Span, first_row: int) -> torch.Tensor:
    """Σ_i w_bi g_i ⊙ α_hij v_hj, shape [B, H, N, head_dim]: of linear layers, and of attention behind a gate g."""
    rows = slice(target[0] - first_row, target[1] - first_row)
    y = weights[:, None, :, None]  # [B, 1, m, 1]
    if layer.gate is not None:
        y = y * layer.gate[rows].transpose(0, 1)  # [B, H, m, head_dim]
    if layer.linear is not None:
        y = y.expand(-1, len(layer.v), -1, layer.v.shape[-1])
        q = None if layer.q is None else layer.q[:, rows]
        return layer.linear.contributions(q, layer.k, layer.v, y, target[0])
    v = layer.v.float().repeat_interleave(layer.n_heads // len(layer.v), 0)  # [H, N, head_dim]
    out = torch.zeros(len(y), *v.shape, device=v.device)  # [B, H, N, head_dim]
    for start, stop, alpha in _attention_blocks(layer, target, first_row):
        out[:, :, : alpha.shape[-1]] += alpha.mT @ y[:, :, start:stop]
    return out.mul_(v)


def _attention_blocks(layer: LayerActivations, target: Span, first_row: int) -> Iterator[tuple[int, int, torch.Tensor]]:
    """Attention weights α [H, m', n] of the target's rows start … stop - 1, a block of rows at a time."""
    if layer.maps is not None:
        yield 0, target[1] - target[0], layer.maps[:, slice(*target)]
        return
    offset, blocks = target[0] - first_row, list(row_blocks(target[1] - target[0], layer.n_heads, layer.k.shape[1]))
    size = max(stop - start for start, stop in blocks) * layer.n_heads * layer.k.shape[1]
    room = torch.empty(size) if layer.k.device.type == "cpu" else None  # a device's allocator keeps what is freed
    for start, stop in blocks:
        rows = slice(offset + start, offset + stop)
        mask = None if layer.mask is None else layer.mask[:, rows]
        keys = layer.k[:, : target[0] + stop] if mask is None else layer.k  # nothing behind the last row is attended
        yield start, stop, attention_rows(
            layer.q[:, rows], keys, target[0] + start, scaling=layer.scaling, softcap=layer.softcap, mask=mask,
            sinks=layer.sinks, room=room,
        )  # fmt: skip


def _with_weight(weights: torch.Tensor) -> Span:
    """From which to which of B spans any has weight on these rows: of many spans, the first target other rows."""
    some = weights.any(-1).nonzero()[:, 0].tolist() if len(weights) > 1 else [0]
    return (some[0], some[-1] + 1) if some else (0, 0)


def _attention_output(layer: LayerActivations, aggregated: torch.Tensor) -> torch.Tensor:
    """Σ_hj z_bhj without forming any z, shape [B, d]."""
    if aggregated.ndim == 4:
        return aggregated.sum(2).flatten(1) @ layer.parts.projection()
    b, n_heads, n = aggregated.shape
    v = layer.v.float()  # [H_kv, N, head_dim]
    grouped = aggregated.view(b, len(v), -1, n).transpose(0, 1).flatten(1, 2)  # [H_kv, B * group, N]: v is read once
    mixed = torch.bmm(grouped, v).view(len(v), b, -1, v.shape[-1]).transpose(0, 1)  # [B, H_kv, group, head_dim]
    return mixed.reshape(b, -1) @ layer.parts.projection()


@torch.inference_mode()
def head_proximity(layer: LayerActivations, aggregated: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Proximity of each head's contributions, max(0, ‖Y_b‖₁ − ‖Y_b − z_bhj‖₁), shape [B, H, N]."""
    w_o = layer.parts.projection()
    w_o, v = w_o.view(aggregated.shape[1], -1, w_o.shape[-1]), layer.v.float()  # [H, head_dim, d], [H_kv, N, head_dim]
    if aggregated.ndim == 3:
        return per_head(aggregated, v, w_o, y)
    one = torch.ones(1, w_o.shape[0], v.shape[1], device=v.device)
    return torch.cat([per_head(one, u, w_o, y[b : b + 1]) for b, u in enumerate(aggregated)])
