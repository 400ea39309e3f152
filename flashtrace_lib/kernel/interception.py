"""The one attention function that is registered with transformers, and who answers its calls.

The attention interface hands over q and k after rotary embedding and q/k-norm, the scaling, the mask and the soft-cap:
what stands behind it is right for every family at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from .attention import attend, check_call

# transformers looks for "flash" in such names and takes an implementation that has it for a kernel without masks
IMPLEMENTATION = "attribution"

# Takes module, query, key, value and mask of a call, and its ``scaling``, ``softcap`` and ``sinks``; returns the
# attention output [B, m, H, head_dim].
Attention = Callable[..., torch.Tensor]

# module -> what answers its calls; entries live only while `answering` runs on their model
_ANSWERS: WeakKeyDictionary[nn.Module, Attention] = WeakKeyDictionary()


def _attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Attention function registered with transformers."""
    check_call(module, query, attention_mask, kwargs)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    answer = _ANSWERS.get(module, attend)
    how = {"scaling": scaling, "softcap": softcap, "sinks": s_aux, **kwargs}
    return answer(module, query, key, value, attention_mask, **how), None


AttentionInterface.register(IMPLEMENTATION, _attention)
AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)


@contextmanager
def answering(model: nn.Module, answer: Attention) -> Iterator[None]:
    """Let ``answer`` compute all attention of a model; afterwards everything is as it was.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    answer : callable
        See `Attention`.

    Raises
    ------
    ValueError
        If something else answers for the model.
    """
    modules = list(model.modules())
    if any(module in _ANSWERS for module in modules):
        raise ValueError("another method is attributing in this model: one at a time can listen to its forward passes")
    try:
        _ANSWERS.update(dict.fromkeys(modules, answer))
        with attention_implementation(model, IMPLEMENTATION):
            yield
    finally:
        for module in modules:
            _ANSWERS.pop(module, None)


@contextmanager
def attention_implementation(model: nn.Module, name: str) -> Iterator[None]:
    """Route attention through ``name``; every config gets back exactly what it had."""
    configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}.values()
    before = [(config, config._attn_implementation) for config in configs]
    try:
        for config, _ in before:
            config._attn_implementation = name
        yield
    finally:
        for config, old in before:
            config._attn_implementation = old
