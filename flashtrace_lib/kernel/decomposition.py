"""What a model must satisfy before anything is attributed in it.

A decomposition is right exactly when, at every row of every layer, Σ_h Σ_j z_hj + R + b_O = x_mid, and when the pass it
was read from is the model's own: every layer located, every argument of its attention known (`attention.check_call`),
the ordinary pass's logits. All of it is checked on a short input, again whenever a weight, an adapter or a module has
changed since; a model that fails is refused, because its scores would be silently wrong.
"""

from functools import partial

import torch
from torch import nn

from ..model.architecture import family
from ..model.checks import check_equal, check_ids, check_once, plain_logits, tolerance
from ..model.wrapped import has_virtual_tokens
from .activations import Activations
from .capture import capture
from .gates import check_gates
from .proximity import aggregate

TOLERANCE = 1e-3  # of the identity, relative to what attention adds; in float32


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


def _check(model: nn.Module) -> None:
    """Everything that `check_decomposition` asserts."""
    check_readable(model)
    ids = check_ids(model)
    activations = capture(model, ids, (0, len(ids)), keep_mid=True, keep_logits=True)
    _check_identity(activations, model)
    check_gates(model, activations, ids, tolerance(model, TOLERANCE))
    plain = plain_logits(model, ids)
    check_equal(model, activations.logits.to(plain.device).float(), plain, "with captured attention")


def check_readable(model: nn.Module) -> None:
    """ValueError where weights are offloaded, or peft puts tokens before the text that have no scores."""
    offloaded = {name.rpartition(".")[0] for name, weight in model.named_parameters() if weight.is_meta}
    if offloaded:
        raise ValueError(
            f"{', '.join(sorted(offloaded)[:3])}{', …' if len(offloaded) > 3 else ''}: weights are offloaded, on no "
            "device between forward passes, and this method reads them or needs gradients: load the model in bfloat16, "
            "on more GPUs or with device_map='cpu', or use a method that needs neither, as 'perturbation'"
        )
    if has_virtual_tokens(model):
        raise ValueError(
            "prompt, prefix and p-tuning put virtual tokens before the text, which this method cannot see: use one "
            "that changes the input ('perturbation', 'contextcite'), or explain the model without them "
            "(model.disable_adapter())"
        )


def _check_identity(activations: Activations, model: nn.Module) -> None:
    """ValueError where the contributions of some layer do not add up."""
    gaps, allowed = _gaps(activations), tolerance(model, TOLERANCE)
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
