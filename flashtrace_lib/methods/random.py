"""Baselines that ask no model: random scores, and scores of the position alone."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from ..attribution import Attribution, Method
from ..sample import Sample, seeded_generator
from .perturbation_base import over_input, renormalise, unit_spans


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
class RandomSentences(Random):
    """A uniform random score for each sentence of I, which all its tokens get; the model is not asked.

    The control for methods that score sentences: masking whole sentences harms a text otherwise than masking as many
    scattered tokens, whatever the ranking. The sample needs sentences that tile I.

    Parameters
    ----------
    seed : int
        Another seed, another ranking.
    """

    name: ClassVar[str] = "random_sentences"
    removed: ClassVar[dict] = {"spread": "copy"}  # `Attribution.by_sentence` knows copies by it

    def _attribute(self, model, sample: Sample) -> Attribution:
        spans = unit_spans(sample, sample.segments.prompt, "sentence")
        generator = seeded_generator(f"sentences {self.seed}", sample)  # no draw of Random's
        drawn = torch.rand(len(spans), generator=generator, dtype=torch.float64)
        result = _without_model(over_input(sample, spans, drawn), self.name)
        result.metadata |= {"units": "sentence", "n_units": len(spans)}
        return result


@dataclass
class Position(Method):
    """Scores linear in the position, the last token of I highest; neither the model nor the text is asked."""

    name: ClassVar[str] = "position"
    removed: ClassVar[dict] = {"favour": "recency"}

    def _attribute(self, model, sample: Sample) -> Attribution:
        return _without_model(torch.arange(1, len(sample.prompt_ids) + 1, dtype=torch.float64), self.name)


def _without_model(scores: torch.Tensor, name: str) -> Attribution:
    """Attribution from positive scores [|I|] that took no pass through the model; none is signed."""
    return Attribution(renormalise(scores), name, metadata={"forward_passes": 0, "backward_passes": 0})
