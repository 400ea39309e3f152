"""Exhaustive token-level rollout: brute-force multi-hop attribution (appendix D.3, table 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from ..attribution import Attribution
from ..kernel.capture import capture
from ..kernel.decomposition import check_decomposition
from ..sample import Sample, Span
from .backward_graph import edges, unit_rows, walk_back
from .budgeted import BudgetedMethod
from .hops import mass_by_segment
from .perturbation_base import check_choice, renormalise, unit_spans


@dataclass
class Rollout(BudgetedMethod):
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
    target_state : {"token", "predictor"}
        Explain the state at each token, or at the one before it, that predicts it.
    recursion : {"reasoning", "generation"}
        Walk through T, or through everything from the first token of T to the last of O.
    max_batch_bytes : int, optional
        Memory budget of one pass over the cache; does not change the result.

    References
    ----------
    FlashTrace, section 5.2 and appendix D.3.
    """

    hops: int | None = None
    target_state: str = "token"
    recursion: str = "reasoning"

    name: ClassVar[str] = "rollout"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hops is not None and (not isinstance(self.hops, int) or isinstance(self.hops, bool) or self.hops < 0):
            raise ValueError(f"hops must be a whole number of at least 0, or None for all, got {self.hops!r}")
        check_choice("target_state", self.target_state, ("token", "predictor"))
        check_choice("recursion", self.recursion, ("reasoning", "generation"))

    def _attribute(self, model: nn.Module, sample: Sample) -> Attribution:
        check_decomposition(model)
        shift = int(self.target_state == "predictor")
        start, stop = sample.segments.generated
        activations = capture(model, sample.input_ids, (start - shift, stop - shift))
        through = sample.segments.reasoning if self.recursion == "reasoning" else sample.segments.generated
        nodes = unit_spans(sample, through, "token")
        targets = unit_spans(sample, sample.segments.output, "token")
        units = sorted({*nodes, *targets})
        how: dict[str, Any] = {"max_batch_bytes": self.max_batch_bytes, "label": f"{self.name} {sample.id}"}
        rows = unit_rows(activations, units, shift=shift, **how).double()  # [G, N]
        by_unit = dict(zip(units, rows, strict=True))
        begin = torch.stack([by_unit[unit] for unit in targets]).mean(0)  # [N]: h_0
        table = torch.stack([by_unit[unit] for unit in nodes]) if nodes else rows[:0]  # [|T|, N]
        total = self._walk(begin, table, nodes, through)  # [N]
        on_input = total[slice(*sample.segments.prompt)]
        of_hop_0 = mass_by_segment(begin, sample)
        return Attribution(
            renormalise(on_input),
            self.name,
            flow=[of_hop_0.get("reasoning", 0.0)],
            metadata={
                "forward_passes": 1,
                "backward_passes": 0,
                "hop_passes": len(units),
                "mass": [of_hop_0, mass_by_segment(total, sample)],
                "signed": on_input.tolist(),
            },
        )

    def _walk(self, begin: torch.Tensor, table: torch.Tensor, nodes: list[Span], through: Span) -> torch.Tensor:
        """Mass over the context after the walk, [N]: each hop's part that does not lie on a node, and what is left."""
        if self.hops is None:
            return walk_back(begin, edges(table, nodes), nodes)
        inside = slice(*through)
        total, hop = begin.clone(), begin
        for _ in range(self.hops):
            total[inside] -= hop[inside]
            hop = hop[inside] @ table  # [N]
            total += hop
        return total
