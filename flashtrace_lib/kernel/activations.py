"""The states that one captured forward pass keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ..model.architecture import LayerParts
from ..sample import Span
from .linear_attention import Linear


@dataclass
class LayerActivations:
    """What one layer contributes.

    Parameters
    ----------
    parts : LayerParts
        The layer's modules (for W_O, b_O and the post-attention norm).
    k, v : torch.Tensor, shape [H_kv, N, head_dim]
        Keys and values the model attended to. Of a linear layer, keys [H_k, N, d_k], None without a recurrence, and the
        projected inputs [H, N, c] of its convolution.
    q : torch.Tensor, shape [H, M, head_dim], or None
        Queries of the kept rows; None where ``maps`` holds their attention, or a layer has no recurrence.
    x_in : torch.Tensor, shape [M, d]
        Layer input at the kept rows.
    row_scale : torch.FloatTensor, shape [M], or None
        Scale of the post-attention norm at each row.
    x_mid : torch.Tensor, shape [M, d], or None
        State after attention; kept only for the identity check.
    mask : torch.BoolTensor, shape [1 or H, M, N], or None
        True where a row may attend, for masks other than the plain causal one. A view of the mask the model built.
    scaling : float
        Factor on q·k.
    softcap : float or None
        Soft-cap on the scaled scores (Gemma-2).
    sinks : torch.Tensor, shape [H], or None
        Logits that take mass in the softmax and have no value (gpt-oss): the rows sum to less than 1.
    maps : torch.FloatTensor, shape [H, N, N], or None
        All attention maps, with ``attention="cached"``.
    gate : torch.FloatTensor, shape [M, H, head_dim], or None
        What every row multiplies its mixed values with before W_O: a gate, a norm, or both.
    linear : Linear or None
        What a layer without softmax attention does to its values.
    beside : list of LayerActivations
        What runs beside this in the same layer and adds to the same state (Falcon-H1's Mamba-2); without states.
    fused : bool
        Sum the columns of attention through a fused kernel, with ``attention="fused"``; False where the layer's
        attention has no such kernel.
    """

    parts: LayerParts
    k: torch.Tensor | None = None
    v: torch.Tensor | None = None
    q: torch.Tensor | None = None
    x_in: torch.Tensor | None = None
    row_scale: torch.Tensor | None = None
    x_mid: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    scaling: float = 1.0
    softcap: float | None = None
    sinks: torch.Tensor | None = None
    maps: torch.Tensor | None = None
    gate: torch.Tensor | None = None
    linear: Linear | None = None
    beside: list[LayerActivations] = field(default_factory=list)
    fused: bool = False

    @property
    def n_heads(self) -> int:
        """H, heads with a share of W_O."""
        return len(self.v if self.linear is not None else self.q if self.maps is None else self.maps)

    @property
    def mixers(self) -> list[LayerActivations]:
        """All that mixes positions in the layer: this, and what runs beside it."""
        return [self, *self.beside]

    def is_plain(self) -> bool:
        """Whether a head weights a source with one number: softmax attention without a gate."""
        return self.linear is None and self.gate is None

    def has_fused_kernel(self) -> bool:
        """Whether a fused kernel can sum the columns: none knows a soft-cap or sinks."""
        return self.softcap is None and self.sinks is None


@dataclass
class Activations:
    """The captured forward pass.

    Parameters
    ----------
    layers : list of LayerActivations
    rows : (int, int)
        Token range of the kept rows, M = stop - start.
    n_tokens : int
        N, length of the context.
    logits : torch.Tensor, shape [N, V], or None
        What the model predicted; kept only for the check of the pass itself.
    """

    layers: list[LayerActivations]
    rows: Span
    n_tokens: int
    logits: torch.Tensor | None = None
