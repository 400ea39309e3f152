"""Controls: what a method must beat before its scores mean anything, and other targets than O's sum (appendix M.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from ..attribution import Attribution, Method
from ..sample import Sample, Span, seeded_generator
from .flashtrace import FlashTrace
from .units import check_choice, renormalise


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


@dataclass
class LastToken(FlashTrace):
    """FlashTrace whose hop 0 explains the last token of O alone (appendix M.1, table 10)."""

    aggregation: str = field(default="last", init=False)

    name: ClassVar[str] = "last_token"


@dataclass
class MeanPooling(FlashTrace):
    """FlashTrace that averages single-token distributions instead of aggregating the span (appendix M.1)."""

    aggregation: str = field(default="mean", init=False)

    name: ClassVar[str] = "mean_pooling"


@dataclass
class Positional(FlashTrace):
    """FlashTrace whose hop 0 weights the tokens of O by their place, linearly (appendix M.1).

    Parameters
    ----------
    weighting : {"rising", "falling"}
        The last token of O has the weight |O| and the first 1, or the other way round.
    """

    weighting: str = "rising"

    name: ClassVar[str] = "positional"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("weighting", self.weighting, ("rising", "falling"))

    def _target_weights(self, sample: Sample, target: Span, weights: torch.Tensor) -> torch.Tensor:
        if target == sample.segments.output:  # later hops have the weights that the hop before gave them
            ramp = torch.arange(1, len(weights) + 1, dtype=weights.dtype)
            weights = weights * (ramp if self.weighting == "rising" else ramp.flip(0))
        return super()._target_weights(sample, target, weights)
