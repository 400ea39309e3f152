"""Whether a model does in some other way what it does in an ordinary pass: tried on a short input, and remembered."""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from .architecture import family, is_adapted
from .context import vocabulary_size
from .state import evaluating, input_device
from .wrapped import has_virtual_tokens

LOGIT_TOLERANCE = 1e-3  # of the logits, relative to their spread at a position; in float32
_CHECK_TOKENS = 24
# model -> name of a check -> `_state` in which the model passed it
_PASSED: WeakKeyDictionary[nn.Module, dict[str, tuple]] = WeakKeyDictionary()


def check_once(model: nn.Module, name: str, check: Callable[[], None]) -> None:
    """Run ``check`` unless ``model`` has passed it and is as it was then.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    name : str
        Of the check.
    check : callable
        Raises where the model fails.
    """
    state, passed = _state(model), _PASSED.setdefault(model, {})
    if state is None or passed.get(name) != state:
        check()
        if state is not None:
            passed[name] = state


def check_ids(model: nn.Module) -> torch.Tensor:
    """The tokens that checks read, int64 [24]: spread over the vocabulary, no seed needed."""
    # a head may form logits of fewer tokens than there are embeddings
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    vocabulary = min(size for size in [vocabulary_size(model), getattr(head, "out_features", None)] if size)
    return torch.arange(_CHECK_TOKENS).mul_(7919).remainder_(vocabulary)


@torch.inference_mode()
def plain_logits(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Logits of an ordinary pass of the model over ids [N], float32 [N, V]."""
    with evaluating(model):  # prompt tuning gives logits of its virtual tokens as well: they stand before the text's
        return model(ids[None].to(input_device(model)), use_cache=False).logits[0, -len(ids) :].float()


def run_checked(model: nn.Module, how: str, run: Callable[[], torch.Tensor]) -> torch.Tensor:
    """What ``run`` returns; an error of the model's own code becomes a ValueError that says ``how`` it was run."""
    try:
        return run()
    except (ValueError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # of the model's own code, which has no common kind
        raise ValueError(
            f"{family(model)} cannot be explained {how}: its code fails there ({type(error).__name__}: "
            f"{str(error)[:200]}); use another method"
        ) from error


def check_equal(model: nn.Module, found: torch.Tensor, plain: torch.Tensor, how: str, least: float = 0.0) -> None:
    """ValueError unless two sets of a model's logits are the same up to rounding.

    Parameters
    ----------
    found, plain : torch.FloatTensor, shape [N, V]
        Logits at N positions: some other way through the model, and an ordinary pass.
    how : str
        Which other way, for the message.
    least : float
        Gap that is allowed whatever the dtype.
    """
    spread = (plain - plain.mean(-1, keepdim=True)).norm(dim=-1).clamp_min(1e-30)  # [N]
    gaps = (found - plain).norm(dim=-1) / spread  # [N]
    # In half precision a rounding error may send a token to another expert: the median forgives one, not a pattern.
    gap = float(gaps.max() if is_single(model) else gaps.median())
    allowed = max(least, tolerance(model, LOGIT_TOLERANCE))
    if not gap <= allowed:  # also refuses NaN
        raise ValueError(
            f"unsupported architecture {family(model)!r}: {how} its logits are not those of an ordinary pass (relative "
            f"gap {gap:.2g}, allowed {allowed:.2g}). Attribution would explain another model, so this one is refused"
        )


def _dtype(model: nn.Module) -> torch.dtype:
    return model.get_input_embeddings().weight.dtype


def is_single(model: nn.Module) -> bool:
    """Whether the model computes in float32 or better."""
    return torch.finfo(_dtype(model)).eps <= torch.finfo(torch.float32).eps


def tolerance(model: nn.Module, single: float) -> float:
    """``single`` in float32 and float64; a few epsilons of the model's dtype in half precision."""
    return single if is_single(model) else 8 * torch.finfo(_dtype(model)).eps


def _state(model: nn.Module) -> tuple | None:
    """What the checks rest on: modules, adapters that act, weights and how often each was written to.

    Returns
    -------
    tuple or None
        None where PyTorch does not count the writes (weights made in inference mode).
    """
    parts: list[Any] = [has_virtual_tokens(model), getattr(model, "active_adapter", None)]
    for module in model.modules():
        parts.append((id(module), *module._forward_pre_hooks, *module._forward_hooks))  # a hook may change what it does
        if is_adapted(module):
            parts.append((tuple(module.active_adapters), module.disable_adapters, tuple(module.merged_adapters)))
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is None:
                continue
            if tensor.is_inference():
                return None
            # of an offloaded weight there is a new shell after every pass
            parts.append(() if tensor.is_meta else (id(tensor), tensor.data_ptr(), tensor._version, tensor.dtype))
    return tuple(parts)
