"""What is made of FlashTrace's hops: the final importance, the flow, the shares of mass (section 4.3)."""

from __future__ import annotations

import torch

from ..attribution import Hop
from ..sample import Sample


def accumulate(hops: list[Hop], sample: Sample) -> tuple[torch.Tensor, list[float]]:
    """Final input importance and flow from the hops (section 4.3, "Subsequent Hops and Aggregation").

    Returns
    -------
    scores : torch.FloatTensor, shape [|I|]
    flow : list of float
        ρ_k of every hop.
    """
    flow = [float(hop.scores[slice(*sample.segments.reasoning)].sum()) for hop in hops]
    total = torch.zeros(sample.segments.prompt[1] - sample.segments.prompt[0])
    carried = 1.0
    for hop, rho in zip(hops, flow, strict=True):
        total += carried * hop.scale * hop.scores[slice(*sample.segments.prompt)]
        carried *= rho
    return total, flow


def share_by_sentence(scores: torch.Tensor, sample: Sample) -> torch.Tensor:
    """Give every token the mean score of its sentence, shape [N]; mass is unchanged."""
    if not sample.sentences:
        raise ValueError(
            f"sample {sample.id} has no sentences: granularity='sentence' needs Sample.sentences, "
            "token ranges that text.build_sample fills in"
        )
    shared = scores.clone()
    for start, stop in sample.sentences:
        shared[start:stop] = scores[start:stop].mean()
    return shared


def mass(hops: list[Hop], sample: Sample) -> list[dict[str, float]]:
    """Share of each hop's mass on prompt, reasoning, output and context; each entry sums to 1."""
    shares = []
    for hop in hops:
        share = {name: float(hop.scores[slice(*span)].sum()) for name, span in sample.segments.named()}
        share["context"] = max(0.0, 1.0 - sum(share.values()))
        shares.append(share)
    return shares
