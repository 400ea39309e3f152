"""ContextCite: a sparse linear model of what random ablations of sentences do (Cohen-Wang et al. 2024)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.optimize import minimize
from torch import nn

from ..attribution import Attribution, Method
from ..model.ablations import draw_masks, logit, sentence_effects
from ..sample import Sample, seeded_generator
from .perturbation_base import of_signed, over_input, unit_spans


@dataclass
class ContextCite(Method):
    """Coefficients of a lasso from which sentences are kept to the logit-scaled probability of the target.

    Masks m over the sentences are drawn at random; with every dropped sentence masked in place, f(m) is the logit of
    the probability of O (the authors explain the whole response). The lasso fits f(m) / M ≈ b + Σ_u w_u m_u over
    standardised m_u, M the number of O's tokens, so that ``alpha`` means the same for a long O; a sentence's score is
    M w_u. Costs a forward pass for each mask, whatever the number of sentences; the masks are others than those of the
    metric `lds`.

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

    References
    ----------
    Cohen-Wang, Shah, Georgiev and Madry, "ContextCite: Attributing Model Generation to Context", 2024.
    """

    n_masks: int = 32
    keep: float = 0.5
    seed: int = 0
    alpha: float = 0.01

    name: ClassVar[str] = "contextcite"
    removed: ClassVar[dict] = {
        "logit_of": "target", "sources": "prompt", "spread": "copy", "target": "output",
    }  # fmt: skip

    def __post_init__(self) -> None:
        if self.n_masks < 2 or self.alpha < 0 or not 0.1 <= self.keep <= 0.9:
            raise ValueError(
                "need n_masks >= 2, alpha >= 0 and keep in [0.1, 0.9], got "
                f"n_masks={self.n_masks}, alpha={self.alpha}, keep={self.keep}"
            )

    def _attribute(self, model: nn.Module, sample: Sample) -> Attribution:
        sources = unit_spans(sample, sample.segments.prompt, "sentence")
        generator = seeded_generator(f"{self.name} {self.seed}", sample)
        masks = draw_masks(len(sources), self.n_masks, self.keep, generator)  # [n, U]
        start, stop = sample.segments.output
        effects = sentence_effects(model, sample, masks, sources, [(start, stop)], progress=f"{self.name} {sample.id}")
        values, n_target = logit(effects.log_prob[:, 0]), stop - start  # [n]
        weights = n_target * lasso(masks, values / n_target, self.alpha)  # [U]
        signed = over_input(sample, sources, weights)
        return of_signed(self.name, signed, len(masks), n_units=len(sources), units="sentence")


_ROUNDS = 100_000


def lasso(features: torch.Tensor, target: torch.Tensor, alpha: float) -> torch.Tensor:
    """Coefficients of a sparse linear fit with an intercept.

    With every feature x_u standardised (mean 0, variance 1) and the target centred, w minimises
    ‖y − X w‖² / (2 n) + α ‖w‖₁ (Tibshirani 1996), by L-BFGS-B on its positive and negative parts; what is returned
    is w_u / σ_u, in the units of the feature.

    Parameters
    ----------
    features : torch.Tensor, shape [n, U]
        A constant feature gets the coefficient 0.
    target : torch.Tensor, shape [n]
    alpha : float
        At least 0; in the units of the target.

    Returns
    -------
    torch.DoubleTensor, shape [U]

    Raises
    ------
    ValueError
        If shapes differ, ``alpha`` is negative or the target is not finite.
    """
    x, y = features.double(), target.double()
    if x.ndim != 2 or y.shape != x.shape[:1] or alpha < 0 or not torch.isfinite(y).all():
        raise ValueError(
            f"need features [n, U], a finite target [n] and alpha >= 0, got {tuple(x.shape)}, {tuple(y.shape)}, {alpha}"
        )
    x, y = x - x.mean(0), y - y.mean()
    spread = x.square().mean(0).sqrt()  # [U]
    varies = spread > 0
    x = x[:, varies] / spread[varies]  # [n, V]
    gram, cross = (x.T @ x / len(x)).numpy(), (x.T @ y / len(x)).numpy()  # [V, V], [V]

    def loss(parts: np.ndarray) -> tuple[float, np.ndarray]:  # of w = up - down, both >= 0, [2 V], and its gradient
        w = parts[: len(cross)] - parts[len(cross) :]
        slope = gram @ w - cross
        return w @ (slope - cross) / 2 + alpha * parts.sum(), np.concatenate([slope, -slope]) + alpha

    bounds, options = [(0, None)] * (2 * len(cross)), {"maxiter": _ROUNDS, "maxfun": _ROUNDS, "ftol": 0, "gtol": 1e-12}
    parts = minimize(loss, np.zeros(len(bounds)), jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    w, coefficients = parts[: len(cross)] - parts[len(cross) :], torch.zeros(len(spread), dtype=torch.float64)
    coefficients[varies] = torch.from_numpy(w) / spread[varies]
    return coefficients
