"""Integrated gradients on the input embeddings (Sundararajan et al. 2017; Vafa et al. 2021; appendix D)."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from captum.attr import IntegratedGradients as CaptumIntegratedGradients
from torch import nn
from tqdm import tqdm

from ..attribution import Attribution
from ..sample import Sample
from . import gradient_base
from .gradient_base import GradientMethod


@dataclass
class IntegratedGradients(GradientMethod):
    """Path integral of the gradient of log p(O) from zero embeddings to the real ones, summed over the embedding.

    a_j = Σ_c x_jc ∫ ∂ log p(O; αx) / ∂x_jc dα by the trapezoid rule, moving all tokens of the context. With a path
    from 0, Σ_j a_j = log p(O; x) − log p(O; 0) up to the error of the rule.

    A stack of RMSNorms has no usable gradient at zero: each norm multiplies it by 1/√ε, which overflows after some
    layers, and whatever is finite there drowns the rest of the path. So the sum begins at `start`; the metadata
    reports the gap to both ends, ``gap`` to log p(O; 0) and ``gap_on_path`` to log p(O; start·x).

    Parameters
    ----------
    steps : int
        Points on the path, both ends included; at least 20.
    start : float
        First point, in [0, 1). The default leaves points k/20; 0 is the textbook path.

    References
    ----------
    Sundararajan et al., "Axiomatic Attribution for Deep Networks", 2017; FlashTrace, appendix D.
    """

    steps: int = 20
    start: float = 0.05

    name: ClassVar[str] = "ig"
    removed: ClassVar[dict] = {"targets": "span", "normalise": False}

    def __post_init__(self) -> None:
        gradient_base.check_steps(self.steps)
        if not 0 <= self.start < 1:
            raise ValueError(f"start must lie in [0, 1), got {self.start!r}: it is the first point of the path 0 to 1")

    def _attribute(self, model: nn.Module, sample: Sample) -> Attribution:
        gradient_base.check_forward(model, self.name, partial(gradient_base.log_probs_of_text, model), logits=False)
        target = gradient_base.target_of(model, sample)
        embeddings = gradient_base.embed(model, target.context)  # [1, n, d]
        at_once, values = gradient_base.fits(model, len(target.context), len(target.ids)), []

        def explained(points: torch.Tensor) -> torch.Tensor:  # [B, n, d] -> [B]
            value = gradient_base.log_probs(model, points, target).sum(-1)
            values.append(value.detach().cpu())
            bar.update(len(points))
            return value

        with (
            gradient_base.differentiable(model, recompute=at_once == 0),
            tqdm(total=self.steps, desc=f"{self.name} {sample.id}", leave=False, unit="step") as bar,
        ):
            with torch.no_grad():
                zero = float(gradient_base.log_probs(model, torch.zeros_like(embeddings), target).sum())
            attributed = CaptumIntegratedGradients(explained).attribute(
                embeddings,
                baselines=self.start * embeddings,
                n_steps=self.steps,
                method="riemann_trapezoid",
                internal_batch_size=max(1, at_once),
            )  # [1, n, d]
        # captum weighs its points 1/steps where the rule wants 1/(steps - 1): its integral is too small by the ratio
        scores = attributed[0].float().sum(-1).cpu() * (self.steps / (self.steps - 1))  # [n]
        values = torch.cat(values)  # [steps]
        start, stop, found = float(values[0]), float(values[-1]), float(scores.sum())
        passes = {"forward_passes": 1 + self.steps * (1 if at_once else 2), "backward_passes": self.steps}
        ends = {"log_prob": {"zero": zero, "start": start, "input": stop}}
        gaps = {"gap": stop - zero - found, "gap_on_path": stop - start - found}
        return self._attribution(model, scores / len(target.ids), sample, **passes, **ends, **gaps)
