"""Baselines that ask no model: random scores, and scores of the position alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from ..attribution import Attribution, Method
from ..sample import Sample, seeded_generator
from .perturbation_base import check_choice, renormalise


@dataclass
class Random(Method):
    """Uniform random scores, fixed by the seed and the sample; the model is not asked.

    Parameters
    ----------
    seed : int
        Another seed, another ranking.
    """

    seed: int = 0

    name: ClassVar[str] = "random"

    def _attribute(self, model, sample: Sample) -> Attribution:
        drawn = torch.rand(len(sample.prompt_ids), generator=seeded_generator(self.seed, sample), dtype=torch.float64)
        return _without_model(drawn, self.name)


@dataclass
class Position(Method):
    """Scores linear in the position; neither the model nor the text is asked.

    Parameters
    ----------
    favour : {"recency", "primacy"}
        The last token of I ranks first, or the first does.
    """

    favour: str = "recency"

    name: ClassVar[str] = "position"

    def __post_init__(self) -> None:
        check_choice("favour", self.favour, ("recency", "primacy"))

    def _attribute(self, model, sample: Sample) -> Attribution:
        ramp = torch.arange(1, len(sample.prompt_ids) + 1, dtype=torch.float64)
        return _without_model(ramp if self.favour == "recency" else ramp.flip(0), self.name)


def _without_model(scores: torch.Tensor, name: str) -> Attribution:
    """Attribution from positive scores [|I|] that took no pass through the model."""
    scores = renormalise(scores)
    metadata = {"forward_passes": 0, "backward_passes": 0, "signed": scores.tolist()}
    return Attribution(scores, name, metadata=metadata)
