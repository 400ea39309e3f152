"""Column sums of attention without the attention matrix, by one backward pass through a fused kernel.

For A = softmax(QKᵀ), the gradient of A·V with respect to V, applied to an output gradient G, is AᵀG. With the weight
vectors of up to head_dim spans as columns of G, one backward pass returns Σ_i w_bi α_hij for all of them (eq. 8), in
memory linear in the context: no row of the maps is ever stored.

The kernel pays for gradients that nobody asks for. On a CPU it takes ten times as long as forming the rows in blocks
that stay in the cache; on a device with fast matrix units and slow memory it is the other way round. Hence `choose`.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from ..sample import Span
from .activations import Activations, LayerActivations
from .attention import attention_rows, row_blocks

KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]  # never the one that forms the matrix
FUSED_FROM = 2**26  # attention scores of a layer, over all heads, from which a device's fused kernel is chosen


def choose(device: torch.device, n_heads: int, rows: Span) -> str:
    """``"recompute"`` or ``"fused"``, whichever should be faster for target rows ``rows`` (same result).

    Parameters
    ----------
    device : torch.device
        Where the model lies.
    n_heads : int
        H, query heads of a layer.
    rows : (int, int)
        Rows that may be targets.
    """
    scores = n_heads * (rows[1] - rows[0]) * rows[1]
    return "fused" if device.type == "cuda" and scores >= FUSED_FROM else "recompute"


def attention_used(activations: Activations) -> dict[str, Any]:
    """How the columns of attention were summed; the layers that went another way than asked are named."""
    layers = [layer for layer in activations.layers if layer.linear is None]
    if any(layer.maps is not None for layer in layers):
        return {"used": "cached"}
    recomputed = [layer.parts.index for layer in layers if not layer.fused]
    if len(recomputed) == len(layers):
        return {"used": "recompute"}
    return {"used": "fused", "recomputed_layers": recomputed}


def fused_column_sums(layer: LayerActivations, weights: torch.Tensor, target: Span, first_row: int) -> torch.Tensor:
    """Pre-aggregated attention a_bhj = Σ_i w_bi α_hij by backward passes through a fused kernel (section 4.2, eq. 8).

    Parameters
    ----------
    layer : LayerActivations
        Without soft-cap and sinks, which no fused kernel knows.
    weights : torch.FloatTensor, shape [B, m]
        Row weights of B spans; head_dim of them share a pass.
    target : (int, int)
        The m rows, as positions in the context.
    first_row : int
        Position of the first captured row.

    Returns
    -------
    torch.FloatTensor, shape [B, H, N]

    Raises
    ------
    RuntimeError
        If no fused kernel of this device takes these shapes, or it is not to be trusted; use
        ``attention="recompute"``.
    """
    if not layer.has_fused_kernel():
        raise ValueError("no fused kernel computes attention with a soft-cap or sinks: use attention='recompute'")
    if not trusted(layer.k.device):
        raise RuntimeError(f"the fused kernel of {layer.k.device} fails its check: use attention='recompute'")
    n, head_dim = layer.k.shape[1:]
    with torch.inference_mode(False), torch.enable_grad():
        out = torch.zeros(len(weights), len(layer.q), n, device=layer.k.device)  # [B, H, N]
        k = _plain(layer.k)  # [H_kv, N, head_dim]
        for start, stop in _blocks(layer, target):
            rows = slice(target[0] - first_row + start, target[0] - first_row + stop)
            mask = None if layer.mask is None else layer.mask[:, rows]
            keys = k[:, : target[0] + stop] if mask is None else k  # nothing behind the last row is attended
            q = _plain(layer.q[:, rows])  # [H, m', head_dim]
            for first in range(0, len(weights), head_dim):
                vectors = weights[first : first + head_dim, start:stop]  # [B', m']
                sums = _transposed_product(q, keys, vectors, layer.scaling, mask)  # [H, n, B']
                out[first : first + head_dim, :, : sums.shape[1]] += sums.permute(2, 0, 1)
    return out


@cache
def trusted(device: torch.device) -> bool:
    """Whether the device's kernel gives the sums of recomputed rows on a small example: asked once, never assumed.

    Which corner a causal mask is aligned to, and how heads share keys, differs between kernels and versions.
    """
    generator = torch.Generator().manual_seed(0)
    q, k, weights = (torch.randn(shape, generator=generator) for shape in ((4, 40, 64), (2, 100, 64), (3, 40)))
    q, k, weights = q.to(device), k.to(device), weights.to(device)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            sums = _transposed_product(_plain(q), _plain(k), weights, 0.125, None)  # [H, n, B]
    except RuntimeError:
        return False
    expected = weights @ attention_rows(q, k, 60, scaling=0.125)  # [H, B, n]
    return torch.allclose(sums.transpose(1, 2), expected, rtol=1e-3, atol=1e-4)


def _plain(x: torch.Tensor) -> torch.Tensor:
    """Float32 that autograd may save: a tensor made in inference mode has to be copied first."""
    return x.clone().float() if x.is_inference() else x.float()


def _blocks(layer: LayerActivations, target: Span) -> Iterator[Span]:
    """Blocks of target rows: all at once where the kernel knows the causal mask, else as many as a mask may take."""
    n_rows = target[1] - target[0]
    if layer.mask is None and layer.k.is_cuda:
        return iter([(0, n_rows)])
    return row_blocks(n_rows, 1, layer.k.shape[1])


def _transposed_product(
    q: torch.Tensor, k: torch.Tensor, vectors: torch.Tensor, scaling: float, mask: torch.Tensor | None
) -> torch.Tensor:
    """αᵀG for rows that end with the last key, or have a mask [1 or H, m, n]; shape [H, n, B], B ≤ head_dim."""
    m, head_dim = q.shape[1:]
    n_kv, n, _ = k.shape
    queries = q.reshape(n_kv, -1, m, head_dim)  # [H_kv, group, m, head_dim]
    shape = (n_kv, queries.shape[1], n, head_dim)
    keys = k[:, None].expand(shape)  # grouped-query attention: shared, not repeated
    values = q.new_zeros(1, 1, 1, head_dim).expand(shape).requires_grad_()  # what they are does not matter
    gradient = torch.zeros(m, head_dim, device=q.device)
    gradient[:, : len(vectors)] = vectors.T
    allowed = causal_lower_right(m, n) if mask is None else mask[0] if len(mask) == 1 else mask.view(n_kv, -1, m, n)
    with sdpa_kernel(KERNELS):
        out = scaled_dot_product_attention(queries, keys, values, attn_mask=allowed, scale=scaling)
        (sums,) = torch.autograd.grad(out, values, gradient.expand(out.shape))  # [H_kv, group, n, head_dim]
    return sums.flatten(0, 1)[..., : len(vectors)]
