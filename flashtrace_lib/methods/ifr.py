"""Information Flow Routes, extended to multi-token targets (Ferrando & Voita 2024; appendix D.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from ..attribution import Attribution, Method
from ..kernel.activations import Activations
from ..kernel.capture import capture
from ..kernel.decomposition import check_decomposition
from ..kernel.proximity import span_scores
from ..sample import Sample


@dataclass
class IFR(Method):
    """One proximity row for each token of O, normalised, averaged, cut to I and renormalised (appendix D.1).

    Parameters
    ----------
    target_state : {"token", "predictor"}
        Explain the state at the target token, or at the one before it, that predicts it.
    batch_size : int or None
        Target tokens that share one pass over the cache; None for all of O. 1 is the paper's setting, in which the
        cache is walked once for every target token.

    References
    ----------
    Ferrando & Voita, "Information Flow Routes", 2024; FlashTrace, appendix D.
    """

    target_state: str = "token"
    batch_size: int | None = None

    name: ClassVar[str] = "ifr"

    def __post_init__(self) -> None:
        if self.target_state not in ("token", "predictor"):
            raise ValueError(f"target_state must be token or predictor, got {self.target_state!r}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1 or None, got {self.batch_size!r}")

    def _attribute(self, model: torch.nn.Module, sample: Sample) -> Attribution:
        check_decomposition(model)
        start, stop = sample.segments.output
        shift = 1 if self.target_state == "predictor" else 0
        activations = capture(model, sample.input_ids, (start - shift, stop - shift))
        rows = self.rows(activations)  # [|O|, N]
        mean = rows.mean(0)  # [N]
        on_input = mean[slice(*sample.segments.prompt)]  # [|I|]
        passes = -(-len(rows) // (self.batch_size or len(rows)))
        shares = {name: float(mean[slice(*span)].sum()) for name, span in sample.segments.named()}
        shares["context"] = max(0.0, 1.0 - sum(shares.values()))
        metadata = {"forward_passes": 1, "backward_passes": 0, "hop_passes": passes, "mass": [shares]}
        return Attribution(on_input / on_input.sum().clamp_min(1e-30), self.name, metadata=metadata)

    def rows(self, activations: Activations) -> torch.Tensor:
        """Distribution of every captured row over the context, shape [M, N]; each sums to 1."""
        start, stop = activations.rows
        size = self.batch_size or stop - start
        rows = []
        for first in range(start, stop, size):
            last = min(first + size, stop)
            rows.append(span_scores(activations, torch.eye(last - first), (first, last)))
        return torch.cat(rows)
