"""Rows that begin alike share the keys and values of their common beginning: it is computed once."""

from __future__ import annotations

import torch
from torch import nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class SharedPrefix:
    """Keys and values of one row, for rows that begin like it. Exact up to rounding: the model is causal.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model in evaluation mode.
    ids : torch.LongTensor, shape [L]
        The row that others resemble.

    Attributes
    ----------
    usable : bool
        Whether the model keeps every position's keys and values. A sliding window or a recurrent state does not; then
        `common` is 0 and rows are computed whole.
    """

    def __init__(self, model: nn.Module, ids: torch.Tensor) -> None:
        self.ids = ids.cpu()
        device = model.get_input_embeddings().weight.device
        layers = []
        if not getattr(model, "_is_stateful", False):  # a recurrent state cannot be cut at a position
            found = model(input_ids=ids[None].to(device), use_cache=True, logits_to_keep=1)
            layers = getattr(getattr(found, "past_key_values", None), "layers", [])
        self.usable = bool(layers) and all(type(layer) is DynamicLayer for layer in layers)
        self._layers = [(layer.keys, layer.values) for layer in layers] if self.usable else []  # [1, heads, L, d_head]

    def common(self, row: torch.Tensor, at_most: int) -> int:
        """Number of leading tokens, ``at_most`` or fewer, that a row [L'] has in common with this one."""
        n = min(len(row), len(self.ids), at_most) if self.usable else 0
        different = (row[:n].cpu() != self.ids[:n]).nonzero()
        return int(different[0]) if len(different) else max(0, n)

    def cache(self, length: int, batch: int) -> DynamicCache | None:
        """A cache of its own with the first ``length`` positions for ``batch`` rows; None for no position."""
        if not length:
            return None
        cache = DynamicCache()
        for index, states in enumerate(self._layers):
            keys, values = (state[:, :, :length].repeat(batch, 1, 1, 1) for state in states)
            cache.update(keys, values, index)
        return cache
