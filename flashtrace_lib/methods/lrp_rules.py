"""Rules of AttnLRP as modified gradients (Achtibat et al. 2024): relevance is input × gradient.

Every rule keeps the values of the forward pass and changes only the slope that autograd sees:

- RMSNorm is linear with its root mean square held fixed;
- an element-wise non-linearity f has the slope f(x) / x (SiLU, GELU, soft-caps);
- a product of two activations gives half of its relevance to each factor (gate ⊙ up; attention weights · values;
  queries · keys), so q and k see a quarter of the gradient and v a half;
- softmax and everything linear are left to autograd.

Hooks and a registered attention function carry them, on one model, for the time of one ``with``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from ..kernel.attention import attend, check_call, soft_cap
from ..kernel.capture import attention_implementation
from ..model.architecture import decoder_layers

# rule -> factor on the gradients of q and k, factor on that of v. CP-LRP (Ali et al. 2022) holds the attention
# weights fixed, which conserves relevance through the softmax as well.
RULES = {"attnlrp": (0.25, 0.5), "cp_lrp": (0.0, 1.0)}
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


def _rule_attention(
    factors: tuple[float, float],
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Attention function of one rule."""
    check_call(module, query, attention_mask, kwargs)
    on_scores, on_values = factors
    query, key = scale_gradient(query, on_scores), scale_gradient(key, on_scores)
    value = scale_gradient(value, on_values)
    return attend(module, query, key, value, attention_mask, scaling, softcap, capped, s_aux, **kwargs), None


for _rule, _factors in RULES.items():
    AttentionInterface.register(f"attribution_{_rule}", partial(_rule_attention, _factors))
    AttentionMaskInterface.register(f"attribution_{_rule}", sdpa_mask)


@contextmanager
def lrp_rules(model: nn.Module, rule: str = "attnlrp") -> Iterator[None]:
    """Give the gradients of ``model`` the slopes of a rule; outputs stay as they are.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Any decoder with RMSNorm and a gated MLP (Llama, Qwen2/3, Mistral, Gemma-2/3, OLMo-2).
    rule : {"attnlrp", "cp_lrp"}
        `RULES`.

    Raises
    ------
    ValueError
        If a norm or an MLP is of a kind that no rule covers.
    """
    norms, mlps = _norms(model), _mlps(model)
    with ExitStack() as stack:
        stack.enter_context(attention_implementation(model, f"attribution_{rule}"))
        for norm in norms:
            stack.callback(norm.register_forward_hook(_norm_hook(norm), with_kwargs=True).remove)
        for mlp in mlps:
            stack.callback(mlp.act_fn.register_forward_hook(_activation_hook).remove)
            stack.callback(mlp.down_proj.register_forward_pre_hook(_product_hook).remove)
        yield


def _norms(model: nn.Module) -> list[nn.Module]:
    """All norm modules; ValueError where one is not an RMSNorm."""
    norms = [m for m in model.modules() if type(m).__name__.endswith("Norm")]
    for norm in norms:
        if not type(norm).__name__.endswith("RMSNorm") or _eps(norm) is None:
            raise ValueError(f"AttnLRP has no rule for {type(norm).__name__}, only for RMSNorm: use another method")
    return norms


def _mlps(model: nn.Module) -> list[nn.Module]:
    """The gated MLP of every decoder layer; ValueError where a layer has another kind."""
    mlps = []
    for parts in decoder_layers(model):
        mlp = getattr(parts.layer, "mlp", None)
        if not all(isinstance(getattr(mlp, name, None), nn.Module) for name in _GATED):
            raise ValueError(
                f"AttnLRP has no rule for the MLP of layer {parts.index} ({type(mlp).__name__}): it needs "
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
    with torch.no_grad():  # an RMSNorm maps ones to g / sqrt(1 + eps), whether its weight is g or g - 1
        ones = torch.ones_like(norm.weight)
        gain = norm.forward(ones).float() * (1 + eps) ** 0.5  # [d]

    def hook(_, args, kwargs, out: torch.Tensor) -> torch.Tensor:
        x = (args[0] if args else kwargs["hidden_states"]).to(out.device)  # the last layer may lie on another
        with torch.no_grad():
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
