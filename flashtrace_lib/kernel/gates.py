"""Whether what stands between a layer's mixed values and W_O is what `capture` takes it for: a gate, a norm, or both.

The factor of each row is read as W_O's input over the mixed values, and that would hide anything: another recurrence,
say. So attention is run again with every mixed value a 1. A gate then shows itself, and an RMSNorm its gain, but for
one number a row and head; whatever else there is gives something else.
"""

from contextlib import ExitStack

import torch
from torch import nn

from ..model.architecture import family
from ..model.state import evaluating, input_device
from .activations import Activations, LayerActivations
from .attention import attend
from .interception import answering, in_this_thread
from .mixer_calls import answering_ones


@torch.inference_mode()
def check_gates(model: nn.Module, activations: Activations, ids: torch.Tensor, tolerance: float) -> None:
    """Refuse a model in which the rows' factors depend on more than the row.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    activations : Activations
        Captured over all of ``ids``.
    ids : torch.LongTensor, shape [N]
    tolerance : float
        Largest relative difference of a factor.

    Raises
    ------
    ValueError
    """
    gated = [one for layer in activations.layers for one in layer.mixers if not one.is_plain()]
    if not gated:
        return
    for layer, found in zip(gated, _of_ones(model, gated, ids), strict=True):
        if not _fits(layer, found) <= tolerance:
            raise ValueError(
                f"unsupported architecture {family(model)!r}: layer {layer.parts.index} does more to its mixed values "
                "than a gate or an RMSNorm does before they reach W_O, so contributions cannot be told apart"
            )


def _of_ones(model: nn.Module, layers: list[LayerActivations], ids: torch.Tensor) -> list[torch.Tensor]:
    """What W_O of each layer is given where the mixed values are ones, [N, H * head_dim]."""
    found: dict[nn.Module, torch.Tensor] = {}
    again: list[nn.Module] = []  # the module that runs a second time

    def answer(module, *args, **how) -> torch.Tensor:
        out = attend(module, *args, **how)
        return torch.ones_like(out) if again else out

    def run_again(module, args, kwargs, _) -> None:
        again.append(module)
        with answering_ones():
            module.forward(*args, **kwargs)  # not __call__: hooks must not see it
        again.clear()

    def read(_, args) -> None:
        if again:
            found[again[0]] = args[0][0]

    with ExitStack() as stack:
        stack.enter_context(answering(model, answer))
        stack.enter_context(evaluating(model))
        for layer in layers:
            stack.callback(layer.parts.o_proj.register_forward_pre_hook(in_this_thread(read)).remove)
            hook = layer.parts.attention.register_forward_hook(in_this_thread(run_again), with_kwargs=True)
            stack.callback(hook.remove)
        model(ids[None].to(input_device(model)), use_cache=False)
    return [found[layer.parts.attention] for layer in layers]


def _fits(layer: LayerActivations, found: torch.Tensor) -> float:
    """Largest relative difference between a row's factor and a multiple of what ones gave, over rows and heads."""
    heads, width = layer.n_heads, layer.parts.o_proj.weight.shape[1] // layer.n_heads
    found = found.float().view(len(found), heads, width)  # [N, H, head_dim]
    gate = torch.ones_like(found) if layer.gate is None else layer.gate
    found = found * (gate != 0)  # nothing is known where the mixed value was 0
    scale = (gate * found).sum(-1, keepdim=True) / found.square().sum(-1, keepdim=True).clamp_min(1e-30)
    return float(((gate - scale * found).norm(dim=-1) / gate.norm(dim=-1).clamp_min(1e-30)).max())
