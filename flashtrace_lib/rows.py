"""Rows of attention recomputed in blocks, float32: nothing quadratic in the context is ever held."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .sample import Span

BLOCK_BYTES = 4 * 2**20  # of attention scores held at once: large enough for the GEMM, small enough for the cache


def attention_rows(
    q: torch.Tensor,
    k: torch.Tensor,
    first: int,
    *,
    scaling: float,
    softcap: float | None = None,
    mask: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
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
    mask : torch.BoolTensor, shape [m, n], optional
        True where attention is allowed; causal if None.
    sinks : torch.Tensor, shape [H], optional
        A learned logit of each head that takes mass and has no value (gpt-oss).

    Returns
    -------
    torch.FloatTensor, shape [H, m, n]
        Softmax weights; every row sums to 1, with ``sinks`` to less.
    """
    n_heads, m, _ = q.shape
    n_kv, n, _ = k.shape
    grouped = (q.float() * scaling).reshape(n_kv, -1, q.shape[-1])  # [H_kv, group * m, head_dim]: k is not repeated
    scores = torch.bmm(grouped, k.float().transpose(1, 2)).view(n_heads, m, n)  # [H, m, n]
    if softcap is not None:
        scores = scores.div_(softcap).tanh_().mul_(softcap)
    if mask is not None:
        scores.masked_fill_(~mask, float("-inf"))
    else:  # only the block on the diagonal can look ahead
        ahead = torch.ones(m, n - first, dtype=torch.bool, device=q.device).triu_(1)  # [m, n - first]
        scores[:, :, first:].masked_fill_(ahead, float("-inf"))
    if sinks is None:
        return torch.softmax(scores, dim=-1)
    return torch.cat([scores, sinks.float().view(-1, 1, 1).expand(-1, m, 1)], -1).softmax(-1)[..., :-1]


def row_blocks(n_rows: int, n_heads: int, n_columns: int) -> Iterator[Span]:
    """Cut rows into blocks whose scores over all heads fit ``BLOCK_BYTES``."""
    step = max(1, BLOCK_BYTES // (4 * n_heads * n_columns))
    for start in range(0, n_rows, step):
        yield start, min(start + step, n_rows)


def attention_in_blocks(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Output of attention with soft-capped scores or sinks, which sdpa has no kernel for, in blocks of rows.

    Parameters
    ----------
    query : torch.Tensor, shape [1, H, m, head_dim]
        The last m of n positions.
    key, value : torch.Tensor, shape [1, H_kv, n, head_dim]
        Values may be of another width.
    attention_mask : torch.BoolTensor, shape [1, 1, m, n], optional
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
        mask = None if attention_mask is None else attention_mask[0, 0, start:stop]
        keys = k[:, : past + stop] if mask is None else k
        weights = attention_rows(
            q[:, start:stop], keys, past + start, scaling=scaling, softcap=softcap, mask=mask, sinks=sinks
        )  # [H, m', n]
        out[:, start:stop] = torch.bmm(weights, v[:, : weights.shape[-1]]).to(out.dtype)
    return out.transpose(0, 1)[None].contiguous()
