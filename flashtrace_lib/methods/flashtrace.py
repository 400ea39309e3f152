"""FlashTrace: span-wise aggregation and recursion through the reasoning (section 4, algorithm 1)."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from transformers import PreTrainedTokenizerBase

from ..attribution import Attribution, Hop, Method
from ..kernel.activations import Activations
from ..kernel.capture import capture
from ..kernel.decomposition import check_decomposition
from ..kernel.fused_attention import attention_used, choose
from ..kernel.proximity import span_rollout, span_scores, span_sums, spans_at_once
from ..model.context import check_context
from ..model.wrapped import in_use
from ..sample import Sample, Span, bounding_span
from .causal_hop import CausalSteps, causal_steps
from .hops import mass_by_segment, share_by_sentence, spread_to_neighbours
from .perturbation_base import check_choice

BEST = {"residual": "propagated", "smoothing": 5}  # docs/better_flashtrace.md
RELEASED = {"first_hop": "generation", "recursion": "generation", "flow": "generation", "hop_scale": "raw"}
Request = tuple[Sample, Span, torch.Tensor]  # a span of a sample to explain, and the weights of its tokens


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
    flow : {"reasoning", "generation"}
        ρ_k is the share of T in hop k's mass, or of all from the first token of T to the last of O. With the latter an
        empty T ends nothing.
    smoothing : int
        Tokens of I, an odd number, among which each shares its final score; 1 leaves the scores as they are.
    hop_weights : {"scores", "causal"}
        Weight T by the scores of the hop before; or its steps by what log p(O), and the steps that count, lose when a
        step is removed (`causal_hop`). Then one hop, in which every step is a span of its own, is the result, whatever
        K ≥ 1; hop 0 is it where no step matters (``metadata["causal_steps"]``).

    References
    ----------
    "Towards Long-Horizon Interpretability", section 4 and appendix A.
    """

    hops: int = 1
    recursion: str = "reasoning"
    skip_tokens: tuple[int, ...] = ()
    granularity: str = "token"
    aggregation: str = "sum"
    attention: str = "auto"
    residual: str = "denominator"
    hop_scale: str = "distribution"
    first_hop: str = "output"
    flow: str = "reasoning"
    smoothing: int = 1
    hop_weights: str = "scores"

    name: ClassVar[str] = "flashtrace"
    added_after_v1: ClassVar[tuple[str, ...]] = (
        "residual", "hop_scale", "first_hop", "flow", "smoothing", "hop_weights",
    )  # fmt: skip
    removed: ClassVar[dict] = {"heads": "per_head", "target_state": "token"}

    @classmethod
    def best(cls, **options: Any) -> FlashTrace:
        """The setting that found most evidence on samples that did not choose it; the paper's is ``FlashTrace()``.

        The residual's share goes on to the layer below, and final scores are shared among five neighbours: see
        ``docs/better_flashtrace.md``. ``options`` are further ones, such as ``hops``.
        """
        return cls(**{**BEST, **options})

    @classmethod
    def released(cls, tokenizer: PreTrainedTokenizerBase, **options: Any) -> FlashTrace:
        """What version 0.1.1 of the authors' package ``flashtrace`` computes; the paper's is ``FlashTrace()``.

        Every hop explains T ∪ O, whose share of a hop's mass is ρ; hops are added at their raw scale; tokens that are
        blank, "," or "." count nowhere, in a chat template neither. Values whose projection has a bias (Qwen2) keep it
        here, where the package drops it. ``options`` are further ones, such as ``hops``.
        """
        texts = tokenizer.batch_decode([[i] for i in range(len(tokenizer))], clean_up_tokenization_spaces=False)
        skipped = tuple(i for i, text in enumerate(texts) if text.strip() in ("", ",", "."))
        return cls(**{**RELEASED, "skip_tokens": skipped, **options})

    def __post_init__(self) -> None:
        if type(self.hops) is not int or self.hops < 0:
            raise ValueError(f"hops must be a whole number of at least 0, got {self.hops!r}")
        if type(self.smoothing) is not int or self.smoothing < 1 or self.smoothing % 2 == 0:
            raise ValueError(f"smoothing must be an odd number of tokens, 1 or more, got {self.smoothing!r}")
        check_choice("recursion", self.recursion, ("reasoning", "generation"))
        check_choice("granularity", self.granularity, ("token", "sentence"))
        check_choice("aggregation", self.aggregation, ("sum", "mean", "last"))
        check_choice("attention", self.attention, ("auto", "recompute", "cached", "fused"))
        check_choice("residual", self.residual, ("denominator", "propagated"))
        check_choice("hop_scale", self.hop_scale, ("distribution", "raw"))
        check_choice("first_hop", self.first_hop, ("output", "generation"))
        check_choice("flow", self.flow, ("reasoning", "generation"))
        check_choice("hop_weights", self.hop_weights, ("scores", "causal"))
        self.skip_tokens = tuple(int(t) for t in self.skip_tokens)

    def options(self) -> dict[str, Any]:
        """As for every method; ways to the same sums of attention share one name, and so one stored result."""
        return super().options() | {"attention": "cached" if self.attention == "cached" else "recompute"}

    def _attribute(self, model: torch.nn.Module, sample: Sample) -> Attribution:
        check_decomposition(model)
        return self._explain(model, [sample])[0]

    def attribute_many(self, model: torch.nn.Module, sample: Sample, spans: Sequence[Span]) -> list[Attribution]:
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

        Returns
        -------
        list of Attribution
            In the order of ``spans``; ``seconds`` is each one's equal share of the whole.

        Raises
        ------
        ValueError
            If there is no span, or one is empty or does not lie in the response.
        """
        samples = [sample.with_output(span) for span in spans]
        if not samples:
            raise ValueError("no spans to explain: pass at least one (start, stop) range of token positions")
        with in_use(model) as model:
            start = time.perf_counter()
            check_context(model, sample)
            check_decomposition(model)
            results = self._explain(model, samples)
        share = (time.perf_counter() - start) / len(results)
        return [self._finished(result, one, share) for result, one in zip(results, samples, strict=True)]

    def _capture(self, model: torch.nn.Module, samples: Sequence[Sample]) -> Activations:
        """The forward pass that samples of one context share: what any hop may target, as section 4 needs it."""
        whole = self.hops or self.first_hop == "generation"
        rows = bounding_span([s.segments.generated if whole else s.segments.output for s in samples])
        heads = getattr(model.config.get_text_config(), "num_attention_heads", 1)
        attention = choose(model.device, heads, rows) if self.attention == "auto" else self.attention
        return capture(model, samples[0].input_ids, rows, attention=attention)

    def _algorithm_1(self, sample: Sample) -> Generator[list[Request], torch.Tensor, Attribution]:
        """The paper's algorithm: yields the span that a hop explains, and is sent the span's scores [1, N]."""
        segments, hops, flow = sample.segments, [], []
        target = segments.output if self.first_hop == "output" else segments.generated
        passed_on = segments.generated if self.flow == "generation" else segments.reasoning
        if self.aggregation == "last":
            target = (target[1] - 1, target[1])
        weights = self._first_weights(target[1] - target[0])
        total, carried = torch.zeros(len(sample.prompt_ids)), 1.0
        for _ in range(self.hops + 1):
            weights = self._target_weights(sample, target, weights)
            hop = self._as_hop((yield [(sample, target, weights)])[0], sample, target, weights)  # w^(k), sums to 1
            total += carried * hop.scale * hop.scores[slice(*segments.prompt)]
            flow.append(float(hop.scores[slice(*passed_on)].sum()))  # ρ_k
            hops.append(hop)
            carried *= flow[-1]
            target = segments.generated if self.recursion == "generation" else segments.reasoning
            weights = hop.scores[slice(*target)]
            if passed_on[0] == passed_on[1] or not weights.sum() > 0:  # nothing flowed there to go on with
                break
        return Attribution(spread_to_neighbours(total, self.smoothing), self.name, hops=hops, flow=flow)

    def _by_steps(self, sample: Sample, steps: CausalSteps) -> Generator[list[Request], torch.Tensor, Attribution]:
        """Hop 0 and, in its place where steps of T matter, their hop: yields them all, and is sent their [B, N]."""
        result = yield from replace(self, hops=0, smoothing=1)._algorithm_1(sample)
        target = sample.segments.reasoning
        if steps.weights.any():
            weights = self._target_weights(sample, target, steps.over(target))
            parts = [(sample, (a, b), weights[a - target[0] : b - target[0]]) for a, b in steps.spans]
            parts = [part for part in parts if part[2].any()]
            shares = torch.stack([part.sum() for _, _, part in parts])  # [B]
            hop = self._as_hop(shares @ (yield parts), sample, target, weights)
            result.hops[0].scale = 0.0  # it lowered R-precision on the samples that chose the hop (`causal_hop`)
            result.hops.append(hop)
            result.flow.append(float(hop.scores[slice(*target)].sum()))
            result.scores = hop.scale * hop.scores[slice(*sample.segments.prompt)]
        result.scores = spread_to_neighbours(result.scores, self.smoothing)
        return result

    def _explain(self, model: torch.nn.Module, samples: Sequence[Sample]) -> list[Attribution]:
        """Attributions of samples that share one context: algorithm 1 on all of them, hop by hop side by side."""
        state, asks = self._capture(model, samples), self.hop_weights == "causal" and self.hops
        steps = causal_steps(model, samples, state) if asks else [None] * len(samples)
        runs = [self._by_steps(s, own) if own else self._algorithm_1(s) for s, own in zip(samples, steps, strict=True)]
        asked, results = {i: next(run) for i, run in enumerate(runs)}, {}
        while asked:
            flat, size = [request for requests in asked.values() for request in requests], spans_at_once(state)
            found = torch.cat([self._scores(state, flat[at : at + size]) for at in range(0, len(flat), size)])
            parts = zip(list(asked), found.split([len(requests) for requests in asked.values()]), strict=True)
            asked = {}
            for i, scores in parts:
                try:
                    asked[i] = runs[i].send(scores)
                except StopIteration as done:
                    results[i] = done.value
        for i, (sample, own) in enumerate(zip(samples, steps, strict=True)):
            hops = results[i].hops
            results[i].metadata = {
                "forward_passes": 1 + (1 + len(own.spans) if own else 0),
                "backward_passes": 0,
                "hop_passes": len(hops),
                "mass": [mass_by_segment(hop.scores, sample) for hop in hops],
                "attention": attention_used(state),
            } | ({"causal_steps": own.as_metadata()} if own else {})
            if asks and not own and sample.segments.has_reasoning:
                results[i].metadata["too_many_steps"] = True
        return [results[i] for i in range(len(samples))]

    def _scores(self, state: Activations, requests: list[Request]) -> torch.Tensor:
        """Scores over the context of the spans that are asked for, [B, N]."""
        union = bounding_span([target for _, target, _ in requests])
        rows = torch.zeros(len(requests), union[1] - union[0])  # [B, m]
        own = torch.zeros_like(rows, dtype=torch.bool)  # the rows that belong to each span
        for i, (_, (start, stop), weights) in enumerate(requests):
            part = slice(start - union[0], stop - union[0])
            rows[i, part], own[i, part] = weights, True
        if self.residual == "propagated":
            return span_rollout(state, rows, own, union, each=self.aggregation == "mean")
        score = span_scores if self.hop_scale == "distribution" else span_sums
        if self.aggregation == "mean":
            parts = torch.eye(rows.shape[1]).split(spans_at_once(state))
            return rows @ torch.cat([score(state, part, union) for part in parts])  # of [m, N]
        return score(state, rows, union)

    def _as_hop(self, raw: torch.Tensor, sample: Sample, target: Span, weights: torch.Tensor) -> Hop:
        """One hop from its scores [N]: skipped tokens go, sentences share where that is asked, the sum becomes 1."""
        scores = raw * self._kept(sample)
        if self.granularity == "sentence":
            scores = share_by_sentence(scores, sample)
        total = scores.sum().clamp_min(1e-30)
        return Hop(scores / total, target, weights, float(total) if self.hop_scale == "raw" else 1.0)

    def _first_weights(self, n: int) -> torch.Tensor:
        """Weights of the first hop's target, any scale, shape [n]."""
        return torch.ones(n)

    def _target_weights(self, sample: Sample, target: Span, weights: torch.Tensor) -> torch.Tensor:
        """Weights [target length] without skipped tokens, summing to 1."""
        weights = weights * self._kept(sample)[slice(*target)]
        if not weights.sum() > 0:
            raise ValueError(f"every token of the target span {target} is skipped: nothing is left to explain")
        return weights / weights.sum()

    def _kept(self, sample: Sample) -> torch.Tensor:
        """1 where a token counts, 0 where it is skipped, shape [N]."""
        return (~torch.isin(sample.input_ids.cpu(), torch.tensor(self.skip_tokens, dtype=torch.long))).float()
