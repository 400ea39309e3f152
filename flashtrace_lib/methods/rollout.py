"""Exhaustive token-level rollout: brute-force multi-hop attribution (appendix D.3, table 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from ..attribution import Attribution, Method
from ..kernel.capture import capture
from ..kernel.decomposition import check_decomposition
from ..sample import Sample
from .backward_graph import edges, unit_rows, walk_back
from .hops import mass_by_segment
from .perturbation_base import renormalise, unit_spans


@dataclass
class Rollout(Method):
    """One IFR row for every token of T and O; the mass of O's mean row is walked back through T token by token.

    With h_0 the mean row of O and A the rows of T, hop k + 1 is h_k restricted to T times A, and the result is the
    I-part of Σ_k h_k. Without a limit on the hops that is a product of all token-to-token transitions, computed by
    one walk from the last token of T to the first.

    A hop is linear in its rows, so K hops through T equal ``FlashTrace(hops=K, aggregation="mean")`` on every sample,
    up to the scale of the sum. Default FlashTrace differs by aggregating a span before the proximity; a span of one
    token leaves nothing to aggregate, so it too is equal where T and O have one token each (and from hop 1 on where T
    alone has one).

    Parameters
    ----------
    hops : int or None
        Hops after hop 0; None walks until no mass is left on T.

    References
    ----------
    FlashTrace, section 5.2 and appendix D.3.
    """

    hops: int | None = None

    name: ClassVar[str] = "rollout"
    removed: ClassVar[Mapping[str, Any]] = {"target_state": "token", "recursion": "reasoning"}

    def __post_init__(self) -> None:
        if self.hops is not None and (not isinstance(self.hops, int) or isinstance(self.hops, bool) or self.hops < 0):
            raise ValueError(f"hops must be a whole number of at least 0, or None for all, got {self.hops!r}")

    def _attribute(self, model: nn.Module, sample: Sample) -> Attribution:
        check_decomposition(model)
        activations = capture(model, sample.input_ids, sample.segments.generated)
        nodes = unit_spans(sample, sample.segments.reasoning, "token")
        units = nodes + unit_spans(sample, sample.segments.output, "token")
        rows = unit_rows(activations, units, label=f"{self.name} {sample.id}").double()  # [G, N]
        table, begin = rows[: len(nodes)], rows[len(nodes) :].mean(0)  # [|T|, N] and h_0, [N]
        total = self._walk(begin, table, sample)  # [N]
        on_input = total[slice(*sample.segments.prompt)]
        of_hop_0 = mass_by_segment(begin, sample)
        metadata = {
            "forward_passes": 1,
            "backward_passes": 0,
            "hop_passes": len(units),
            "mass": [of_hop_0, mass_by_segment(total, sample)],
            "signed": on_input.tolist(),
        }
        return Attribution(renormalise(on_input), self.name, flow=[of_hop_0.get("reasoning", 0.0)], metadata=metadata)

    def _walk(self, begin: torch.Tensor, table: torch.Tensor, sample: Sample) -> torch.Tensor:
        """Mass over the context after the walk, [N]: each hop's part that does not lie on T, and what is left."""
        if self.hops is None:
            nodes = unit_spans(sample, sample.segments.reasoning, "token")
            return walk_back(begin, edges(table, nodes), nodes)
        inside = slice(*sample.segments.reasoning)
        total, hop = begin.clone(), begin
        for _ in range(self.hops):
            total[inside] -= hop[inside]
            hop = hop[inside] @ table  # [N]
            total += hop
        return total
