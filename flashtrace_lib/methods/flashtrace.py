"""FlashTrace: span-wise aggregation and recursion through the reasoning (section 4, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ..activations import Activations, capture
from ..attribution import Attribution, Hop, Method
from ..decomposition import check_decomposition
from ..fused import choose
from ..proximity import span_scores
from ..sample import Sample, Span

_CHOICES = {
    "heads": ("per_head", "sum"),
    "target_state": ("token", "predictor"),
    "recursion": ("reasoning", "generation"),
    "granularity": ("token", "sentence"),
    "aggregation": ("sum", "mean", "last"),
    "attention": ("auto", "recompute", "cached", "fused"),
}


@dataclass
class FlashTrace(Method):
    """Attribute a multi-token output through its reasoning chain; K + 1 passes over one cached forward.

    Hop 0 explains O with weights 1; hop k explains T with hop k-1's scores as weights. With ρ_k the share of hop
    k's mass on T, the result is the I-part of w^(0) + Σ_k (Π_{j<k} ρ_j) w^(k) (section 4.3). The defaults are the
    paper's; every other reading is an option.

    Parameters
    ----------
    hops : int
        K, the recursive hops after hop 0. An empty T ends the recursion at hop 0.
    heads : {"per_head", "sum"}
        Proximity per head then summed, or of the head-summed contribution.
    target_state : {"token", "predictor"}
        Explain the state at the generated token, or at the one before it, that predicts it.
    recursion : {"reasoning", "generation"}
        Hop k ≥ 1 targets T, or T ∪ O.
    skip_tokens : tuple of int
        Token ids whose weights and scores are set to zero in every hop.
    granularity : {"token", "sentence"}
        Keep token scores, or share each sentence's mass equally among its tokens after every hop (appendix M.2).
    aggregation : {"sum", "mean", "last"}
        Aggregate a span before the proximity (eq. 5), average single-token distributions after it, or let hop 0
        explain the last token of O alone (appendix M.1).
    attention : {"auto", "recompute", "cached", "fused"}
        Recompute attention rows in blocks, keep all maps (algorithm 1 as printed; table 9), or sum the columns of
        attention through a fused kernel, in layers that have one. By default the faster of the first and the last for
        the device and the size; ``metadata["attention"]`` says which it was.

    References
    ----------
    "Towards Long-Horizon Interpretability", section 4 and appendix A.
    """

    hops: int = 1
    heads: str = "per_head"
    target_state: str = "token"
    recursion: str = "reasoning"
    skip_tokens: tuple[int, ...] = ()
    granularity: str = "token"
    aggregation: str = "sum"
    attention: str = "auto"

    name: ClassVar[str] = "flashtrace"

    def __post_init__(self) -> None:
        if not isinstance(self.hops, int) or isinstance(self.hops, bool) or self.hops < 0:
            raise ValueError(f"hops must be a whole number of at least 0, got {self.hops!r}")
        for option, allowed in _CHOICES.items():
            if getattr(self, option) not in allowed:
                raise ValueError(f"{option} must be one of {', '.join(allowed)}, got {getattr(self, option)!r}")
        self.skip_tokens = tuple(int(t) for t in self.skip_tokens)

    def _attribute(self, model: torch.nn.Module, sample: Sample) -> Attribution:
        check_decomposition(model)
        activations = self._capture(model, sample.input_ids, self._rows(sample))
        hops = self._hops(activations, sample)
        scores, flow = accumulate(hops, sample)
        metadata = {**self._metadata(hops, sample), "attention": attention_used(activations)}
        return Attribution(scores, self.name, hops=hops, flow=flow, metadata=metadata)

    def options(self) -> dict[str, Any]:
        """As for every method; ways to the same sums of attention share one name, and so one stored result."""
        options = super().options()
        return options if self.attention == "cached" else {**options, "attention": "recompute"}

    def _capture(self, model: torch.nn.Module, input_ids: torch.Tensor, rows: Span) -> Activations:
        """The forward pass, with ``attention`` decided."""
        attention = self.attention
        if attention == "auto":
            attention = choose(model.device, model.config.get_text_config().num_attention_heads, rows)
        return capture(model, input_ids, rows, attention=attention)

    def _rows(self, sample: Sample) -> Span:
        """Positions whose states any hop may target."""
        start, stop = sample.segments.generated if self.hops else sample.segments.output
        return (start - 1, stop - 1) if self.target_state == "predictor" else (start, stop)

    def _hops(self, activations: Activations, sample: Sample) -> list[Hop]:
        """Run hop 0 on O and up to K hops on T."""
        target = sample.segments.output
        if self.aggregation == "last":
            target = (target[1] - 1, target[1])
        weights = torch.ones(target[1] - target[0])
        hops = [self._hop(activations, sample, target, weights)]
        target = sample.segments.generated if self.recursion == "generation" else sample.segments.reasoning
        while len(hops) <= self.hops and sample.segments.has_reasoning:
            weights = hops[-1].scores[slice(*target)]
            if not weights.sum() > 0:  # nothing flowed into T: the remaining hops carry no mass
                break
            hops.append(self._hop(activations, sample, target, weights))
        return hops

    def _hop(self, activations: Activations, sample: Sample, target: Span, weights: torch.Tensor) -> Hop:
        """One span attribution; its scores are a distribution over the context."""
        weights = weights * self._kept(sample)[slice(*target)]
        if not weights.sum() > 0:
            raise ValueError(f"every token of the target span {target} is in skip_tokens: nothing is left to explain")
        weights = weights / weights.sum()
        shift = 1 if self.target_state == "predictor" else 0
        rows = (target[0] - shift, target[1] - shift)
        if self.aggregation == "mean":
            each = span_scores(activations, torch.eye(len(weights)), rows, heads=self.heads)  # [m, N]
            scores = weights @ each
        else:
            scores = span_scores(activations, weights[None], rows, heads=self.heads)[0]  # [N]
        scores = scores * self._kept(sample)
        if self.granularity == "sentence":
            scores = share_by_sentence(scores, sample)
        return Hop(scores / scores.sum().clamp_min(1e-30), target, weights)

    def _kept(self, sample: Sample) -> torch.Tensor:
        """1 where a token counts, 0 where it is skipped, shape [N]."""
        skipped = torch.tensor(self.skip_tokens, dtype=torch.long)
        return (~torch.isin(sample.input_ids.cpu(), skipped)).float()

    def _metadata(self, hops: list[Hop], sample: Sample) -> dict:
        """Passes taken and the share of each segment in each hop."""
        return {"forward_passes": 1, "backward_passes": 0, "hop_passes": len(hops), "mass": mass(hops, sample)}


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
        total += carried * hop.scores[slice(*sample.segments.prompt)]
        carried *= rho
    return total, flow


def attention_used(activations: Activations) -> dict[str, Any]:
    """How the columns of attention were summed; the layers that went another way than asked are named."""
    layers = activations.layers
    if layers[0].maps is not None:
        return {"used": "cached"}
    recomputed = [layer.parts.index for layer in layers if not layer.fused]
    if len(recomputed) == len(layers):
        return {"used": "recompute"}
    return {"used": "fused", "recomputed_layers": recomputed}


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
