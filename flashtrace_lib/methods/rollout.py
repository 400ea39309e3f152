"""Exhaustive token-level rollout: brute-force multi-hop attribution (appendix D.3, table 3)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from ..attribution import Attribution, Method
from ..kernel.capture import capture
from ..kernel.decomposition import check_decomposition
from ..sample import Sample
from .backward_graph import edges, unit_rows, walk_back
from .hops import mass_by_segment
from .perturbation_base import of_signed, unit_spans


@dataclass
class Rollout(Method):
    """One IFR row for every token of T and O; the mass of O's mean row is walked back through T token by token.

    With h_0 the mean row of O and A the rows of T, hop k + 1 is h_k restricted to T times A, and the result is the
    I-part of Σ_k h_k over all hops, until no mass is left on T. That is a product of all token-to-token transitions,
    computed by one walk from the last token of T to the first.

    A hop is linear in its rows, so this is the limit of ``FlashTrace(hops=K, aggregation="mean")`` on every sample, up
    to the scale of the sum. Default FlashTrace differs by aggregating a span before the proximity; a span of one token
    leaves nothing to aggregate, so it too has this limit where T and O have one token each.

    References
    ----------
    FlashTrace, section 5.2 and appendix D.3.
    """

    name: ClassVar[str] = "rollout"
    removed: ClassVar[dict] = {"target_state": "token", "recursion": "reasoning", "hops": None}

    def _attribute(self, model: nn.Module, sample: Sample) -> Attribution:
        check_decomposition(model)
        activations = capture(model, sample.input_ids, sample.segments.generated)
        nodes = unit_spans(sample, sample.segments.reasoning, "token")
        units = nodes + unit_spans(sample, sample.segments.output, "token")
        rows = unit_rows(activations, units, label=f"{self.name} {sample.id}").double()  # [G, N]
        table, begin = rows[: len(nodes)], rows[len(nodes) :].mean(0)  # [|T|, N] and h_0, [N]
        total = walk_back(begin, edges(table, nodes), nodes)  # [N]
        of_hop_0 = mass_by_segment(begin, sample)
        more = {"hop_passes": len(units), "mass": [of_hop_0, mass_by_segment(total, sample)]}
        result = of_signed(self.name, total[slice(*sample.segments.prompt)], forward_passes=1, **more)
        result.flow = [of_hop_0.get("reasoning", 0.0)]
        return result
