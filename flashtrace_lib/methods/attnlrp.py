"""Relevance through the attention: AttnLRP (Achtibat et al. 2024; appendix D) and GIM (Edin et al. 2025)."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import ClassVar

import torch
from torch import nn

from ..attribution import Attribution
from ..kernel.decomposition import check_weights
from ..model.architecture import is_plain
from ..model.wrapped import without_peft
from ..sample import Sample
from .gradient_base import GradientMethod, Target, check_forward, differentiable, embed, fits, target_of
from .lrp_rules import ATTNLRP, CP_LRP, Rules, capped, lrp_rules
from .perturbation_base import check_choice

_RULES = {"attnlrp": ATTNLRP, "cp_lrp": CP_LRP}


@dataclass
class RelevanceMethod(GradientMethod):
    """Relevance of the input embeddings for the logits of O: x · ∂logit/∂x, under rules that modify gradients."""

    removed: ClassVar[dict] = {"targets": "span", "normalise": False}

    @property
    @abstractmethod
    def _rules(self) -> Rules:
        """The rules of `lrp_rules`."""

    def _attribute(self, model: nn.Module, sample: Sample) -> Attribution:
        check_weights(model, self.name)
        rules = self._rules
        check_forward(model, self.name, partial(_ruled_logits, model, rules), logits=True)
        target = target_of(model, sample)
        maps = None if rules.temperature is None else model.config.get_text_config().num_attention_heads
        recompute = not fits(model, len(target.context), len(target.ids), maps=maps)
        with differentiable(model, recompute=recompute), lrp_rules(model, rules):
            embeddings = embed(model, target.context).requires_grad_()  # [1, n, d]
            logit = target_logits(model, embeddings, target, rules.cap).sum()
            (gradient,) = torch.autograd.grad(logit, embeddings)  # [1, n, d]
        relevance = (gradient[0].float() * embeddings[0].detach().float()).sum(-1).cpu()  # [n]
        passes = {"forward_passes": 1 + recompute, "backward_passes": 1}  # a recomputed context runs twice
        sums = {"logit": float(logit.detach()), "relevance": float(relevance.sum())}
        return self._attribution(model, relevance / len(target.ids), sample, **passes, **sums)


@dataclass
class AttnLRP(RelevanceMethod):
    """Relevance of the input embeddings for the logits of O: x · ∂logit/∂x under the rules of `lrp_rules`.

    The logit of every token of O is read at the position that predicts it. Conservation: the relevance of all tokens
    sums to the logit under "cp_lrp" without biases; under "attnlrp" the softmax, and in either the biases, keep a
    part. The metadata reports both sums as ``relevance`` and ``logit``. Relevance often heaps up on the first
    token of the context, which attention uses as a sink.

    Parameters
    ----------
    rule : {"attnlrp", "cp_lrp"}
        Relevance through the attention weights as well, or through the values alone (Ali et al. 2022).

    Notes
    -----
    The authors' implementation (github.com/rachtibat/LRP-eXplains-Transformers) states that "LRP is a patented
    technology that can only be used free of charge for personal and scientific purposes"; ask a lawyer before any
    other use, of this code too. The same page warns of Qwen3, the family of the paper's experiments: "Attribution
    skewed toward first token".

    References
    ----------
    Achtibat et al., "AttnLRP", 2024; Ali et al., "XAI for Transformers", 2022; FlashTrace, appendix D.
    """

    rule: str = "attnlrp"

    name: ClassVar[str] = "attnlrp"

    def __post_init__(self) -> None:
        check_choice("rule", self.rule, tuple(_RULES))

    @property
    def _rules(self) -> Rules:
        return _RULES[self.rule]


@dataclass
class GIM(RelevanceMethod):
    """Relevance x · ∂logit/∂x of the input embeddings, with a backward pass that accounts for self-repair.

    Where one attention score falls, the softmax gives its weight to the others; where their values are alike, neither
    ablation nor gradient sees how much the score mattered. So the backward pass takes the softmax's slope at a higher
    temperature, at which weights are more even. As in AttnLRP, norms are held fixed and products share their gradient
    (q and k ÷ 4, v ÷ 2, gate ⊙ up ÷ 2); unlike there, activations and soft-caps keep their own slopes. Values of the
    forward pass are unchanged.

    The paper explains the difference of two answers' logits; here, as in `AttnLRP`, the sum of the logits of O, each
    read at the position that predicts it. Attention maps are formed and kept for the backward pass, so that memory
    grows with the square of the context; beyond what is free they are recomputed layer by layer.

    Parameters
    ----------
    temperature : float
        τ at which the slope of the softmax is taken: with p = softmax(z / τ), a gradient g becomes p ⊙ (g - p·g),
        without a further factor 1/τ, as the authors' code has it. 1 leaves the softmax alone.

    References
    ----------
    Edin et al., "GIM: Improved Interpretability for Large Language Models", 2025 (arXiv 2505.17630).
    """

    temperature: float = 2.0

    name: ClassVar[str] = "gim"

    def __post_init__(self) -> None:
        if not 0 < self.temperature < inf:
            raise ValueError(f"temperature must be positive and finite, got {self.temperature!r}: 2 is the paper's")

    @property
    def _rules(self) -> Rules:
        return Rules(linearised=False, temperature=self.temperature)


def _ruled_logits(model: nn.Module, rules: Rules, target: Target) -> torch.Tensor:
    """`target_logits` of plain tokens under the rules."""
    with differentiable(model), lrp_rules(model, rules, check=True):
        return target_logits(model, embed(model, target.context), target, rules.cap)


def target_logits(
    model: nn.Module,
    embeddings: torch.Tensor,
    target: Target,
    cap: Callable[[torch.Tensor, float], torch.Tensor] = capped,
) -> torch.Tensor:
    """Logits of the target tokens alone, soft-capped by ``cap`` where the model caps them.

    Only M of the M × V logits are formed where the head is an ordinary matrix.

    Parameters
    ----------
    embeddings : torch.Tensor, shape [1, n, d]
    target : Target
    cap : callable
        Takes logits and the model's cap.

    Returns
    -------
    torch.FloatTensor, shape [M]
    """
    body = without_peft(model).base_model
    hidden = body(inputs_embeds=embeddings, use_cache=False).last_hidden_state[0, slice(*target.rows)]  # [M, d]
    head = model.get_output_embeddings()
    ids = target.ids.to(head.weight.device)
    hidden = hidden.to(ids.device)
    if type(head) is nn.Linear and is_plain(head.weight):
        logits = (hidden.float() * head.weight[ids].float()).sum(-1)  # [M, d] -> [M]
        logits = logits if head.bias is None else logits + head.bias[ids].float()
    else:  # adapters, or packed weights
        logits = head(hidden).float().gather(-1, ids[:, None])[:, 0]  # [M, V] -> [M]
    config = model.config.get_text_config()
    scale = getattr(without_peft(model), "logit_scale", None) or 1.0  # Cohere; Aya's weights have it, its model has not
    logits = logits * scale / getattr(config, "logits_scaling", 1.0)  # Granite
    most = getattr(config, "final_logit_softcapping", None)
    return logits if most is None else cap(logits, most)
