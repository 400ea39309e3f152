"""What a model must satisfy before anything is attributed in it.

A decomposition is right exactly when, at every row of every layer, Σ_h Σ_j z_hj + R + b_O = x_mid, and when the pass it
was read from is the model's own: every layer located, every argument of its attention known (`attention.check_call`),
the ordinary pass's logits. All of it is checked on a short input, again whenever a weight, an adapter or a module has
changed since; a model that fails is refused, because its scores would be silently wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn

from ..model.architecture import decoder_layers, family
from ..model.state import evaluating
from .activations import Activations
from .capture import capture
from .gates import check_gates
from .proximity import aggregate

TOLERANCE = 1e-3  # of the identity, relative to what attention adds; in float32
LOGIT_TOLERANCE = 1e-3  # of the logits, relative to their spread at a position; in float32
_CHECK_TOKENS = 24
# model -> name of a check -> `_state` in which the model passed it
_PASSED: WeakKeyDictionary[nn.Module, dict[str, tuple]] = WeakKeyDictionary()


def decomposition_gaps(model: nn.Module, input_ids: torch.Tensor) -> list[float]:
    """How far contributions, residual and bias are from the state after attention, one number a layer.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    input_ids : torch.LongTensor, shape [N]

    Returns
    -------
    list of float
        Largest ‖Y − x_mid‖₂ / ‖x_mid − x_in‖₂ over all rows: relative to what attention adds, since next to a large
        residual a missing factor would not be seen. What the state's own rounding accounts for is not counted.
    """
    return _gaps(capture(model, input_ids, (0, len(input_ids)), keep_mid=True))


@torch.inference_mode()
def _gaps(activations: Activations) -> list[float]:
    """`decomposition_gaps` of a captured pass."""
    n, gaps = activations.n_tokens, []
    for layer in activations.layers:
        _, _, y = aggregate(layer, torch.eye(n), (0, n), 0)  # [N, d]: each row a span of its own
        x_mid = layer.x_mid.float()  # [N, d]
        added = (x_mid - layer.x_in.float()).norm(dim=-1)  # [N]
        rounding = torch.finfo(layer.x_mid.dtype).eps * x_mid.norm(dim=-1)  # [N]
        gap = ((y - x_mid).norm(dim=-1) - rounding).clamp_min(0) / added.clamp_min(1e-30)  # [N]
        gaps.append(float(gap.max()))
    return gaps


def check_decomposition(model: nn.Module) -> None:
    """Assert that contributions in ``model`` can be read off its forward pass, and add up.

    Cheap where the model is as it was when it was last found right; two short passes where it is not. In half
    precision the model's own rounding is a few times its machine epsilon, which the tolerances follow.

    Parameters
    ----------
    model : transformers.PreTrainedModel

    Raises
    ------
    ValueError
        If a layer was not located, attention is of an unknown kind, the identity or the logits fail, or layers are
        offloaded; the message names family, layer and reason.
    """
    check_once(model, "decomposition", partial(_check, model))


def check_weights(model: nn.Module, method: str) -> None:
    """As `check_decomposition`, and assert that each layer weights a source with one number a head.

    Raises
    ------
    ValueError
        Also where a layer is linear attention, has a gate behind its attention, or something beside it.
    """
    check_decomposition(model)
    check_once(model, "weights", partial(_check_weights, model, method))


def _check_weights(model: nn.Module, method: str) -> None:
    ids = check_ids(model)
    layers = capture(model, ids, (0, len(ids))).layers
    other = [layer.parts.index for layer in layers if layer.beside or not layer.is_plain()]
    if other:
        raise ValueError(
            f"{method} needs softmax attention without a gate in every layer; layers {other} of {family(model)!r} are "
            "of another kind. FlashTrace, IFR, CAGE and rollout follow them: use one of these"
        )


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


def _check(model: nn.Module) -> None:
    """Everything that `check_decomposition` asserts."""
    layers = decoder_layers(model)
    offloaded = [parts.index for parts in layers if parts.device.type == "meta"]
    if offloaded:
        raise ValueError(
            f"layers {offloaded} are offloaded: their weights lie on no device between forward passes, and attribution "
            "reads them; load the model in bfloat16, on more GPUs, or with device_map='cpu'"
        )
    ids = check_ids(model)
    activations = capture(model, ids, (0, len(ids)), keep_mid=True, keep_logits=True)
    _check_identity(activations, model)
    check_gates(model, activations, ids, _tolerance(model, TOLERANCE))
    plain = plain_logits(model, ids)
    check_equal(model, activations.logits.to(plain.device).float(), plain, "with captured attention")


def check_ids(model: nn.Module) -> torch.Tensor:
    """The tokens that checks read, int64 [24]: spread over the vocabulary, no seed needed."""
    head = model.get_output_embeddings()  # it may form logits of fewer tokens than there are embeddings
    sizes = [model.get_input_embeddings().num_embeddings, getattr(head, "out_features", None)]
    vocabulary = min(size for size in sizes if size)
    return torch.arange(_CHECK_TOKENS).mul_(7919).remainder_(vocabulary)


@torch.inference_mode()
def plain_logits(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Logits of an ordinary pass of the model over ids [N], float32 [N, V]."""
    with evaluating(model):
        return model(ids[None].to(model.get_input_embeddings().weight.device), use_cache=False).logits[0].float()


def check_equal(model: nn.Module, found: torch.Tensor, plain: torch.Tensor, how: str) -> None:
    """ValueError unless two sets of a model's logits are the same up to rounding.

    Parameters
    ----------
    found, plain : torch.FloatTensor, shape [N, V]
        Logits at N positions: some other way through the model, and an ordinary pass.
    how : str
        Which other way, for the message.
    """
    spread = (plain - plain.mean(-1, keepdim=True)).norm(dim=-1).clamp_min(1e-30)  # [N]
    gaps = (found - plain).norm(dim=-1) / spread  # [N]
    # In half precision a rounding error may send a token to another expert: the median forgives one, not a pattern.
    gap = float(gaps.max() if _is_single(model) else gaps.median())
    allowed = _tolerance(model, LOGIT_TOLERANCE)
    if not gap <= allowed:  # also refuses NaN
        raise ValueError(
            f"unsupported architecture {family(model)!r}: {how} its logits are not those of an ordinary pass (relative "
            f"gap {gap:.2g}, allowed {allowed:.2g}). Attribution would explain another model, so this one is refused"
        )


def _check_identity(activations: Activations, model: nn.Module) -> None:
    """ValueError where the contributions of some layer do not add up."""
    gaps, allowed = _gaps(activations), _tolerance(model, TOLERANCE)
    overflown = [i for i, gap in enumerate(gaps) if not gap < float("inf")]
    if overflown:
        raise ValueError(
            f"non-finite activations in layer {overflown[0]}: the forward pass overflowed; load the model in float32 "
            "or bfloat16"
        )
    worst = max(range(len(gaps)), key=gaps.__getitem__)
    if gaps[worst] > allowed:
        raise ValueError(
            f"unsupported architecture {family(model)!r}: in layer {worst} the contributions do not add up to the "
            f"state after attention (relative gap {gaps[worst]:.2g}, allowed {allowed:.2g}). Attribution would be "
            "wrong, so the model is refused; check that every layer computes x + norm(attention(x) W_O + b_O)"
        )


def _dtype(model: nn.Module) -> torch.dtype:
    return model.get_input_embeddings().weight.dtype


def _is_single(model: nn.Module) -> bool:
    return torch.finfo(_dtype(model)).eps <= torch.finfo(torch.float32).eps


def _tolerance(model: nn.Module, single: float) -> float:
    """``single`` in float32 and float64; a few epsilons of the model's dtype in half precision."""
    return single if _is_single(model) else 8 * torch.finfo(_dtype(model)).eps


def _state(model: nn.Module) -> tuple | None:
    """What the checks rest on: modules, adapters that act, weights and how often each was written to.

    Returns
    -------
    tuple or None
        None where PyTorch does not count the writes (weights made in inference mode).
    """
    parts: list[Any] = []
    for module in model.modules():
        parts.append((id(module), *module._forward_pre_hooks, *module._forward_hooks))  # a hook may change what it does
        if isinstance(module, BaseTunerLayer):
            parts.append((tuple(module.active_adapters), module.disable_adapters, tuple(module.merged_adapters)))
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is None:
                continue
            if tensor.is_inference():
                return None
            parts.append((id(tensor), tensor.data_ptr(), tensor._version, tensor.dtype))
    return tuple(parts)
