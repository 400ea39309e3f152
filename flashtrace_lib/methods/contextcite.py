"""ContextCite: a sparse linear model of what random ablations of sentences do (Cohen-Wang et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from ..attribution import Attribution
from ..model.ablations import draw_masks, logit, sentence_effects
from ..sample import Sample, Span, seeded_generator
from .budgeted import BudgetedMethod
from .lasso import lasso
from .perturbation_base import check_choice, renormalise, unit_spans


@dataclass
class ContextCite(BudgetedMethod):
    """Coefficients of a lasso from which sentences are kept to the logit-scaled probability of the target.

    Masks m over the sentences are drawn at random; with every dropped sentence masked in place, f(m) is the logit of
    the target's probability. The lasso fits f(m) / M ≈ b + Σ_u w_u m_u over standardised m_u, M the number of target
    tokens, so that ``alpha`` means the same for a long target; a sentence's score is M w_u. Costs a forward pass for
    each mask, whatever the number of sentences; the masks are others than those of the metric `lds`.

    Parameters
    ----------
    n_masks : int
        Ablations; 2^U where there are fewer.
    keep : float
        Probability that a sentence is kept, in [0.1, 0.9].
    seed : int
        Other masks.
    alpha : float
        Weight of the lasso's penalty, at least 0.
    target : {"output", "generation"}
        What is explained: O, as `Perturbation` does, or T ∪ O; the authors explain the whole response.
    logit_of : {"target", "tokens"}
        f is the logit of the probability of the target as a whole (the paper), or the sum of its tokens' logits.
    sources : {"prompt", "haystack"}
        Sentences of all of I, or of the haystack alone: the tokens of question and instructions then score 0.
    spread : {"copy", "share"}
        Each token of a sentence gets all of its score, or an equal share of it.
    max_batch_bytes : int, optional
        Memory budget of one batched forward; does not change the result.

    References
    ----------
    Cohen-Wang, Shah, Georgiev and Madry, "ContextCite: Attributing Model Generation to Context", 2024.
    """

    n_masks: int = 32
    keep: float = 0.5
    seed: int = 0
    alpha: float = 0.01
    target: str = "output"
    logit_of: str = "target"
    sources: str = "prompt"
    spread: str = "copy"

    name: ClassVar[str] = "contextcite"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_masks < 2 or self.alpha < 0 or not 0.1 <= self.keep <= 0.9:
            raise ValueError(
                "need n_masks >= 2, alpha >= 0 and keep in [0.1, 0.9], got "
                f"n_masks={self.n_masks}, alpha={self.alpha}, keep={self.keep}"
            )
        check_choice("target", self.target, ("output", "generation"))
        check_choice("logit_of", self.logit_of, ("target", "tokens"))
        check_choice("sources", self.sources, ("prompt", "haystack"))
        check_choice("spread", self.spread, ("copy", "share"))

    def _attribute(self, model: nn.Module, sample: Sample) -> Attribution:
        sources = self._sources(sample)
        generator = seeded_generator(f"{self.name} {self.seed}", sample)
        masks = draw_masks(len(sources), self.n_masks, self.keep, generator)  # [n, U]
        spans = [sample.segments.output, *([sample.segments.reasoning] if self.target == "generation" else [])]
        how = {"max_batch_bytes": self.max_batch_bytes, "progress": f"{self.name} {sample.id}"}
        effects = sentence_effects(model, sample, masks, sources, spans, **how)
        values = logit(effects.log_prob.sum(1)) if self.logit_of == "target" else effects.log_odds.sum(1)  # [n]
        n_target = sum(stop - start for start, stop in spans)
        weights = n_target * lasso(masks, values / n_target, self.alpha)  # [U]
        signed = self._per_token(sample, sources, weights)
        metadata = {
            "forward_passes": len(masks),
            "backward_passes": 0,
            "n_units": len(sources),
            "units": "sentence",
            "signed": signed.tolist(),
        }
        return Attribution(renormalise(signed), self.name, metadata=metadata)

    def _sources(self, sample: Sample) -> list[Span]:
        """Sentences that are ablated."""
        return sample.sources if self.sources == "haystack" else unit_spans(sample, sample.segments.prompt, "sentence")

    def _per_token(self, sample: Sample, sources: list[Span], weights: torch.Tensor) -> torch.Tensor:
        """Scores of sources [U] to scores of the tokens of I, [|I|]."""
        first, stop = sample.segments.prompt
        signed = torch.zeros(stop - first, dtype=weights.dtype)
        for (start, end), weight in zip(sources, weights, strict=True):
            signed[start - first : end - first] = weight / (end - start) if self.spread == "share" else weight
        return signed
