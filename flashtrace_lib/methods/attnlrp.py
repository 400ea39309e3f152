"""AttnLRP: layer-wise relevance propagation through attention (Achtibat et al. 2024; appendix D)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from peft import PeftModel
from torch import nn
from tqdm import tqdm

from ..attribution import Attribution
from ..kernel.decomposition import check_decomposition
from ..sample import Sample
from .gradient_base import Target, TargetMethod, check_forward, differentiable, embed, graph_bytes, target_of
from .lrp_rules import ATTNLRP, CP_LRP, Rules, capped, lrp_rules
from .perturbation_base import check_choice

_RULES = {"attnlrp": ATTNLRP, "cp_lrp": CP_LRP}


@dataclass
class RelevanceMethod(TargetMethod):
    """Relevance of the input embeddings for the logits of O: x · ∂logit/∂x, under rules that modify gradients.

    Parameters
    ----------
    targets, normalise
        See `TargetMethod`. "token" takes one backward pass for each token of O, in batches, over one forward pass.
    max_batch_bytes : int, optional
        See `GradientMethod`; decides how many backward passes run at once.
    """

    @property
    @abstractmethod
    def _rules(self) -> Rules:
        """The rules of `lrp_rules`."""

    def _attribute(self, model: nn.Module, sample: Sample) -> Attribution:
        check_decomposition(model)
        rules = self._rules
        check_forward(model, f"{self.name} {self.setting()}".strip(), partial(_ruled_logits, model, rules), logits=True)
        target = target_of(model, sample)
        maps = None if rules.temperature is None else model.config.get_text_config().num_attention_heads
        at_once = self._at_once(model, graph_bytes(model, len(target.context), len(target.ids), maps=maps))
        with differentiable(model, recompute=at_once == 0), lrp_rules(model, rules):
            embeddings = embed(model, target.context).requires_grad_()  # [1, n, d]
            logits = target_logits(model, embeddings, target, rules.cap)  # [M]
            if self.targets == "span":
                vectors = relevance(embeddings, logits.sum()[None], 1)  # [1, n]
            else:
                vectors = relevance(embeddings, logits, at_once, progress=f"{self.name} {sample.id}")  # [M, n]
        # a recomputed context is run again by every backward pass
        forward_passes = 1 if at_once else 1 + len(vectors)
        return self._attribution(
            self._average(vectors, target),
            sample,
            forward_passes=forward_passes,
            backward_passes=len(vectors),
            logit=float(logits.detach().sum()),
            relevance=float(vectors.sum()),
        )


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
    targets, normalise, max_batch_bytes
        See `RelevanceMethod`.

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
        super().__post_init__()
        check_choice("rule", self.rule, tuple(_RULES))

    @property
    def _rules(self) -> Rules:
        return _RULES[self.rule]


def _ruled_logits(model: nn.Module, rules: Rules, target: Target) -> torch.Tensor:
    """`target_logits` of plain tokens under the rules."""
    with differentiable(model), lrp_rules(model, rules):
        return target_logits(model, embed(model, target.context), target, rules.cap)


def target_logits(
    model: nn.Module,
    embeddings: torch.Tensor,
    target: Target,
    cap: Callable[[torch.Tensor, float], torch.Tensor] = capped,
) -> torch.Tensor:
    """Logits of the target tokens alone, soft-capped by ``cap`` where the model caps them.

    Only M of the M × V logits are formed.

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
    body = model.get_base_model().base_model if isinstance(model, PeftModel) else model.base_model
    hidden = body(inputs_embeds=embeddings, use_cache=False).last_hidden_state[0, slice(*target.rows)]  # [M, d]
    head = model.get_output_embeddings()
    ids = target.ids.to(head.weight.device)
    logits = (hidden.to(head.weight.device).float() * head.weight[ids].float()).sum(-1)  # [M, d] -> [M]
    if getattr(head, "bias", None) is not None:
        logits = logits + head.bias[ids].float()
    config = model.config.get_text_config()
    logits = logits / getattr(config, "logits_scaling", 1.0)  # Granite
    most = getattr(config, "final_logit_softcapping", None)
    return logits if most is None else cap(logits, most)


def relevance(
    embeddings: torch.Tensor, values: torch.Tensor, at_once: int, progress: str | None = None
) -> torch.Tensor:
    """Input × gradient of each value, summed over the embedding.

    Parameters
    ----------
    embeddings : torch.Tensor, shape [1, n, d]
        The leaf of the graph.
    values : torch.FloatTensor, shape [M]
        What is explained.
    at_once : int
        Backward passes that may share a batch; 0 where the graph is recomputed, which runs them one by one.
    progress : str, optional
        Label of a progress bar.

    Returns
    -------
    torch.FloatTensor, shape [M, n], on the CPU
    """
    seeds = torch.eye(len(values), device=values.device)  # [M, M]
    out = []
    with tqdm(total=len(values), desc=progress, leave=False, unit="token", disable=None if progress else True) as bar:
        for part in seeds.split(max(1, at_once)):
            (gradient,) = torch.autograd.grad(
                values,
                embeddings,
                part if at_once else part[0],
                retain_graph=True,
                is_grads_batched=at_once > 0,
            )
            gradient = gradient.view(len(part), *embeddings.shape[1:]).float()  # [b, n, d]
            out.append((gradient * embeddings[0].detach().float()).sum(-1).cpu())
            bar.update(len(part))
    return torch.cat(out)
