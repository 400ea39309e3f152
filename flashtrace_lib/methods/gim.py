"""GIM: gradient interaction modifications (Edin et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from .attnlrp import RelevanceMethod
from .lrp_rules import Rules


@dataclass
class GIM(RelevanceMethod):
    """Relevance x · ∂logit/∂x of the input embeddings, with a backward pass that accounts for self-repair.

    Where one attention score falls, the softmax gives its weight to the others; where their values are alike, neither
    ablation nor gradient sees how much the score mattered. So the backward pass takes the softmax's slope at a higher
    temperature, at which weights are more even. As in AttnLRP, norms are held fixed and products share their gradient
    (q and k ÷ 4, v ÷ 2, gate ⊙ up ÷ 2); unlike there, activations and soft-caps keep their own slopes. Values of the
    forward pass are unchanged.

    The paper explains the difference of two answers' logits; here, as in `AttnLRP`, the sum of the logits of O, each
    read at the position that predicts it.

    Parameters
    ----------
    temperature : float
        τ at which the slope of the softmax is taken: with p = softmax(z / τ), a gradient g becomes p ⊙ (g - p·g),
        without a further factor 1/τ, as the authors' code has it. 1 leaves the softmax alone.
    targets, normalise, max_batch_bytes
        See `RelevanceMethod`. Attention maps are formed and kept for the backward pass, so that memory grows with the
        square of the context; beyond the budget they are recomputed layer by layer.

    References
    ----------
    Edin et al., "GIM: Improved Interpretability for Large Language Models", 2025 (arXiv 2505.17630).
    """

    temperature: float = 2.0

    name: ClassVar[str] = "gim"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.temperature < inf:
            raise ValueError(f"temperature must be positive and finite, got {self.temperature!r}: 2 is the paper's")

    @property
    def _rules(self) -> Rules:
        return Rules(linearised=False, temperature=self.temperature)
