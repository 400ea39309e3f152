"""What methods that are no sweep over one forward pass share: a memory budget, the share of each segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from ..attribution import Hop, Method
from ..model.state import check_budget
from ..sample import Sample
from .hops import mass


@dataclass
class BudgetedMethod(Method):
    """A method that cuts its work to a memory budget.

    Parameters
    ----------
    max_batch_bytes : int, optional
        The budget, bytes; does not change the result. Default: see `state.model_budget`.
    """

    max_batch_bytes: int | None = None

    incidental: ClassVar[tuple[str, ...]] = ("max_batch_bytes",)

    def __post_init__(self) -> None:
        check_budget(self.max_batch_bytes)


def shares(scores: torch.Tensor, sample: Sample) -> dict[str, float]:
    """Share of non-negative scores [N] on prompt, reasoning, output and context; sums to 1."""
    distribution = scores / scores.sum().clamp_min(torch.finfo(scores.dtype).tiny)
    return mass([Hop(distribution, sample.segments.output, torch.ones(0))], sample)[0]
