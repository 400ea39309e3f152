"""The one attention function that is registered with transformers, and who answers its calls.

The attention interface hands over q and k after rotary embedding and q/k-norm, the scaling, the mask and the soft-cap:
what stands behind it is right for every family at once.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from weakref import WeakKeyDictionary

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from ..model.wrapped import in_use
from .attention import attend, check_call, chosen_keys

# transformers looks for "flash" in such names and takes an implementation that has it for a kernel without masks
IMPLEMENTATION = "attribution"

# Takes module, query, key, value and mask of a call, and its ``scaling``, ``softcap`` and ``sinks``; returns the
# attention output [B, m, H, head_dim].
Attention = Callable[..., torch.Tensor]

# module -> what answers its calls; entries live only while `answering` runs on their model
_ANSWERS: WeakKeyDictionary[nn.Module, Attention] = WeakKeyDictionary()
_OWNERS: dict[int, tuple[int, str]] = {}  # id of a configuration -> thread that sees another implementation, and which


def is_foreign(owner: int) -> bool:
    """Whether this is a pass of another thread than ``owner``: a caller's own, which nothing listens to."""
    # A backward pass that computes a layer again runs in threads of autograd's own, and belongs to who asked for it.
    return threading.get_ident() != owner and torch._C._current_graph_task_id() == -1


def in_this_thread(hook: Callable) -> Callable:
    """``hook`` of a module, silent in passes of other threads."""
    owner = threading.get_ident()
    return lambda *args: None if is_foreign(owner) else hook(*args)


def _attention(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None,
    scaling: float | None = None, softcap: float | None = None, s_aux: torch.Tensor | None = None,
    indices: torch.Tensor | None = None, **kwargs,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """Attention function registered with transformers."""
    if indices is not None:
        attention_mask = chosen_keys(attention_mask, indices[:, None], key.shape[2])
    block = getattr(getattr(module, "indexer", None), "block_size", None)
    if block and kwargs.get("block_indices") is not None:  # one choice for each group of heads (MiniMax-M3)
        mask = chosen_keys(attention_mask, kwargs.pop("block_indices"), key.shape[2], block)
        attention_mask = mask.repeat_interleave(query.shape[1] // mask.shape[1], 1)
    check_call(module, query, attention_mask, kwargs)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    answer = _ANSWERS.get(module, attend)
    how = {"scaling": scaling, "softcap": softcap, "sinks": s_aux, **kwargs}
    return answer(module, query, key, value, attention_mask, **how), None


AttentionInterface.register(IMPLEMENTATION, _attention)
AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)


@contextmanager
def answering(model: nn.Module, answer: Attention) -> Iterator[None]:
    """Let ``answer`` compute all attention of a model in this thread; afterwards everything is as it was.

    Another thread that wants to answer waits; its plain forward passes get plain attention meanwhile.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    answer : callable
        See `Attention`.

    Raises
    ------
    ValueError
        If something else in this thread answers for the model.
    """
    with in_use(model) as model:
        modules = list(model.modules())
        if any(module in _ANSWERS for module in modules):
            raise ValueError("another method is attributing in this model: one can listen to its forward passes")
        try:
            _ANSWERS.update(dict.fromkeys(modules, answer))
            with attention_implementation(model, IMPLEMENTATION):
                yield
        finally:
            for module in modules:
                _ANSWERS.pop(module, None)


@contextmanager
def attention_implementation(model: nn.Module, name: str) -> Iterator[None]:
    """Route this thread's attention through ``name``; every config gets back exactly what it had.

    Configurations say so to this thread alone: a pass of another, begun before or after, goes on as it was.
    """
    configs = list({id(m.config): m.config for m in model.modules() if hasattr(m, "config")}.values())
    before = [(config, type(config)) for config in configs]
    try:
        for config, kind in before:
            _OWNERS[id(config)] = threading.get_ident(), name
            config.__class__ = _told_by_thread(kind)
        yield
    finally:
        for config, kind in before:
            config.__class__ = kind
            _OWNERS.pop(id(config), None)


@cache
def _told_by_thread(kind: type) -> type:
    """A configuration's class whose attention implementation is that of `_OWNERS` in the thread that stands there."""

    def implementation(config) -> str:
        owner, name = _OWNERS.get(id(config), (None, None))
        return kind._attn_implementation.fget(config) if owner is None or is_foreign(owner) else name

    own = property(implementation, kind._attn_implementation.fset)
    return type(kind.__name__, (kind,), {"_attn_implementation": own, "__init__": kind.__init__})
