"""Integrated gradients on the input embeddings (Sundararajan et al. 2017; Vafa et al. 2021; appendix D)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from captum.attr import IntegratedGradients as CaptumIntegratedGradients
from torch import nn
from tqdm import tqdm

from ..attribution import Attribution
from ..sample import Sample
from .gradient_base import (
    Target,
    TargetMethod,
    check_forward,
    check_steps,
    differentiable,
    embed,
    graph_bytes,
    log_probs,
    log_probs_of_text,
    target_of,
)


@dataclass
class IntegratedGradients(TargetMethod):
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
    targets, normalise
        See `TargetMethod`. One target more costs `steps` passes more.
    max_batch_bytes : int, optional
        See `GradientMethod`; decides how many points share a pass.

    References
    ----------
    Sundararajan et al., "Axiomatic Attribution for Deep Networks", 2017; FlashTrace, appendix D.
    """

    steps: int = 20
    start: float = 0.05

    name: ClassVar[str] = "ig"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps(self.steps)
        if not 0 <= self.start < 1:
            raise ValueError(f"start must lie in [0, 1), got {self.start!r}: it is the first point of the path 0 to 1")

    def _attribute(self, model: nn.Module, sample: Sample) -> Attribution:
        check_forward(model, self.name, partial(log_probs_of_text, model), logits=False)
        target = target_of(model, sample)
        embeddings = embed(model, target.context)  # [1, n, d]
        at_once = self._at_once(model, graph_bytes(model, len(target.context), len(target.ids)))
        n_vectors = 1 if self.targets == "span" else len(target.ids)
        passes = self.steps * n_vectors
        vectors, start, stop = [], 0.0, 0.0
        with (
            differentiable(model, recompute=at_once == 0),
            tqdm(total=passes, desc=f"{self.name} {sample.id}", leave=False, unit="step") as bar,
        ):
            with torch.no_grad():
                zero = float(log_probs(model, torch.zeros_like(embeddings), target).sum())
            for i in range(n_vectors):
                # the tokens of O explained by this vector, as columns of the log-probabilities
                columns = slice(None) if self.targets == "span" else slice(i, i + 1)
                vector, first, last = self._integrate(model, embeddings, target, columns, max(1, at_once), bar)
                vectors.append(vector)
                start, stop = start + first, stop + last
        vectors = torch.stack(vectors)  # [1 or M, n]
        found = float(vectors.sum())
        return self._attribution(
            self._average(vectors, target),
            sample,
            forward_passes=1 + passes * (1 if at_once else 2),
            backward_passes=passes,
            log_prob={"zero": zero, "start": start, "input": stop},
            gap=stop - zero - found,
            gap_on_path=stop - start - found,
        )

    def _integrate(
        self, model: nn.Module, embeddings: torch.Tensor, target: Target, columns: slice, at_once: int, bar: Any
    ) -> tuple[torch.Tensor, float, float]:
        """One integral.

        Returns
        -------
        scores : torch.FloatTensor, shape [n]
            Attribution of each token, on the CPU.
        first, last : float
            The explained log-probability (nats) at the two ends of the path.
        """
        values = []

        def explained(points: torch.Tensor) -> torch.Tensor:  # [B, n, d] -> [B]
            value = log_probs(model, points, target)[:, columns].sum(-1)
            values.append(value.detach().cpu())
            bar.update(len(points))
            return value

        attributed = CaptumIntegratedGradients(explained).attribute(
            embeddings,
            baselines=self.start * embeddings,
            n_steps=self.steps,
            method="riemann_trapezoid",
            internal_batch_size=at_once,
        )
        # captum weighs its points 1/steps where the rule wants 1/(steps - 1): its integral is too small by the ratio
        scale = self.steps / (self.steps - 1)
        values = torch.cat(values)  # [steps]
        return attributed[0].float().sum(-1).cpu() * scale, float(values[0]), float(values[-1])
