"""Attention weights and outputs: in blocks of rows, for speed, and in a graph, where autograd sees every step."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ..sample import Span

BLOCK_BYTES = 4 * 2**20  # of attention scores held at once: large enough for the GEMM, small enough for the cache


def attention_rows(
    q: torch.Tensor, k: torch.Tensor, first: int, *, scaling: float, softcap: float | None = None,
    mask: torch.Tensor | None = None, sinks: torch.Tensor | None = None, room: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Attention weights of a block of rows, in float32.

    Parameters
    ----------
    q : torch.Tensor, shape [H, m, head_dim]
        Queries of rows ``first … first + m - 1``.
    k : torch.Tensor, shape [H_kv, n, head_dim]
        Keys; with a causal mask ``n`` may stop at the last row.
    first : int
        Position of the first row.
    scaling, softcap
        See `LayerActivations`.
    mask : torch.BoolTensor, shape [1 or H, m, n], optional
        True where attention is allowed; causal if None.
    sinks : torch.Tensor, shape [H], optional
        A learned logit of each head that takes mass and has no value (gpt-oss).
    room : torch.FloatTensor, shape [H · m · n or more], optional
        Memory to form them in, on the CPU: pages that every block asks for anew cost a sixth of the time.

    Returns
    -------
    torch.FloatTensor, shape [H, m, n]
        Softmax weights; every row sums to 1, with ``sinks`` to less.
    """
    n_heads, m, _ = q.shape
    n_kv, n, _ = k.shape
    grouped = (q.float() * scaling).reshape(n_kv, -1, q.shape[-1])  # [H_kv, group * m, head_dim]: k is not repeated
    room = None if room is None else room[: n_heads * m * n].view(n_kv, -1, n)
    scores = torch.bmm(grouped, k.float().transpose(1, 2), out=room).view(n_heads, m, n)  # [H, m, n]
    if softcap is not None:
        scores = soft_cap(scores, softcap)
    if mask is not None:
        scores.masked_fill_(~mask, float("-inf"))
    else:  # only the block on the diagonal can look ahead
        ahead = torch.ones(m, n - first, dtype=torch.bool, device=q.device).triu_(1)  # [m, n - first]
        scores[:, :, first:].masked_fill_(ahead, float("-inf"))
    if room is not None and sinks is None:
        return torch.softmax(scores, -1, out=scores)
    return attention_weights(scores, sinks)


def soft_cap(scores: torch.Tensor, cap: float) -> torch.Tensor:
    """cap·tanh(x / cap), the soft-cap of Gemma-2."""
    return cap * torch.tanh(scores / cap)


def attention_weights(
    scores: torch.Tensor, sinks: torch.Tensor | None, softmax: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> torch.Tensor:
    """Softmax over the keys of masked scores [..., H, m, n], and over each head's sink [H] where it has one."""
    softmax = softmax or partial(torch.softmax, dim=-1)
    if sinks is None:
        return softmax(scores)
    sinks = sinks.float().view(-1, 1, 1).expand(*scores.shape[:-1], 1)  # [..., H, m, 1]
    return softmax(torch.cat([scores, sinks], -1))[..., :-1]


def row_blocks(n_rows: int, n_heads: int, n_columns: int) -> Iterator[Span]:
    """Cut rows into blocks whose scores over all heads fit ``BLOCK_BYTES``."""
    step = max(1, BLOCK_BYTES // (4 * n_heads * n_columns))
    for start in range(0, n_rows, step):
        yield start, min(start + step, n_rows)


def attention_in_blocks(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None, scaling: float,
    softcap: float | None = None, sinks: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Output of attention with soft-capped scores or sinks, which sdpa has no kernel for, in blocks of rows.

    Parameters
    ----------
    query : torch.Tensor, shape [1, H, m, head_dim]
        The last m of n positions.
    key, value : torch.Tensor, shape [1, H_kv, n, head_dim]
        Values may be of another width.
    attention_mask : torch.BoolTensor, shape [1, 1 or H, m, n], optional
        True where attention is allowed; causal if None.
    scaling, softcap, sinks
        See `attention_rows`.

    Returns
    -------
    torch.Tensor, shape [1, m, H, head_dim]
    """
    q, k, v = query[0], key[0], value[0]
    n_heads, m, _ = q.shape
    n = k.shape[1]
    past = n - m  # positions in a cache, before the first query
    v = v.float().repeat_interleave(n_heads // len(v), 0)  # [H, N, head_dim]
    out = q.new_empty(n_heads, m, v.shape[-1])  # [H, m, head_dim]
    for start, stop in row_blocks(m, n_heads, n):
        mask = None if attention_mask is None else attention_mask[0, :, start:stop]
        keys = k[:, : past + stop] if mask is None else k
        weights = attention_rows(
            q[:, start:stop], keys, past + start, scaling=scaling, softcap=softcap, mask=mask, sinks=sinks
        )  # [H, m', n]
        out[:, start:stop] = torch.bmm(weights, v[:, : weights.shape[-1]]).to(out.dtype)
    return out.transpose(0, 1)[None].contiguous()


def attention_maps(
    query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, scaling: float, *, first: int = 0,
    cap: Callable[[torch.Tensor], torch.Tensor] | None = None,
    softmax: Callable[[torch.Tensor], torch.Tensor] | None = None, sinks: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Attention weights as part of the graph, float32.

    Parameters
    ----------
    query : torch.Tensor, shape [B, H, m, head_dim]
        Queries of positions ``first … first + m - 1``.
    key : torch.Tensor, shape [B, H_kv, n, head_dim]
    mask : torch.BoolTensor, shape [B or 1, 1 or H, m, n], optional
        True where attention is allowed; causal if None.
    scaling : float
        Factor on q·k.
    cap : callable, optional
        Applied to the scaled scores (Gemma-2).
    softmax : callable, optional
        Softmax over the last dimension; another has the same values and other gradients.
    sinks : torch.Tensor, shape [H], optional
        A learned logit of each head that takes mass and has no value (gpt-oss).

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
    scores = scores.masked_fill(~mask, float("-inf"))
    return attention_weights(scores, sinks, softmax)


def mix(maps: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Σ_j a_hij v_hj: maps [B, H, m, n] and values [B, H_kv, n, head_dim] to [B, m, H, head_dim]."""
    value = value.repeat_interleave(maps.shape[1] // value.shape[1], 1)
    return (maps.to(value.dtype) @ value).transpose(1, 2).contiguous()


def attend(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None,
    scaling: float, softcap: float | None, sinks: torch.Tensor | None = None,
    cap: Callable[[torch.Tensor, float], torch.Tensor] = soft_cap,
    softmax: Callable[[torch.Tensor], torch.Tensor] | None = None, **kwargs,
) -> torch.Tensor:  # fmt: skip
    """Attention output of a whole layer, shape [B, N, H, head_dim].

    Parameters
    ----------
    softcap : float or None
        Soft-cap on the scaled scores. No fused kernel knows it, sinks or another softmax, so with any of them the maps
        are formed: quadratic in N.
    sinks : torch.Tensor, shape [H], optional
        See `attention_maps`.
    cap : callable
        How to apply the soft-cap.
    softmax : callable, optional
        See `attention_maps`.
    """
    if softcap is None and sinks is None and softmax is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)[0]
    cap = None if softcap is None else partial(cap, cap=softcap)
    return mix(attention_maps(query, key, attention_mask, scaling, cap=cap, softmax=softmax, sinks=sinks), value)


# What attention calls may pass beside q, k, v, mask, scaling, soft-cap and sinks: none of it changes the weights.
# `sliding_window` is in the mask already, and dropout is off while attribution runs.
_WITHOUT_EFFECT = frozenset(
    {"dropout", "sliding_window", "position_ids", "cache_position", "use_cache", "layer_idx", "num_items_in_batch"}
    | {"output_attentions", "output_hidden_states", "output_router_logits", "is_causal", "logits_to_keep"}
)


def chosen_keys(mask: torch.Tensor | None, indices: torch.Tensor, n_keys: int, block: int = 1) -> torch.Tensor:
    """The mask [B, G, m, n] of sparse attention whose indexer chose some keys for each row (DeepSeek-V3.2).

    Parameters
    ----------
    mask : torch.BoolTensor, shape [B, 1, m, n], optional
        True where attention is allowed; causal if None.
    indices : torch.Tensor, shape [B, G, m, k]
        Of each of G groups of heads the chosen keys, or blocks of keys; negative ones choose none.
    n_keys, block : int
        n, and the keys of a block.
    """
    (*shape, m, _), n_blocks = indices.shape, -(-n_keys // block)
    if mask is None:
        mask = torch.ones(m, n_keys, dtype=torch.bool, device=indices.device).tril(n_keys - m)
    chosen = torch.zeros(*shape, m, n_blocks + 1, dtype=torch.bool, device=indices.device)  # the last is none
    chosen.scatter_(-1, torch.where(indices < 0, n_blocks, indices).long(), True)
    return mask & chosen[..., :n_blocks].repeat_interleave(block, -1)[..., :n_keys]


def check_call(
    module: nn.Module, query: torch.Tensor, attention_mask: torch.Tensor | None, keywords: dict[str, Any]
) -> None:
    """Refuse an attention call that means more than q, k, v, a boolean mask, scaling, soft-cap and sinks.

    A keyword that is swallowed gives another model's scores: sparse attention, for one, hands its choice of keys over
    this way (`chosen_keys`), and attention over all keys is what comes out without it. So what is not known is refused.

    Parameters
    ----------
    module : nn.Module
        The attention module that called.
    query : torch.Tensor, shape [B, H, m, head_dim]
    attention_mask : torch.Tensor or None
    keywords : dict
        What the call passed beside the arguments that the attention functions take.

    Raises
    ------
    ValueError
        The message names family, layer and keyword.
    """
    where = _caller(module)
    unknown = sorted(k for k, value in keywords.items() if k not in _WITHOUT_EFFECT and value is not None)
    if unknown:
        raise ValueError(
            f"unsupported architecture: {where} passes {', '.join(map(repr, unknown))} to its attention, which the "
            "decomposition does not know; it would be silently left out"
        )
    if attention_mask is None:
        causal = keywords.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        if not causal and query.shape[2] > 1:
            raise ValueError(f"unsupported architecture: {where} attends in both directions")
    elif attention_mask.dtype != torch.bool or attention_mask.shape[1] not in (1, query.shape[1]):
        raise ValueError(
            f"unsupported architecture: {where} has an attention mask of {attention_mask.dtype} and shape "
            f"{tuple(attention_mask.shape)}; supported is a boolean one, for all heads or for each"
        )
    elif attention_mask.diagonal(attention_mask.shape[-1] - query.shape[2] + 1, -2, -1).any():  # tokens see the next
        raise ValueError(f"unsupported architecture: {where} attends in both directions")


def _caller(module: nn.Module) -> str:
    kind = getattr(getattr(module, "config", None), "model_type", type(module).__name__)
    return f"{kind!r}, layer {getattr(module, 'layer_idx', '?')},"
