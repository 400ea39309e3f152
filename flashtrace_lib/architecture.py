"""Where the parts of a decoder layer are: attention, output projection, norms (appendix A.1).

Every supported decoder computes ``x_mid = x_in + N(Attention(x_in) W_O + b_O)``, where N is the identity
(Llama, Qwen, Mistral) or a post-attention RMSNorm (Gemma-2/3, OLMo-2). Whatever else a model does is found out by
the identity check of `decomposition`, never assumed away.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


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
        Calls the attention interface.
    o_proj : nn.Linear
        W_O and b_O.
    post_norm : nn.Module or None
        N above, where the family has one.
    mid : nn.Module
        The module whose input is x_mid.
    """

    index: int
    layer: nn.Module
    attention: nn.Module
    o_proj: nn.Linear
    post_norm: nn.Module | None
    mid: nn.Module

    @property
    def device(self) -> torch.device:
        """Where the layer's weights lie: a model may be spread over several devices."""
        return self.o_proj.weight.device

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return int(self.attention.head_dim)

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
        """W_O by input channel with the norm's gain folded in, float32, shape [H * head_dim, d]."""
        weight = self.o_proj.weight.T.float()  # [H * head_dim, d]; a view where the model is float32
        gain = self.gain()
        return weight if gain is None else weight * gain

    def bias(self) -> torch.Tensor | None:
        """b_O with the norm's gain folded in, float32, shape [d]."""
        if self.o_proj.bias is None:
            return None
        gain = self.gain()
        return self.o_proj.bias.float() if gain is None else self.o_proj.bias.float() * gain

    def value_bias(self) -> torch.Tensor | None:
        """b_V by key/value head, float32, shape [H_kv, 1, head_dim]; None where values have no bias."""
        bias = getattr(getattr(self.attention, "v_proj", None), "bias", None)
        return None if bias is None else bias.float().view(-1, 1, self.head_dim)

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
    """Locate the decoder layers of ``model``.

    Parameters
    ----------
    model : transformers.PreTrainedModel

    Returns
    -------
    list of LayerParts
        In the order of the stack.

    Raises
    ------
    ValueError
        If the model has no layers of the supported form.
    """
    found = [m for m in model.modules() if hasattr(getattr(m, "self_attn", None), "o_proj")]
    parts = [_parts(index, layer) for index, layer in enumerate(found)]
    if not parts:
        kind = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
        raise ValueError(
            f"unsupported architecture {kind!r}: no decoder layer with self_attn.o_proj. Supported are the "
            "Llama-like decoders (Llama, Qwen2, Qwen3, Mistral, Gemma-2/3, OLMo-2 and kin)"
        )
    return parts


def _parts(index: int, layer: nn.Module) -> LayerParts:
    """Sort the norms of one layer into post-attention norm and the module that reads x_mid."""
    attention = layer.self_attn
    if hasattr(layer, "pre_feedforward_layernorm"):  # Gemma-2/3: norms on both sides of each block
        post_norm, mid = layer.post_attention_layernorm, layer.pre_feedforward_layernorm
    elif not hasattr(layer, "input_layernorm") and hasattr(layer, "post_attention_layernorm"):  # OLMo-2: after only
        post_norm, mid = layer.post_attention_layernorm, layer.mlp
    elif hasattr(layer, "post_attention_layernorm"):  # Llama's name for the norm before the MLP
        post_norm, mid = None, layer.post_attention_layernorm
    else:
        raise ValueError(
            f"unsupported architecture: layer {index} ({type(layer).__name__}) has no post_attention_layernorm, "
            "so the state after attention cannot be located"
        )
    return LayerParts(index, layer, attention, attention.o_proj, post_norm, mid)
