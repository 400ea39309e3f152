"""The identity behind every score: contributions + residual + output bias = state after attention.

A decomposition is right exactly when Σ_h Σ_j z_hj + R + b_O = x_mid at every row of every layer. It is asserted
once for each model on a short input; a model that fails is refused, because its scores would be silently wrong.
"""

from __future__ import annotations

from weakref import WeakSet

import torch
from torch import nn

from .activations import capture
from .architecture import decoder_layers
from .proximity import aggregate

TOLERANCE = 1e-3  # relative, in float32
_CHECK_TOKENS = 24
_CHECKED: WeakSet[nn.Module] = WeakSet()


def decomposition_gaps(model: nn.Module, input_ids: torch.Tensor) -> list[float]:
    """Largest relative gap ‖Y − x_mid‖₂ / ‖x_mid‖₂ over all rows, one number a layer.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    input_ids : torch.LongTensor, shape [N]

    Returns
    -------
    list of float
        One gap for each decoder layer.
    """
    n = len(input_ids)
    activations = capture(model, input_ids, (0, n), keep_mid=True)
    gaps = []
    with torch.inference_mode():
        for layer in activations.layers:
            _, _, y = aggregate(layer, torch.eye(n), (0, n), 0)  # [N, d]: each row a span of its own
            x_mid = layer.x_mid.float()  # [N, d]
            gap = (y - x_mid).norm(dim=-1) / x_mid.norm(dim=-1).clamp_min(1e-30)  # [N]
            gaps.append(float(gap.max()))
    return gaps


def check_decomposition(model: nn.Module) -> None:
    """Assert the identity once per model.

    The tolerance is 1e-3 in float32; in half precision the model's own rounding of x_mid is a few times its machine
    epsilon, which the tolerance follows.

    Raises
    ------
    ValueError
        If the identity fails (the message names the layer and the gap), or layers are offloaded.
    """
    if model in _CHECKED:
        return
    offloaded = [parts.index for parts in decoder_layers(model) if parts.device.type == "meta"]
    if offloaded:
        raise ValueError(
            f"layers {offloaded} are offloaded: their weights lie on no device between forward passes, and attribution "
            "reads them; load the model in bfloat16, on more GPUs, or with device_map='cpu'"
        )
    vocabulary = model.get_input_embeddings().num_embeddings
    ids = torch.arange(_CHECK_TOKENS).mul_(7919).remainder_(vocabulary)  # spread over the vocabulary, no seed needed
    gaps = decomposition_gaps(model, ids)
    tolerance = max(TOLERANCE, 4 * torch.finfo(model.dtype).eps)
    worst = max(range(len(gaps)), key=lambda i: gaps[i] if gaps[i] == gaps[i] else float("inf"))
    if not gaps[worst] <= tolerance:  # also refuses NaN
        kind = getattr(model.config, "model_type", type(model).__name__)
        raise ValueError(
            f"unsupported architecture {kind!r}: in layer {worst} the contributions do not add up to the state after "
            f"attention (relative gap {gaps[worst]:.2g}, allowed {tolerance:.2g}). Attribution would be wrong, so the "
            "model is refused; check that every layer computes x + norm(attention(x) W_O + b_O)"
        )
    _CHECKED.add(model)
