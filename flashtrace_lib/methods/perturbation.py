"""Perturbation: leave one unit out (Liu et al. 2024; appendices D and D.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..attribution import Attribution
from ..sample import Sample
from .perturbation_base import UnitMethod, masked_rows


@dataclass
class Perturbation(UnitMethod):
    """Drop in the log-probability of O when a unit of I is masked in place, mean over the tokens of O.

    a_u = (1/|O|) Σ_t log p(o_t | context) − log p(o_t | context with the tokens of u replaced by the mask token).
    Positions stay as they are; deleting a unit and tokenising again would be another baseline. Units of T and O need
    no passes: they are dropped anyway (appendix D.1) and do not change the scores of I.

    Costs one forward pass for each unit and one for the intact context; what stands before the unit is computed once,
    which halves a pass on average. Parameters: see `UnitMethod`.

    References
    ----------
    Liu et al., "AttriBoT", 2024; FlashTrace, appendix D.
    """

    name: ClassVar[str] = "perturbation"

    def _attribute(self, model, sample: Sample) -> Attribution:
        spans = self._spans(sample)
        nll = self._divergences(model, sample, masked_rows(sample, spans), len(spans) + 1, "nll")  # [U + 1]
        return self._attribution(sample, nll[1:] - nll[0], len(nll))
