"""Rules that modify gradients (AttnLRP, Achtibat et al. 2024; GIM, Edin et al. 2025): relevance is input × gradient.

Every rule keeps the values of the forward pass and changes only the slope that autograd sees:

- a norm is linear with the root mean square, or the standard deviation, that it divides by held fixed;
- an element-wise non-linearity f (SiLU, GELU, soft-caps) has the slope f(x) / x; under GIM its own;
- a product of two activations gives half of its relevance to each factor (gate ⊙ up; attention weights · values;
  queries · keys), so q and k see a quarter of the gradient and v a half;
- softmax is left to autograd; under GIM its slope is that at another temperature;
- everything linear is left to autograd.

Hooks and an attention function carry them, on one model, for the time of one ``with``.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from ..kernel.attention import attend, soft_cap
from ..kernel.interception import Attention, answering, in_this_thread
from ..model.architecture import LayerParts, decoder_layers, text_decoder


@dataclass(frozen=True)
class Rules:
    """One set of rules.

    Parameters
    ----------
    on_scores, on_values : float
        Factors on the gradients of q and k, and on those of v.
    linearised : bool
        Element-wise non-linearities have the slope f(x) / x, not their own.
    temperature : float, optional
        At which the slope of the softmax is taken; see `tempered`. Default: its own slope.
    """

    on_scores: float = 0.25
    on_values: float = 0.5
    linearised: bool = True
    temperature: float | None = None

    @property
    def cap(self) -> Callable[[torch.Tensor, float], torch.Tensor]:
        """How to apply a soft-cap."""
        return capped if self.linearised else soft_cap


ATTNLRP = Rules()
# Ali et al. 2022: the attention weights are held fixed, which conserves relevance through the softmax as well.
CP_LRP = Rules(on_scores=0.0, on_values=1.0)
# The linear maps of an MLP, the last one last; the first two kinds multiply its activation with a second factor.
_GATED = (("gate_proj", "up_proj", "down_proj"), ("gate_up_proj", "down_proj"))
_PLAIN = (("up_proj", "down_proj"), ("fc1", "fc2"), ("c_fc", "c_proj"), ("dense_h_to_4h", "dense_4h_to_h"))


def linearised(x: torch.Tensor, value: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    """``value`` exactly, with the element-wise gradient ``slope`` towards ``x``."""
    return value.detach() + slope.detach().to(x.dtype) * (x - x.detach())


def scale_gradient(x: torch.Tensor, factor: float) -> torch.Tensor:
    """``x`` exactly, with ``factor`` times its gradient."""
    return x.detach() + factor * (x - x.detach())


def capped(scores: torch.Tensor, cap: float) -> torch.Tensor:
    """Soft-cap cap·tanh(x / cap) with the slope f(x) / x, which is 1 at 0."""
    with torch.no_grad():
        value = soft_cap(scores, cap)
        slope = torch.where(scores == 0, 1.0, value / scores)
    return linearised(scores, value, slope)


def tempered(scores: torch.Tensor, temperature: float) -> torch.Tensor:
    """Softmax s(z) over the last dimension, with the slope of s(z / τ) as a function of z / τ.

    With p = s(z / τ), a gradient g becomes p ⊙ (g - p·g). There is no factor 1/τ, as in the code of GIM's authors: at
    τ = 1 it is the softmax's own gradient.

    Parameters
    ----------
    scores : torch.FloatTensor, shape [..., n]
        z; -inf where attention is not allowed.
    temperature : float
        τ > 0.

    Returns
    -------
    torch.FloatTensor, shape [..., n]
    """
    flat = (scores / temperature).softmax(-1)  # its gradient has the factor 1/τ
    return scores.detach().softmax(-1) + temperature * (flat - flat.detach())


def _attention(rules: Rules) -> Attention:
    """Attention under a set of rules."""
    softmax = None if rules.temperature is None else partial(tempered, temperature=rules.temperature)

    def attention(module, query, key, value, mask, **how) -> torch.Tensor:
        query, key = scale_gradient(query, rules.on_scores), scale_gradient(key, rules.on_scores)
        value = scale_gradient(value, rules.on_values)
        return attend(module, query, key, value, mask, cap=rules.cap, softmax=softmax, **how)

    return attention


@contextmanager
def lrp_rules(model: nn.Module, rules: Rules = ATTNLRP, *, check: bool = False) -> Iterator[None]:
    """Give the gradients of ``model`` the slopes of a set of rules; outputs stay as they are.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Any decoder whose norms are RMSNorm or LayerNorm and whose MLPs are no mixture of experts.
    rules : Rules
    check : bool
        Hold every norm, when it is called, against its rule.

    Raises
    ------
    ValueError
        If an MLP, or a norm under ``check``, is of a kind that no rule covers.
    """
    if getattr(model.config.get_text_config(), "clip_qkv", None):
        raise ValueError("there is no rule for clipped queries, keys and values (clip_qkv): use another method")
    mlps = [_mlp(parts) for parts in decoder_layers(model)]
    with ExitStack() as stack:
        stack.enter_context(answering(model, _attention(rules)))
        for norm in (m for m in text_decoder(model).modules() if "Norm" in type(m).__name__):
            hook = in_this_thread(partial(_norm_hook, check))
            stack.callback(norm.register_forward_hook(hook, with_kwargs=True).remove)
        for activation, product in mlps:
            if rules.linearised:
                stack.callback(activation.register_forward_hook(in_this_thread(_activation_hook)).remove)
            if product is not None:
                stack.callback(product.register_forward_pre_hook(in_this_thread(_product_hook)).remove)
        yield


def _mlp(parts: LayerParts) -> tuple[nn.Module, nn.Module | None]:
    """Of a layer's MLP the activation, and what reads the gated product, None without; ValueError for other kinds."""
    mlp = getattr(parts.layer, "mlp", parts.layer)  # in OPT's layers the maps stand beside attention
    activation = next((c for name, c in _children(mlp) if name in ("act_fn", "activation_fn", "act")), None)
    kind = next((names for names in (*_GATED, *_PLAIN) if _maps(mlp, parts.attention) == set(names)), None)
    if activation is None or kind is None or not (mlp is parts.layer or _maps(parts.layer, parts.attention) == {"mlp"}):
        raise ValueError(
            f"there is no rule for the MLP of layer {parts.index} ({type(mlp).__name__}): it needs "
            "down_proj(act_fn(gate_proj(x)) * up_proj(x)), or the same without a gate; use another method"
        )
    return activation, getattr(mlp, kind[-1]) if kind in _GATED else None


def _children(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Named children, of a compiled module those of what was compiled."""
    return getattr(module, "_orig_mod", module).named_children()


def _maps(module: nn.Module, attention: nn.Module) -> set[str]:
    """Names of the children that hold matrices, but for attention."""
    held = {name: child.state_dict().values() for name, child in _children(module) if child is not attention}
    return {name for name, tensors in held.items() if any(t.ndim > 1 for t in tensors)}


def _norm_hook(check: bool, norm: nn.Module, args: tuple, kwargs: dict, out: torch.Tensor) -> torch.Tensor:
    """Hold what a norm divides by fixed: the slope is g / rms(x), and of a LayerNorm that of x less its mean."""
    x = (args[0] if args else kwargs["hidden_states"]).to(out.device)  # the last layer may lie on another
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", 1e-5))  # on the mean square; OLMo writes it out
    signs = torch.ones_like(x[(0,) * (x.ndim - 1)].detach())  # [d]
    with torch.no_grad():  # 1, -1, 1, ... has the mean 0 and the mean square 1: it reads the gain, however that is kept
        level = norm.forward(signs).float()  # [d]
        signs[1::2] = -1
        up, down = norm.forward(signs).float(), norm.forward(-signs).float()  # [d] each
    gain, bias = (up - down) / 2 * signs * (1 + eps) ** 0.5, (up + down) / 2  # [d] each
    centred = (level - bias).abs().sum() < gain.abs().sum() / 2  # what is the same in all channels is taken away
    x = x - x.mean(-1, keepdim=True) * centred
    with torch.no_grad():
        slope = gain * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)  # [..., d]
        gap = (slope * x.float() + bias - out.float()).abs() if check else torch.zeros(1)
    if check and not gap.amax() <= max(1e-3, 16 * torch.finfo(out.dtype).eps) * out.float().abs().amax():
        raise ValueError(f"there is no rule for {type(norm).__name__}, only RMSNorm and LayerNorm: use another method")
    return linearised(x, out, slope)


def _activation_hook(module: nn.Module, args: tuple, out: torch.Tensor) -> torch.Tensor:
    """Slope f(x) / x; at 0 its limit, read off close by."""
    x = args[0]
    with torch.no_grad():
        near = torch.full((1,), 1e-3, device=x.device)
        slope = torch.where(x == 0, module.forward(near) / near, out.float() / x.float())
    return linearised(x, out, slope)


def _product_hook(_, args: tuple) -> tuple:
    """Half of the product's gradient goes to each of its factors."""
    return (scale_gradient(args[0], 0.5), *args[1:])
