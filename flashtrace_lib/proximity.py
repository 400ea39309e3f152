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
from .fused import fused_column_sums
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


@torch.inference_mode()
def layer_scores(
    layer: LayerActivations, weights: torch.Tensor, target: Span, first_row: int, *, heads: str = "per_head"
) -> torch.Tensor:
    """Layer score s_bj of the module's formula, shape [B, N]; arguments as in `span_scores`."""
    aggregated, residual, y = aggregate(layer, weights, target, first_row)
    proximity = _per_head if heads == "per_head" else _head_sum
    e = proximity(layer, aggregated, y)  # [B, N]
    e_res = _proximity(residual, y)  # [B]
    return e / (e.sum(-1) + e_res).clamp_min(1e-30)[:, None]


@torch.inference_mode()
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
    if layer.fused:
        try:
            return fused_column_sums(layer, weights, target, first_row)
        except RuntimeError:  # no kernel of this device takes these shapes
            layer.fused = False
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


@torch.inference_mode()
def head_proximity(layer: LayerActivations, aggregated: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Proximity of each head's contributions, max(0, ‖Y_b‖₁ − ‖Y_b − z_bhj‖₁), shape [B, H, N]."""
    b, n_heads, n = aggregated.shape
    w_o = layer.parts.projection().view(n_heads, -1, y.shape[-1])  # [H, head_dim, d]
    group = n_heads // len(layer.v)
    e = torch.empty(b, n_heads, n, device=y.device)
    for i in range(b):
        for h in range(n_heads):
            target = _Target(w_o[h], y[i])
            for start, stop in source_blocks(n, y.shape[-1]):
                v = layer.v[h // group, start:stop].float()  # [n, head_dim]
                e[i, h, start:stop] = target.proximity(v * aggregated[i, h, start:stop, None])
    return e


def _per_head(layer: LayerActivations, aggregated: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """e_bj with the proximity taken per head and then summed, shape [B, N]."""
    return head_proximity(layer, aggregated, y).sum(1)


def _head_sum(layer: LayerActivations, aggregated: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """e_bj of the contribution summed over heads, shape [B, N]."""
    b, n_heads, n = aggregated.shape
    group = n_heads // len(layer.v)
    e = torch.empty(b, n, device=y.device)
    for i in range(b):
        target = _Target(layer.parts.projection(), y[i])
        for start, stop in source_blocks(n, y.shape[-1]):
            v = layer.v[:, start:stop].float().repeat_interleave(group, 0).transpose(0, 1)  # [n, H, head_dim]
            e[i, start:stop] = target.proximity((v * aggregated[i, :, start:stop].T[..., None]).flatten(1))
    return e


class _Target:
    """Proximity of contributions z = u W to one target Y, without forming ‖Y‖₁ − ‖Y − z‖₁.

    Element by element, with t = sign(Y) · z,

        |Y| − |Y − z| = t − 2 max(0, t − |Y|).

    The first term sums to u · (W sign(Y)): a product of width one. The second vanishes wherever |z| ≤ |Y|, which
    |z_d| ≤ ‖u‖₂ ‖W_:d‖₂ settles for most elements beforehand, so only the remaining columns of W are multiplied.
    The result is exact, cheaper, and precise where the plain difference of two large norms is not: rounding is
    relative to z, not to Y.

    Parameters
    ----------
    w_o : torch.FloatTensor, shape [c, d]
    y : torch.FloatTensor, shape [d]
    """

    def __init__(self, w_o: torch.Tensor, y: torch.Tensor) -> None:
        sign = torch.where(y < 0, -1.0, 1.0)  # +1 at zero, where |Y| − |Y − z| = −|z|
        self._signed = w_o * sign  # [c, d]
        self._linear = self._signed.sum(-1)  # [c]
        self._magnitude = y.abs()  # [d]
        self._reach = torch.linalg.vector_norm(w_o, dim=0) * (1 + 1e-4)  # [d]; slack for the rounding of the norms

    def proximity(self, u: torch.Tensor) -> torch.Tensor:
        """max(0, ‖Y‖₁ − ‖Y − u W‖₁) for each row of ``u`` [n, c], shape [n]."""
        total = u @ self._linear  # [n]
        longest = torch.linalg.vector_norm(u, dim=-1).max()
        beyond = (self._magnitude < longest * self._reach).nonzero()[:, 0]  # elements that some z may overshoot
        if len(beyond):
            over = torch.addmm(-self._magnitude[beyond], u, self._signed[:, beyond])  # [n, beyond]
            total -= 2 * over.clamp_min_(0).sum(-1)
        return total.clamp_min_(0)


def source_blocks(n: int, width: int) -> Iterator[Span]:
    """Cut n source positions into blocks whose contributions of ``width`` floats fit ``BLOCK_BYTES``."""
    step = max(16, BLOCK_BYTES // (4 * width))
    for start in range(0, n, step):
        yield start, min(start + step, n)
