"""Context length probing (Cífka & Liutkus 2023; appendix D)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from ..attribution import Attribution
from ..model.context import mask_token
from ..sample import Sample, Span
from .perturbation_base import METRICS, UnitMethod, check_choice, masked_rows


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
    variant : {"probing", "ablation"}
        ``"ablation"`` masks one unit in place and scores m(unit masked) − m(intact), as some published code does
        under this name: with ``metric="kl"`` a sum of divergences (here their mean), never negative. It is
        `Perturbation` with the same metric.

    The other parameters: see `UnitMethod`.

    References
    ----------
    Cífka & Liutkus, "Black-box language model explanation by context length probing", 2023.
    """

    metric: str = "nll"
    variant: str = "probing"

    name: ClassVar[str] = "clp"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("metric", self.metric, METRICS)
        check_choice("variant", self.variant, ("probing", "ablation"))

    def _attribute(self, model, sample: Sample) -> Attribution:
        spans = self._spans(sample)
        ablation = self.variant == "ablation"
        rows = masked_rows(sample, spans) if ablation else shortened_rows(sample, spans)
        m = self._divergences(model, sample, rows, len(spans) + 1, self.metric, in_place=ablation)  # [U + 1]
        values = m[1:] - (m[0] if ablation else m[:-1])  # [U]
        return self._attribution(sample, values, len(m))


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
