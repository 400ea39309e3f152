"""The numeric kernel: span-aggregated L1 proximity (sections 4.1 and 4.2, appendix A.2).

For spans b with row weights w_bi, one layer gives

    a_bhj = Σ_i w_bi α_hij                        pre-aggregated attention, eq. 8
    z_bhj = a_bhj · v_hj W_O^h                    contribution of source j through head h
    R_b   = Σ_i w_bi x^in_i                       residual
    Y_b   = R_b + Σ_hj z_bhj + Σ_i w_bi b_O       target; equals Σ_i w_bi x^mid_i (checked once per model)
    e_bj  = Σ_h max(0, ‖Y_b‖₁ − ‖Y_b − z_bhj‖₁)   proximity, eq. 4 per head
    s_bj  = e_bj / (Σ_j e_bj + e_res)             layer score; the total is the sum over layers

Everything is float32 whatever the model's dtype. No tensor of shape [H, N, d] exists: contributions are formed,
compared with Y and reduced in blocks of source positions.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .activations import Activations, LayerActivations, attention_rows, row_blocks
from .sample import Span

BLOCK_BYTES = 2 * 2**20  # of contributions formed at once; should stay in the cache between the GEMM and the norm


@torch.inference_mode()
def span_scores(
    activations: Activations,
    weights: torch.Tensor,
    target: Span,
    *,
    heads: str = "per_head",
) -> torch.Tensor:
    """Distribution over the context of what one or more weighted spans came from.

    Parameters
    ----------
    activations : Activations
        The captured pass.
    weights : torch.FloatTensor, shape [B, m]
        Row weights of B spans over the same rows; any positive scale (the result does not depend on it).
    target : (int, int)
        The m rows, as positions in the context; must lie within ``activations.rows``.
    heads : {"per_head", "sum"}
        Proximity per head, then summed (the default), or of the head-summed contribution.

    Returns
    -------
    torch.FloatTensor, shape [B, N]
        Summed over layers and normalised: every row sums to 1. Zero where nothing came from anywhere.

    Raises
    ------
    ValueError
        If activations are not finite; the message names the layer.
    """
    total = torch.zeros(len(weights), activations.n_tokens)  # [B, N]
    for layer in activations.layers:
        scores = layer_scores(layer, weights, target, activations.rows[0], heads=heads)
        if not torch.isfinite(scores).all():
            raise ValueError(
                f"non-finite activations in layer {layer.parts.index}: the forward pass overflowed; "
                "load the model in float32 or bfloat16"
            )
        total += scores.cpu()
    return total / total.sum(-1, keepdim=True).clamp_min(1e-30)


def layer_scores(
    layer: LayerActivations, weights: torch.Tensor, target: Span, first_row: int, *, heads: str = "per_head"
) -> torch.Tensor:
    """Layer score s_bj of the module's formula, shape [B, N]; arguments as in `span_scores`."""
    aggregated, residual, y = aggregate(layer, weights, target, first_row)
    proximity = _per_head if heads == "per_head" else _head_sum
    e = proximity(layer, aggregated, y)  # [B, N]
    e_res = _proximity(residual, y)  # [B]
    return e / (e.sum(-1) + e_res).clamp_min(1e-30)[:, None]


def aggregate(
    layer: LayerActivations, weights: torch.Tensor, target: Span, first_row: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Span aggregates of one layer.

    Returns
    -------
    aggregated : torch.FloatTensor, shape [B, H, N]
        a_bhj, the pre-aggregated attention.
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
    aggregated = column_sums(layer, w, target, first_row)  # [B, H, N]
    y = residual + _attention_output(layer, aggregated)  # [B, d]
    bias = layer.parts.bias()
    if bias is not None:
        y = y + w.sum(-1, keepdim=True) * bias
    return aggregated, residual, y


def column_sums(layer: LayerActivations, weights: torch.Tensor, target: Span, first_row: int) -> torch.Tensor:
    """Pre-aggregated attention a_bhj = Σ_i w_bi α_hij, shape [B, H, N] (eq. 8); memory is one block of rows."""
    n = layer.k.shape[1]
    if layer.maps is not None:
        return torch.einsum("bm,hmn->bhn", weights, layer.maps[:, slice(*target)])
    offset = target[0] - first_row
    n_heads = layer.q.shape[0]
    out = torch.zeros(len(weights), n_heads, n, device=weights.device)  # [B, H, N]
    for start, stop in row_blocks(target[1] - target[0], n_heads, n):
        rows = slice(offset + start, offset + stop)
        mask = None if layer.mask is None else layer.mask[rows]
        keys = layer.k[:, : target[0] + stop] if mask is None else layer.k  # nothing behind the last row is attended
        alpha = attention_rows(
            layer.q[:, rows], keys, target[0] + start, scaling=layer.scaling, softcap=layer.softcap, mask=mask
        )  # [H, m, n]
        out[:, :, : alpha.shape[-1]] += torch.matmul(weights[:, start:stop], alpha).transpose(0, 1)
    return out


def _attention_output(layer: LayerActivations, aggregated: torch.Tensor) -> torch.Tensor:
    """Σ_hj z_bhj without forming any z, shape [B, d]."""
    b, n_heads, n = aggregated.shape
    v = layer.v.float()  # [H_kv, N, head_dim]
    mixed = torch.matmul(aggregated.view(b, len(v), -1, n), v)  # [B, H_kv, group, head_dim]
    return mixed.reshape(b, -1) @ layer.parts.projection()


def _proximity(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """max(0, ‖y‖₁ − ‖y − z‖₁) over the last axis (eq. 4)."""
    return (y.abs().sum(-1) - (y - z).abs().sum(-1)).clamp_min(0)


def head_proximity(layer: LayerActivations, aggregated: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Proximity of each head's contributions, max(0, ‖Y_b‖₁ − ‖Y_b − z_bhj‖₁), shape [B, H, N]."""
    b, n_heads, n = aggregated.shape
    w_o = layer.parts.projection().view(n_heads, -1, y.shape[-1])  # [H, head_dim, d]
    group = n_heads // len(layer.v)
    e = torch.empty(b, n_heads, n, device=y.device)
    for start, stop in source_blocks(n, y.shape[-1]):
        for h in range(n_heads):
            v = layer.v[h // group, start:stop].float()  # [n, head_dim]
            e[:, h, start:stop] = _block_proximity(v, w_o[h], aggregated[:, h, start:stop], y)
    return e


def _per_head(layer: LayerActivations, aggregated: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """e_bj with the proximity taken per head and then summed, shape [B, N]."""
    return head_proximity(layer, aggregated, y).sum(1)


def _head_sum(layer: LayerActivations, aggregated: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """e_bj of the contribution summed over heads, shape [B, N]."""
    b, n_heads, n = aggregated.shape
    w_o = layer.parts.projection()  # [H * head_dim, d]
    group = n_heads // len(layer.v)
    ones = torch.ones(1, 1, device=y.device)
    e = torch.zeros(b, n, device=y.device)
    for start, stop in source_blocks(n, y.shape[-1]):
        v = layer.v[:, start:stop].float().repeat_interleave(group, 0).transpose(0, 1)  # [n, H, head_dim]
        for i in range(b):  # the weights differ by head, so the mix over heads differs by span
            mixed = (v * aggregated[i, :, start:stop].T[..., None]).flatten(1)  # [n, H * head_dim]
            e[i, start:stop] = _block_proximity(mixed, w_o, ones.expand(1, stop - start), y[i : i + 1])[0]
    return e


def _block_proximity(v: torch.Tensor, w_o: torch.Tensor, a: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Proximity of the contributions a_bj · v_j W to Y_b for one block of sources.

    Parameters
    ----------
    v : torch.FloatTensor, shape [n, c]
    w_o : torch.FloatTensor, shape [c, d]
    a : torch.FloatTensor, shape [B, n]
    y : torch.FloatTensor, shape [B, d]

    Returns
    -------
    torch.FloatTensor, shape [B, n]
    """
    norm_y = torch.linalg.vector_norm(y, ord=1, dim=-1)  # [B]
    if len(y) == 1:  # Y − (a v) W in one GEMM: nothing of width d is written twice
        rest = torch.addmm(y, v * a[0, :, None], w_o, alpha=-1)  # [n, d]
        return (norm_y - torch.linalg.vector_norm(rest, ord=1, dim=-1)).clamp_min(0)[None]
    f = v @ w_o  # [n, d], shared by all spans
    out = torch.empty(len(y), len(v), device=y.device)
    for b in range(len(y)):
        rest = torch.addcmul(y[b], f, a[b, :, None], value=-1)  # [n, d]
        out[b] = norm_y[b] - torch.linalg.vector_norm(rest, ord=1, dim=-1)
    return out.clamp_min(0)


def source_blocks(n: int, width: int) -> Iterator[Span]:
    """Cut n source positions into blocks whose contributions of ``width`` floats fit ``BLOCK_BYTES``."""
    step = max(16, BLOCK_BYTES // (4 * width))
    for start in range(0, n, step):
        yield start, min(start + step, n)
