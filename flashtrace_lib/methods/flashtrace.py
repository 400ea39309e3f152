"""FlashTrace: span-wise aggregation and recursion through the reasoning (section 4, algorithm 1)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ..attribution import Attribution, Hop, Method
from ..kernel.activations import Activations
from ..kernel.capture import capture
from ..kernel.decomposition import check_decomposition
from ..kernel.fused_attention import attention_used, choose
from ..kernel.proximity import span_rollout, span_scores, span_sums, spans_at_once
from ..model.context import check_context
from ..recording import Recording
from ..sample import Sample, Span, bounding_span
from .hops import accumulate, mass_by_segment, share_by_sentence, spread_to_neighbours

_CHOICES = {
    "heads": ("per_head", "sum"),
    "target_state": ("token", "predictor"),
    "recursion": ("reasoning", "generation"),
    "granularity": ("token", "sentence"),
    "aggregation": ("sum", "mean", "last"),
    "attention": ("auto", "recompute", "cached", "fused"),
    "residual": ("denominator", "propagated"),
    "hop_scale": ("distribution", "raw"),
    "first_hop": ("output", "generation"),
    "value_bias": ("included", "left_out"),
    "sink": ("kept", "removed"),
}


BEST = {"residual": "propagated", "smoothing": 5}  # docs/better_flashtrace.md


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
        Hop k ≥ 1 targets T, or all from the first token of T to the last of O (marks between them included).
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
    residual : {"denominator", "propagated"}
        The residual's share of a layer only divides the layer's scores, or goes on to the layer below
        (`proximity.span_rollout`; with ``aggregation="mean"`` token by token, the exact rollout within the span).
    hop_scale : {"distribution", "raw"}
        Add up the hops as distributions, or as raw sums over layers.
    first_hop : {"output", "generation"}
        Hop 0 targets O, or all from the first token of T to the last of O.
    value_bias : {"included", "left_out"}
        Contributions of the values with or without their bias, in models that have one.
    sink : {"kept", "removed"}
        "removed": weight and score of the context's first token, a sink of attention, are zero in every hop.
    smoothing : int
        Tokens of I, an odd number, among which each shares its final score; 1 leaves the scores as they are.

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
    residual: str = "denominator"
    hop_scale: str = "distribution"
    first_hop: str = "output"
    value_bias: str = "included"
    sink: str = "kept"
    smoothing: int = 1

    name: ClassVar[str] = "flashtrace"
    added_after_v1: ClassVar[tuple[str, ...]] = (
        "residual", "hop_scale", "first_hop", "value_bias", "sink", "smoothing",
    )  # fmt: skip

    @classmethod
    def best(cls, tokenizer: Any = None, **options: Any) -> FlashTrace:
        """The setting that found most evidence on samples that did not choose it; the paper's is ``FlashTrace()``.

        The residual's share goes on to the layer below, and final scores are shared among five neighbours. The
        equations stand in ``docs/better_flashtrace.md``; `12b_better_flashtrace` judges it and shows where it loses.

        Parameters
        ----------
        tokenizer : transformers.PreTrainedTokenizerBase, optional
            Of the model. This setting needs none.
        **options
            Further options, such as ``hops``.
        """
        return cls(**{**BEST, **options})

    def __post_init__(self) -> None:
        if type(self.hops) is not int or self.hops < 0:
            raise ValueError(f"hops must be a whole number of at least 0, got {self.hops!r}")
        if type(self.smoothing) is not int or self.smoothing < 1 or self.smoothing % 2 == 0:
            raise ValueError(f"smoothing must be an odd number of tokens, 1 or more, got {self.smoothing!r}")
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
        check_context(model, sample)
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
                "mass": [mass_by_segment(hop.scores, sample) for hop in hops],
                "attention": attention_used(activations),
            }
            scores = spread_to_neighbours(scores, self.smoothing)
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
            layer.fused = attention == "fused" and layer.has_fused_kernel()
        return activations

    def _rows(self, samples: Sequence[Sample]) -> Span:
        """Positions whose states any hop of any sample may target."""
        whole = self.hops or self.first_hop == "generation"
        spans = [s.segments.generated if whole else s.segments.output for s in samples]
        return self._states(bounding_span(spans))

    def _states(self, target: Span) -> Span:
        """Rows whose states stand for the tokens ``target``."""
        shift = 1 if self.target_state == "predictor" else 0
        return target[0] - shift, target[1] - shift

    def _hops(self, activations: Activations, samples: Sequence[Sample]) -> list[list[Hop]]:
        """Run hop 0 on each sample's O (or T ∪ O) and up to K hops on its T; one list of hops a sample."""
        jobs = []
        for sample in samples:
            start, stop = getattr(sample.segments, "output" if self.first_hop == "output" else "generated")
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
        union = bounding_span([target for _, target, _ in jobs])
        rows = torch.zeros(len(jobs), union[1] - union[0])  # [B, m]
        own = torch.zeros_like(rows, dtype=torch.bool)
        for i, ((_, (start, stop), _), weights) in enumerate(zip(jobs, normal, strict=True)):
            part = slice(start - union[0], stop - union[0])
            rows[i, part], own[i, part] = weights, True
        scores = self._scores(activations, rows, own, self._states(union))
        pairs = zip(jobs, normal, scores, strict=True)
        return [self._as_hop(raw, sample, target, w) for (sample, target, _), w, raw in pairs]

    def _scores(self, activations: Activations, rows: torch.Tensor, own: torch.Tensor, states: Span) -> torch.Tensor:
        """Scores [B, N] of spans with row weights [B, m] over ``states``; ``own`` marks each span's rows."""
        how = {"heads": self.heads, "value_bias": self.value_bias}
        if self.residual == "propagated":
            return span_rollout(activations, rows, own, states, each=self.aggregation == "mean", **how)
        score = span_scores if self.hop_scale == "distribution" else span_sums
        if self.aggregation == "mean":
            return rows @ score(activations, torch.eye(rows.shape[1]), states, **how)  # of [m, N]
        return score(activations, rows, states, **how)

    def _as_hop(self, raw: torch.Tensor, sample: Sample, target: Span, weights: torch.Tensor) -> Hop:
        """One hop from its scores [N]: skipped tokens go, sentences share where that is asked, the sum becomes 1."""
        scores = raw * self._kept(sample)
        if self.granularity == "sentence":
            scores = share_by_sentence(scores, sample)
        total = scores.sum().clamp_min(1e-30)
        return Hop(scores / total, target, weights, float(total) if self.hop_scale == "raw" else 1.0)

    def _target_weights(self, sample: Sample, target: Span, weights: torch.Tensor) -> torch.Tensor:
        """Weights [target length] without skipped tokens, summing to 1."""
        weights = weights * self._kept(sample)[slice(*target)]
        if not weights.sum() > 0:
            raise ValueError(f"every token of the target span {target} is skipped: nothing is left to explain")
        return weights / weights.sum()

    def _kept(self, sample: Sample) -> torch.Tensor:
        """1 where a token counts, 0 where it is skipped, shape [N]."""
        skipped = torch.tensor(self.skip_tokens, dtype=torch.long)
        kept = (~torch.isin(sample.input_ids.cpu(), skipped)).float()
        if self.sink == "removed":
            kept[0] = 0
        return kept
