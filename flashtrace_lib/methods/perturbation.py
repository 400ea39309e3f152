"""Methods that take units of the input away: Perturbation (Liu et al. 2024) and CLP (Cífka & Liutkus 2023)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ..attribution import Attribution
from ..model.context import mask_token
from ..sample import Sample, Span
from .perturbation_base import METRICS, UnitMethod, check_choice, masked_rows


@dataclass
class Perturbation(UnitMethod):
    """How much worse O is predicted when a unit of I is masked in place, mean over the tokens of O.

    a_u = (1/|O|) Σ_t m_t(context with the tokens of u replaced by the mask token) − m_t(context), where m is the
    metric. Positions stay as they are; deleting a unit and tokenising again would be another baseline. Units of T and
    O need no passes: they are dropped anyway (appendix D.1) and do not change the scores of I.

    Costs one forward pass for each unit and one for the intact context; what stands before the unit is computed once,
    which halves a pass on average.

    Parameters
    ----------
    metric : {"nll", "kl", "jsd"}
        −log p(o_t | ·), so that a_u is the drop in log-probability; D_KL(p(· | context) ‖ p(· | u masked)); or the
        Jensen-Shannon divergence of the two, ARC-JSD's measure (which sums over tokens, and deletes the sentence).
        Nats per token of O.

    The other parameters: see `UnitMethod`.

    References
    ----------
    Liu et al., "AttriBoT", 2024 (arXiv 2411.15102); Li et al., "Attributing Response to Context: A Jensen-Shannon
    Divergence Driven Mechanistic Study of Context Attribution in Retrieval-Augmented Generation", 2025
    (arXiv 2505.16415); FlashTrace, appendix D.
    """

    metric: str = "nll"

    name: ClassVar[str] = "perturbation"
    added_after_v1: ClassVar[tuple[str, ...]] = ("metric",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("metric", self.metric, METRICS)

    def _attribute(self, model, sample: Sample) -> Attribution:
        spans = self._spans(sample)
        m = self._divergences(model, sample, masked_rows(sample, spans), len(spans) + 1, self.metric)  # [U + 1]
        return self._attribution(sample, m[1:] - m[0], len(m))


@dataclass
class CLP(UnitMethod):
    """What a unit adds to the prediction of O when the context grows leftwards to take it in.

    With m(c) the metric on the context that holds the last c units of I, the unit at distance c gets the differential
    importance m(c − 1) − m(c), mean over the tokens of O; the scores of all units add up to m(0) − m(|units|).
    The template before I stays in every context: without its opening marks a chat model is off its distribution, and
    context tokens are never counted as input. Everything behind I stays too, so positions close up.

    Costs one forward pass for each unit and one for the full context.

    Parameters
    ----------
    metric : {"nll", "kl", "jsd"}
        m(c) = −log p(o_t | c units), the divergence D_KL(p(· | full context) ‖ p(· | c units)), or the Jensen-Shannon
        divergence of the two.

    The other parameters: see `UnitMethod`.

    References
    ----------
    Cífka & Liutkus, "Black-box language model explanation by context length probing", 2023.
    """

    metric: str = "nll"

    name: ClassVar[str] = "clp"
    removed: ClassVar[Mapping[str, Any]] = {"variant": "probing"}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("metric", self.metric, METRICS)

    def _attribute(self, model, sample: Sample) -> Attribution:
        spans = self._spans(sample)
        rows = shortened_rows(sample, spans)
        m = self._divergences(model, sample, rows, len(spans) + 1, self.metric, in_place=False)  # [U + 1]
        return self._attribution(sample, m[1:] - m[:-1], len(m))


def shortened_rows(sample: Sample, spans: list[Span]) -> Iterator[torch.Tensor]:
    """The context up to the last token of O, exclusive; then with ever more units of I dropped, leftmost first.

    Where nothing is left in front of O a mask token stands there: the first token of O follows something.
    """
    ids = sample.input_ids[: sample.segments.output[1] - 1].cpu()
    yield ids
    before = ids[: sample.segments.prompt[0]]
    for _, stop in spans:
        nothing = not len(before) and stop == sample.segments.output[0]
        yield torch.cat([torch.tensor([mask_token(sample)]) if nothing else before, ids[stop:]])
