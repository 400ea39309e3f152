"""Where the parts of a decoder layer are: attention, output projection, norms (appendix A.1).

Every supported decoder computes ``x_mid = x_in + m · N(Attention(x_in) W_O + b_O)``, where N is the identity
(Llama, Qwen, Mistral) or a post-attention RMSNorm (Gemma-2/3, OLMo-2), and m is 1 or the family's residual multiplier
(Granite). Attention may be softmax attention or a linear layer (gated delta rule, Mamba-2, short convolution); of both
side by side (Falcon-H1) each adds its own term. Where the MLP runs beside attention (Cohere, Phi, GPT-NeoX), x_mid is
what the layer gives less what its MLP adds. Whatever else a model does is found out by the checks of `decomposition`,
never assumed away.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

PLAIN_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)  # of weights that can be read as they are


@dataclass(frozen=True)
class LayerParts:
    """Modules of one decoder layer that attribution reads.

    Parameters
    ----------
    index : int
        Position in the stack.
    layer : nn.Module
        The decoder layer; its input is x_in.
    attention : nn.Module
        Calls the attention interface, or the functions of linear layers.
    o_proj : nn.Linear
        W_O and b_O.
    post_norm : nn.Module or None
        N above, where the family has one.
    mid : nn.Module
        The module whose input is x_mid; ``layer`` itself where a layer is attention alone, and x_mid its output; the
        MLP where that is ``parallel``.
    multiplier : float
        m above, the factor on what attention adds to the residual stream.
    beside : tuple of LayerParts
        What else mixes positions in the same layer.
    parallel : bool
        Whether the MLP runs beside attention, so that no module reads x_mid.
    """

    index: int
    layer: nn.Module
    attention: nn.Module
    o_proj: nn.Linear
    post_norm: nn.Module | None
    mid: nn.Module
    multiplier: float = 1.0
    beside: tuple[LayerParts, ...] = ()
    parallel: bool = False

    @property
    def device(self) -> torch.device:
        """Where the layer's weights lie: a model may be spread over several devices."""
        return self.o_proj.weight.device

    def gain(self) -> torch.Tensor | None:
        """Element-wise gain g of the post-attention norm, up to a constant, shape [d]; None without one.

        An RMSNorm maps the ones vector to g times a constant; reading it this way covers ``weight`` and
        ``1 + weight`` conventions alike. The constant is absorbed by the row scale (see ``row_scale``).
        """
        if self.post_norm is None:
            return None
        weight = self.o_proj.weight
        ones = torch.ones(1, weight.shape[0], dtype=weight.dtype, device=weight.device)
        return self.post_norm.forward(ones)[0].float()  # not __call__: hooks on the norm must not see this probe

    def projection(self) -> torch.Tensor:
        """W_O by input channel with the norm's gain and m folded in, float32, shape [H * head_dim, d]."""
        weight = self.o_proj.weight if type(self.o_proj).__name__ == "Conv1D" else self.o_proj.weight.T  # GPT-2's
        return self._scaled(weight.float())  # [H * head_dim, d]; a view where the model is float32

    def bias(self) -> torch.Tensor | None:
        """b_O with the norm's gain and m folded in, float32, shape [d]."""
        return None if self.o_proj.bias is None else self._scaled(self.o_proj.bias.float())

    def _scaled(self, out: torch.Tensor) -> torch.Tensor:
        """Outputs [..., d] of W_O as they enter the residual stream, but for the norm's row scale."""
        gain = self.gain()
        out = out if gain is None else out * gain
        return out if self.multiplier == 1 else out * self.multiplier

    def row_scale(self, attention_out: torch.Tensor, normed: torch.Tensor) -> torch.Tensor:
        """Scale r_i with N(o_i) = r_i · g ⊙ o_i, fitted from both sides of the norm.

        Parameters
        ----------
        attention_out, normed : torch.Tensor, shape [M, d]
            Input and output of the post-attention norm.

        Returns
        -------
        torch.FloatTensor, shape [M]
        """
        scaled = attention_out.float() * self.gain()  # [M, d]
        return (normed.float() * scaled).sum(-1) / scaled.square().sum(-1).clamp_min(1e-30)


def decoder_layers(model: nn.Module) -> list[LayerParts]:
    """Locate every decoder layer of ``model``.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Or a PEFT wrapper of one. Of a multimodal model, the text decoder is taken.

    Returns
    -------
    list of LayerParts
        In the order of the stack.

    Raises
    ------
    ValueError
        If the model has no layers of the supported form, if any layer of its stack is of another form, or if a W_O
        cannot be read; the message names family, layer and reason.
    """
    kind, decoder = family(model), text_decoder(model)
    stacks = [m for m in decoder.modules() if isinstance(m, nn.ModuleList) and any(map(_mixers, m))]
    # of a decoder that has encoders of its own within (Phi-4-multimodal), the layers
    stacks = [m for m in stacks if m is getattr(decoder, "layers", None)] or stacks
    if not stacks:
        raise ValueError(
            f"unsupported architecture {kind!r}: no decoder layer with self_attn.o_proj. Supported are the "
            "decoders like Llama, Qwen, Mistral, Gemma, OLMo, Cohere, Phi, GPT-NeoX or GPT-2, and hybrids of them with "
            "the gated delta rule, Mamba-2 or short convolutions"
        )
    if len(stacks) > 1:
        raise ValueError(
            f"unsupported architecture {kind!r}: its attention layers stand in {len(stacks)} stacks, and scores add up "
            "over the layers of one"
        )
    stack = stacks[0]
    _check_stack(model, stack, kind)
    return [_parts(index, layer, kind) for index, layer in enumerate(stack) if _mixers(layer)]


def family(model: nn.Module) -> str:
    """Name of the model's family, as its configuration has it."""
    return getattr(getattr(model, "config", None), "model_type", type(model).__name__)


def text_decoder(model: nn.Module) -> nn.Module:
    """The text decoder of a model: an image or audio encoder beside it has attention of its own."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    return model if decoder is None else decoder


# Names of what mixes positions in a layer, and of the factor on what it adds to the residual stream
_MIXERS = {
    "self_attn": ("attn_out_multiplier", "residual_multiplier", "residual_scale"),
    "linear_attn": ("residual_multiplier",), "mamba": ("ssm_out_multiplier", "residual_multiplier"),
    **dict.fromkeys(("conv", "mixer", "attention", "attn"), ()),
}  # fmt: skip


def _mixers(layer: nn.Module) -> list[tuple[nn.Module, nn.Module, float]]:
    """What mixes positions in a layer: each module, its W_O and its multiplier."""
    found = []
    for name, multipliers in _MIXERS.items():
        module = getattr(layer, name, None)
        o_proj = getattr(module, "o_proj", None)
        if o_proj is None and getattr(module, "is_causal", True):  # encoders of images and sound have one as well
            o_proj = next((getattr(module, n) for n in ("out_proj", "dense", "c_proj") if hasattr(module, n)), None)
        if o_proj is not None:
            multiplier = next((float(getattr(layer, m)) for m in multipliers if hasattr(layer, m)), 1.0)
            found.append((module, o_proj, multiplier))
    return found


def _mixes_nothing(layer: nn.Module) -> bool:
    """Whether the layer says that it is an MLP alone (Nemotron-H), or reads images, and no text runs it (Llama 3.2)."""
    return getattr(layer, "block_type", None) in ("mlp", "moe") or hasattr(layer, "cross_attn_attn_gate")


def _check_stack(model: nn.Module, stack: Sequence[nn.Module], kind: str) -> None:
    """ValueError unless each layer that the model counts is one whose attention was located."""
    missing = {i: type(one).__name__ for i, one in enumerate(stack) if not (_mixers(one) or _mixes_nothing(one))}
    if missing:
        raise ValueError(
            f"unsupported architecture {kind!r}: layers {list(missing)} of {len(stack)} "
            f"({', '.join(sorted(set(missing.values())))}) have no self_attn.o_proj, so what they move between "
            "positions (a recurrence, a convolution) would be missing from the scores"
        )
    config = getattr(model, "config", None)
    declared = getattr(config.get_text_config(), "num_hidden_layers", None) if config is not None else None
    if declared is not None and declared != len(stack):
        raise ValueError(
            f"unsupported architecture {kind!r}: {len(stack)} decoder layers were located, but its configuration "
            f"counts {declared}"
        )


def _parts(index: int, layer: nn.Module, kind: str) -> LayerParts:
    """Sort the norms of one layer into post-attention norm and the module that reads x_mid."""

    def norm(*names: str) -> nn.Module | None:
        found = (getattr(layer, name, None) for name in names)
        return next((module for module in found if module is not None and not isinstance(module, nn.Identity)), None)

    post, before_mlp = norm("post_attention_layernorm"), norm("pre_feedforward_layernorm", "pre_mlp_layernorm")
    own = norm("post_self_attn_layernorm", "post_operator_norm", "post_norm1")
    other = norm("pre_ff_layernorm", "ffn_norm", "feedforward_layernorm", "ln_2", "final_layer_norm")
    if hasattr(layer, "mixer"):  # Nemotron-H: attention and MLP are layers of their own
        post_norm, mid = None, layer
    elif other is not None:  # Bamba, LFM, Apertus, GPT-2, OPT: another name for the norm before the MLP
        post_norm, mid = own, other
    elif own is not None:  # GLM-4: a norm of its own after attention, and Llama's name for the one before the MLP
        post_norm, mid = own, post
    elif before_mlp is not None:  # Gemma-2/3: norms on both sides of each block
        post_norm, mid = post, before_mlp
    elif norm("input_layernorm") is None and post is not None:  # OLMo-2: after only
        post_norm, mid = post, getattr(layer, "mlp", None)
    else:  # Llama's name for the norm before the MLP
        post_norm, mid = None, post
    parallel = mid is None or getattr(layer, "use_parallel_residual", False)  # Cohere, GPT-NeoX
    mid = getattr(layer, "mlp", None) if parallel else mid
    if mid is None:
        raise ValueError(
            f"unsupported architecture {kind!r}: layer {index} ({type(layer).__name__}) has no module that reads the "
            "state after attention alone (no post_attention_layernorm), and no mlp beside attention"
        )
    parts = []
    for module, o_proj, multiplier in _mixers(layer):
        _check_projection(index, o_proj, kind)
        parts.append(LayerParts(index, layer, module, o_proj, post_norm, mid, multiplier, parallel=parallel))
    return replace(parts[0], beside=tuple(parts[1:]))


def is_plain(weight: Any) -> bool:
    """Whether a weight is a matrix of numbers, not packed, quantised or spread over processes."""
    return type(weight) in (nn.Parameter, torch.Tensor) and weight.ndim == 2 and weight.dtype in PLAIN_DTYPES


def is_adapted(module: nn.Module) -> bool:
    """Whether a module is a layer of peft, which is slow to import and is loaded wherever a layer of it stands."""
    peft = sys.modules.get("peft.tuners.tuners_utils")
    return peft is not None and isinstance(module, peft.BaseTunerLayer)


def _check_projection(index: int, o_proj: nn.Module, kind: str) -> None:
    """ValueError where W_O is not what the model multiplies with: packed, quantised, or changed by an adapter."""
    if is_adapted(o_proj) and not (o_proj.disable_adapters or o_proj.merged):
        active = sorted(set(o_proj.active_adapters) & o_proj._get_available_adapters())
        if active:
            raise ValueError(
                f"an adapter ({', '.join(active)}) stands beside o_proj of layer {index} in {kind!r} and is not part "
                "of its weight: merge it first (model = model.merge_and_unload(), or model.merge_adapter())"
            )
    weight = getattr(o_proj, "weight", None)
    if not is_plain(weight):
        held = "no weight of its own"
        if isinstance(weight, torch.Tensor):
            held = f"a {type(weight).__name__} of {weight.dtype}, shape {list(weight.shape)}"
        raise ValueError(
            f"W_O of layer {index} cannot be read in {kind!r}: {type(o_proj).__name__} holds {held}. A packed or "
            "quantised o_proj has to be dequantised (load the model in bfloat16, or leave o_proj out of the "
            "quantisation); quantised q, k and v do no harm"
        )
