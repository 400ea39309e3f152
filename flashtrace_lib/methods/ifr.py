"""Information Flow Routes, extended to multi-token targets (Ferrando & Voita 2024; appendix D.1)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from tqdm import tqdm

from ..attribution import Attribution, Method
from ..kernel.activations import Activations
from ..kernel.capture import capture
from ..kernel.decomposition import check_decomposition
from ..kernel.proximity import span_scores, spans_at_once
from ..sample import Sample, Span, bounding_span
from .hops import mass_by_segment


@dataclass
class IFR(Method):
    """One proximity row for each token of O, normalised, averaged, cut to I and renormalised (appendix D.1).

    Parameters
    ----------
    batch_size : int or None
        Target tokens that share one pass over the cache; None for as many as memory allows, as a rule all. 1 is the
        paper's setting, in which the cache is walked once for every target token.

    References
    ----------
    Ferrando & Voita, "Information Flow Routes", 2024; FlashTrace, appendix D.
    """

    batch_size: int | None = None

    name: ClassVar[str] = "ifr"
    removed: ClassVar[dict] = {"target_state": "token"}

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1 or None, got {self.batch_size!r}")

    def _attribute(self, model: torch.nn.Module, sample: Sample) -> Attribution:
        check_decomposition(model)
        states = self._targets(sample)
        activations = capture(model, sample.input_ids, bounding_span(states))
        rows = torch.cat([self.rows(activations, span) for span in states])  # [M, N]
        mean = rows.mean(0)  # [N]
        on_input = mean[slice(*sample.segments.prompt)]  # [|I|]
        size = self._at_once(activations)
        passes = sum(-(-(stop - start) // size) for start, stop in states)
        metadata = {"forward_passes": 1, "backward_passes": 0, "hop_passes": passes}
        metadata["mass"] = [mass_by_segment(mean, sample)]
        return Attribution(on_input / on_input.sum().clamp_min(1e-30), self.name, metadata=metadata)

    def _targets(self, sample: Sample) -> list[Span]:
        """Token ranges that are explained."""
        return [sample.segments.output]

    def _at_once(self, activations: Activations) -> int:
        """Target tokens that share one pass over the cache."""
        return self.batch_size or spans_at_once(activations)

    def rows(self, activations: Activations, span: Span | None = None) -> torch.Tensor:
        """Distribution of every captured row, or of those of ``span``, over the context, [M, N]; each sums to 1."""
        start, stop = activations.rows if span is None else span
        size, rows = self._at_once(activations), []
        for first in tqdm(range(start, stop, size), desc=self.name, leave=False, unit="pass"):
            last = min(first + size, stop)
            rows.append(span_scores(activations, torch.eye(last - first), (first, last)))
        return torch.cat(rows)


@dataclass
class IFRAll(IFR):
    """IFR of all that was generated, T ∪ O, which is what RISE and MAS score; tokens between the two do not count.

    A control for target and metric: a method that explains O alone is scored on T as well.

    Parameters
    ----------
    batch_size
        See `IFR`; a row for every token of T and O.

    References
    ----------
    As `IFR`; FlashTrace, appendix F.2, for what is scored.
    """

    name: ClassVar[str] = "ifr_all"

    def _targets(self, sample: Sample) -> list[Span]:
        return [span for name, span in sample.segments.named() if name != "prompt"]
