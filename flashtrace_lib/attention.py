"""Attention as part of a graph: fused where a kernel exists, explicit maps where they are needed.

`activations` computes the same weights block by block and in place, for speed; here autograd must see every step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward


def soft_cap(scores: torch.Tensor, cap: float) -> torch.Tensor:
    """cap·tanh(x / cap), the soft-cap of Gemma-2."""
    return cap * torch.tanh(scores / cap)


def attention_maps(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float,
    *,
    first: int = 0,
    cap: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> torch.Tensor:
    """Attention weights as part of the graph, float32.

    Parameters
    ----------
    query : torch.Tensor, shape [B, H, m, head_dim]
        Queries of positions ``first … first + m - 1``.
    key : torch.Tensor, shape [B, H_kv, n, head_dim]
    mask : torch.BoolTensor, shape [B or 1, 1, m, n], optional
        True where attention is allowed; causal if None.
    scaling : float
        Factor on q·k.
    cap : callable, optional
        Applied to the scaled scores (Gemma-2).

    Returns
    -------
    torch.FloatTensor, shape [B, H, m, n]
    """
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)  # [B, H, n, head_dim]
    scores = query.float() @ key.float().transpose(-1, -2) * scaling  # [B, H, m, n]
    if cap is not None:
        scores = cap(scores)
    if mask is None:
        m, n = scores.shape[-2:]
        mask = torch.ones(m, n, dtype=torch.bool, device=scores.device).tril_(first)
    return scores.masked_fill(~mask, float("-inf")).softmax(-1)


def mix(maps: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Σ_j a_hij v_hj: maps [B, H, m, n] and values [B, H_kv, n, head_dim] to [B, m, H, head_dim]."""
    value = value.repeat_interleave(maps.shape[1] // value.shape[1], 1)
    return (maps.to(value.dtype) @ value).transpose(1, 2).contiguous()


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None,
    softcap: float | None,
    cap: Callable[[torch.Tensor, float], torch.Tensor] = soft_cap,
    **kwargs,
) -> torch.Tensor:
    """Attention output of a whole layer, shape [B, N, H, head_dim].

    Parameters
    ----------
    softcap : float or None
        Soft-cap on the scaled scores. No fused kernel knows it, so the maps are formed: quadratic in N.
    cap : callable
        How to apply it.
    """
    if softcap is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)[0]
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    return mix(attention_maps(query, key, attention_mask, scaling, cap=partial(cap, cap=softcap)), value)
