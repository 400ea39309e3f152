"""Methods that take units of the input away: Perturbation (Liu et al. 2024) and CLP (Cífka & Liutkus 2023)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from ..attribution import Attribution
from ..model.context import mask_token
from ..sample import Sample, Span
from .perturbation_base import UnitMethod, masked_rows


@dataclass
class Perturbation(UnitMethod):
    """How much worse O is predicted when a unit of I is masked in place, mean over the tokens of O.

    a_u = (1/|O|) Σ_t log p(o_t | context) − log p(o_t | context with the tokens of u replaced by the mask token).
    Positions stay as they are; deleting a unit and tokenising again would be another baseline. Units of T and O need no
    passes: they are dropped anyway (appendix D.1) and do not change the scores of I.

    Costs one forward pass for each unit and one for the intact context; what stands before the unit is computed once,
    which halves a pass on average.

    The parameters: see `UnitMethod`.

    References
    ----------
    Liu et al., "AttriBoT", 2024 (arXiv 2411.15102); FlashTrace, appendix D.
    """

    name: ClassVar[str] = "perturbation"

    def _attribute(self, model, sample: Sample) -> Attribution:
        spans = self._spans(sample)
        losses = self._losses(model, sample, masked_rows(sample, spans), len(spans) + 1)  # [U + 1]
        return self._attribution(sample, losses[1:] - losses[0], len(losses))


@dataclass
class CLP(UnitMethod):
    """What a unit adds to the prediction of O when the context grows leftwards to take it in.

    With m(c) = −log p(o_t | context that holds the last c units of I), mean over the tokens of O, the unit at distance
    c gets the differential importance m(c − 1) − m(c); the scores of all units add up to m(0) − m(|units|). The
    template before I and within it stays in every context: without its opening marks a chat model is off its
    distribution, and context tokens are never counted as input. Everything behind I stays too, so positions close up.

    Costs one forward pass for each unit and one for the full context.

    The parameters: see `UnitMethod`.

    References
    ----------
    Cífka & Liutkus, "Black-box language model explanation by context length probing", 2023.
    """

    name: ClassVar[str] = "clp"
    removed: ClassVar[dict] = {"spread": "copy", "metric": "nll", "variant": "probing"}

    def _attribute(self, model, sample: Sample) -> Attribution:
        spans = self._spans(sample)
        losses = self._losses(model, sample, shortened_rows(sample, spans), len(spans) + 1, in_place=False)  # [U + 1]
        return self._attribution(sample, losses[1:] - losses[:-1], len(losses))


def shortened_rows(sample: Sample, spans: list[Span]) -> Iterator[torch.Tensor]:
    """The context up to the last token of O, exclusive; then with ever more units of I dropped, leftmost first.

    Where nothing is left in front of O a mask token stands there: the first token of O follows something.
    """
    ids = sample.input_ids[: sample.segments.output[1] - 1].cpu()
    yield ids
    stays = torch.ones(len(ids), dtype=torch.bool)
    for start, stop in spans:
        stays[start:stop] = False
        nothing = not stays[: sample.segments.output[0]].any()
        yield torch.cat([torch.tensor([mask_token(sample)] if nothing else [], dtype=torch.long), ids[stays]])
