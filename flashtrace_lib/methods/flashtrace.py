"""FlashTrace: span-wise aggregation and recursion through the reasoning (section 4, algorithm 1)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ..activations import Activations, capture
from ..attribution import Attribution, Hop, Method
from ..decomposition import check_decomposition
from ..fused import attention_used, choose
from ..proximity import span_scores, spans_at_once
from ..recording import Recording
from ..sample import Sample, Span, hull

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
        activations = self._capture(model, sample.input_ids, self._rows([sample]))
        return self._explain(activations, [sample])[0]

    def from_cache(self, recorded: Recording, sample: Sample) -> Attribution:
        """Attribution of a response from what was kept while it was generated: no second pass over the context.

        Equal to ``attribute`` of the same sample up to rounding.

        Parameters
        ----------
        recorded : Recording
            From `recording.recording`.
        sample : Sample
            Built from the very ids that were read and generated.
        """
        return self.attribute_many(recorded.model, sample, [sample.segments.output], recorded)[0]

    def attribute_many(
        self, model: torch.nn.Module, sample: Sample, spans: Sequence[Span], recorded: Recording | None = None
    ) -> list[Attribution]:
        """Attributions of many target spans, every sentence of the reasoning say, from one forward pass.

        Each equals ``attribute(model, sample.with_output(span))``: the span takes the place of O, and T is the part
        of the sample's reasoning before it. Attention is causal, so what follows a span changes nothing, and all
        spans share one pass and its cache; each hop's attention rows are formed once for all of them.

        Parameters
        ----------
        model : transformers.PreTrainedModel
        sample : Sample
        spans : sequence of (int, int)
            Token ranges in the response, in any order; they may overlap.
        recorded : Recording, optional
            Take the activations from here, instead of a forward pass.

        Returns
        -------
        list of Attribution
            In the order of ``spans``; ``seconds`` is each one's equal share of the whole.

        Raises
        ------
        ValueError
            If there is no span, or one is empty or does not lie in the response.
        """
        start = time.perf_counter()
        samples = [sample.with_output(span) for span in spans]
        if not samples:
            raise ValueError("no spans to explain: pass at least one (start, stop) range of token positions")
        check_decomposition(model)
        activations = self._capture(model, sample.input_ids, self._rows(samples), recorded)
        at_once = spans_at_once(activations)
        results = []
        for first in range(0, len(samples), at_once):
            results += self._explain(activations, samples[first : first + at_once])
        share = (time.perf_counter() - start) / len(results)
        for result in results if recorded is not None else []:
            result.metadata["forward_passes"] = 0
        return [self._finished(result, one, share) for result, one in zip(results, samples, strict=True)]

    def _explain(self, activations: Activations, samples: Sequence[Sample]) -> list[Attribution]:
        """Attributions of samples that share one context, from its cache."""
        results = []
        for sample, hops in zip(samples, self._hops(activations, samples), strict=True):
            scores, flow = accumulate(hops, sample)
            metadata = {
                "forward_passes": 1,
                "backward_passes": 0,
                "hop_passes": len(hops),
                "mass": mass(hops, sample),
                "attention": attention_used(activations),
            }
            results.append(Attribution(scores, self.name, hops=hops, flow=flow, metadata=metadata))
        return results

    def options(self) -> dict[str, Any]:
        """As for every method; ways to the same sums of attention share one name, and so one stored result."""
        options = super().options()
        return options if self.attention == "cached" else {**options, "attention": "recompute"}

    def _capture(
        self, model: torch.nn.Module, input_ids: torch.Tensor, rows: Span, recorded: Recording | None = None
    ) -> Activations:
        """The forward pass, or what was recorded of it, with ``attention`` decided."""
        attention = self.attention
        if attention == "auto":
            attention = choose(model.device, model.config.get_text_config().num_attention_heads, rows)
        if recorded is None:
            return capture(model, input_ids, rows, attention=attention)
        if attention == "cached":
            raise ValueError("attention maps are not recorded: use attention='auto', 'recompute' or 'fused'")
        activations = recorded.activations(input_ids, rows)
        for layer in activations.layers:
            layer.fused = attention == "fused" and layer.softcap is None
        return activations

    def _rows(self, samples: Sequence[Sample]) -> Span:
        """Positions whose states any hop of any sample may target."""
        spans = [s.segments.generated if self.hops else s.segments.output for s in samples]
        return self._states(hull(spans))

    def _states(self, target: Span) -> Span:
        """Rows whose states stand for the tokens ``target``."""
        shift = 1 if self.target_state == "predictor" else 0
        return target[0] - shift, target[1] - shift

    def _hops(self, activations: Activations, samples: Sequence[Sample]) -> list[list[Hop]]:
        """Run hop 0 on each sample's O and up to K hops on its T; one list of hops a sample."""
        jobs = []
        for sample in samples:
            start, stop = sample.segments.output
            start = stop - 1 if self.aggregation == "last" else start
            jobs.append((sample, (start, stop), torch.ones(stop - start)))
        done = [[hop] for hop in self._hop(activations, jobs)]
        for _ in range(self.hops):
            jobs, owners = [], []
            for sample, hops in zip(samples, done, strict=True):
                target = sample.segments.generated if self.recursion == "generation" else sample.segments.reasoning
                weights = hops[-1].scores[slice(*target)]
                if sample.segments.has_reasoning and weights.sum() > 0:  # else nothing flowed into T to go on with
                    jobs.append((sample, target, weights))
                    owners.append(hops)
            if not jobs:
                break
            for hops, hop in zip(owners, self._hop(activations, jobs), strict=True):
                hops.append(hop)
        return done

    def _hop(self, activations: Activations, jobs: list[tuple[Sample, Span, torch.Tensor]]) -> list[Hop]:
        """One span attribution of each job (sample, target, weights of its tokens); scores are distributions."""
        normal = [self._target_weights(*job) for job in jobs]
        union = hull([target for _, target, _ in jobs])
        rows = torch.zeros(len(jobs), union[1] - union[0])  # [B, m]
        for row, (_, (start, stop), _), weights in zip(rows, jobs, normal, strict=True):
            row[start - union[0] : stop - union[0]] = weights
        if self.aggregation == "mean":
            each = span_scores(activations, torch.eye(rows.shape[1]), self._states(union), heads=self.heads)  # [m, N]
            scores = rows @ each
        else:
            scores = span_scores(activations, rows, self._states(union), heads=self.heads)  # [B, N]
        pairs = zip(jobs, normal, scores, strict=True)
        return [Hop(self._shared(raw, sample), target, w) for (sample, target, _), w, raw in pairs]

    def _target_weights(self, sample: Sample, target: Span, weights: torch.Tensor) -> torch.Tensor:
        """Weights [target length] without skipped tokens, summing to 1."""
        weights = weights * self._kept(sample)[slice(*target)]
        if not weights.sum() > 0:
            raise ValueError(f"every token of the target span {target} is in skip_tokens: nothing is left to explain")
        return weights / weights.sum()

    def _shared(self, scores: torch.Tensor, sample: Sample) -> torch.Tensor:
        """Scores [N] without skipped tokens, shared by sentence where that is asked, as a distribution."""
        scores = scores * self._kept(sample)
        if self.granularity == "sentence":
            scores = share_by_sentence(scores, sample)
        return scores / scores.sum().clamp_min(1e-30)

    def _kept(self, sample: Sample) -> torch.Tensor:
        """1 where a token counts, 0 where it is skipped, shape [N]."""
        skipped = torch.tensor(self.skip_tokens, dtype=torch.long)
        return (~torch.isin(sample.input_ids.cpu(), skipped)).float()


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
