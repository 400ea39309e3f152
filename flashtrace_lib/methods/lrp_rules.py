"""Rules that modify gradients (AttnLRP, Achtibat et al. 2024; GIM, Edin et al. 2025): relevance is input × gradient.

Every rule keeps the values of the forward pass and changes only the slope that autograd sees:

- RMSNorm is linear with its root mean square held fixed;
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
from ..model.architecture import decoder_layers, text_decoder


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
_GATED = ("gate_proj", "up_proj", "down_proj", "act_fn")


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
def lrp_rules(model: nn.Module, rules: Rules = ATTNLRP) -> Iterator[None]:
    """Give the gradients of ``model`` the slopes of a set of rules; outputs stay as they are.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Any decoder with RMSNorm and a gated MLP (Llama, Qwen2/3, Mistral, Gemma-2/3, OLMo-2).
    rules : Rules

    Raises
    ------
    ValueError
        If a norm or an MLP is of a kind that no rule covers.
    """
    norms, mlps = _norms(model), _mlps(model)
    with ExitStack() as stack:
        stack.enter_context(answering(model, _attention(rules)))
        for norm in norms:
            stack.callback(norm.register_forward_hook(in_this_thread(_norm_hook(norm)), with_kwargs=True).remove)
        for mlp in mlps:
            if rules.linearised:
                stack.callback(mlp.act_fn.register_forward_hook(in_this_thread(_activation_hook)).remove)
            stack.callback(mlp.down_proj.register_forward_pre_hook(in_this_thread(_product_hook)).remove)
        yield


def _norms(model: nn.Module) -> list[nn.Module]:
    """All norm modules of the decoder; ValueError where one is not an RMSNorm."""
    norms = [m for m in text_decoder(model).modules() if type(m).__name__.endswith("Norm")]
    for norm in norms:
        if not type(norm).__name__.endswith("RMSNorm") or _eps(norm) is None:
            raise ValueError(f"there is no rule for {type(norm).__name__}, only for RMSNorm: use another method")
    return norms


def _mlps(model: nn.Module) -> list[nn.Module]:
    """The gated MLP of every decoder layer; ValueError where a layer has another kind."""
    mlps = []
    for parts in decoder_layers(model):
        mlp = getattr(parts.layer, "mlp", None)
        if not all(isinstance(getattr(mlp, name, None), nn.Module) for name in _GATED):
            raise ValueError(
                f"there is no rule for the MLP of layer {parts.index} ({type(mlp).__name__}): it needs "
                "down_proj(act_fn(gate_proj(x)) * up_proj(x)); use another method"
            )
        mlps.append(mlp)
    return mlps


def _eps(norm: nn.Module) -> float | None:
    """Constant that an RMSNorm adds to the mean square."""
    return getattr(norm, "variance_epsilon", getattr(norm, "eps", None))


def _norm_hook(norm: nn.Module) -> Callable:
    """Hook that holds the root mean square fixed: the slope is g / rms(x)."""
    eps = _eps(norm)

    def hook(_, args, kwargs, out: torch.Tensor) -> torch.Tensor:
        x = (args[0] if args else kwargs["hidden_states"]).to(out.device)  # the last layer may lie on another
        with torch.no_grad():  # an RMSNorm maps ones to g / sqrt(1 + eps), whether its weight is g, g - 1 or not there
            gain = norm.forward(x.new_ones(x.shape[-1])).float() * (1 + eps) ** 0.5  # [d]
            slope = gain * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)  # [..., d]
        return linearised(x, out, slope)

    return hook


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
