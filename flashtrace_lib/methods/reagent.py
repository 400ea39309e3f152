"""ReAGent: recursive attribution by plausible replacements (Zhao & Shan 2024; appendix D)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from tqdm import tqdm

from ..attribution import Attribution
from ..model.batched_forward import hellinger_from, log_prob_of, score_rows, whole_distribution
from ..sample import Sample, Span, seeded_generator
from .perturbation_base import UnitMethod, check_choice, unit_spans
from .reagent_proposals import MODEL, CausalProposals, MaskedProposals, Proposer, make_proposer

_LARGEST_CHANGE = 1 - 1e-6  # the logit of a change of 1 would be infinite


@dataclass
class ReAGent(UnitMethod):
    """Replace random parts of the context by plausible other tokens and credit them with the change in the prediction.

    A run starts from random importance logits z (one row for each token of O) and repeats: replace a random share of
    the units; with Δ the change in the prediction of o_t, add logit((1 + Δ)/2) to z of the units that were replaced
    and take it from the others; stop when the most important units alone, all others replaced, keep every token of O
    among the model's first ``top_k``. Importance is softmax(z) over the units, averaged over the tokens of O
    (appendix D.1) and over the runs, then cut to I.

    A replacement is never the token that stood there. Where O would be kept although the most important units are
    replaced as well, it does not depend on them and the run goes on: O is given up to o_t and may follow from itself.

    All tokens of O are read off the same replaced context, so a step costs one pass, not |O|; for the same reason
    the stopping rule looks at the mean importance and at all tokens of O at once, and tokens of O are never
    replaced. A run takes two forward passes a step, and a third where O was kept.

    Parameters
    ----------
    proposals : str
        ``"model"``: draws from the causal model's own next-token distribution. Else a hub id or a folder of a masked
        language model (``"roberta-base"`` in the original), whose most probable other word is taken.
        ``metadata["proposals"]`` says what proposed.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        The causal model's; needed with a masked language model.
    replace_share : float
        Share of the units replaced at a step.
    keep_share : float
        Share of the units that alone must keep the prediction for a run to stop. A share, since inputs differ in
        length; well under ``replace_share``, else the first lucky draw would end the run.
    top_k : int
        How far up a token of O must rank to count as kept.
    runs : int
        Independent runs that are averaged.
    max_steps : int
        Most steps of a run.
    seed : int
        Fixes every draw, together with the sample.
    distance : {"probability", "hellinger"}
        Δ = p(o_t | context) − p(o_t | replaced) in [−1, 1], or the Hellinger distance of the two predicted
        distributions in [0, 1] (the words of appendix D).
    region : {"context", "input"}
        Units of I and T are replaced, those of T dropped at the end (appendix D.1); or units of I alone.

    The other parameters: see `UnitMethod`.

    References
    ----------
    Zhao & Shan, "ReAGent: A Model-agnostic Feature Attribution Method for Generative Language Models", 2024.
    """

    proposals: str = MODEL
    tokenizer: Any = field(default=None, repr=False, compare=False)
    replace_share: float = 0.3
    keep_share: float = 0.1
    top_k: int = 3
    runs: int = 3
    max_steps: int = 50
    seed: int = 0
    distance: str = "probability"
    region: str = "context"

    name: ClassVar[str] = "reagent"
    excluded_from_key: ClassVar[tuple[str, ...]] = ("max_batch_bytes", "tokenizer")  # it belongs to the model
    revision: ClassVar[int] = 2  # 1 let a token be its own replacement

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("distance", self.distance, ("probability", "hellinger"))
        check_choice("region", self.region, ("context", "input"))
        for option in ("replace_share", "keep_share"):
            if not 0 < getattr(self, option) < 1:
                raise ValueError(f"{option} is a share of the units between 0 and 1, got {getattr(self, option)!r}")
        for option in ("top_k", "runs", "max_steps"):
            if getattr(self, option) < 1:
                raise ValueError(f"{option} must be at least 1, got {getattr(self, option)!r}")

    def setting(self) -> str:
        """Its effort and what proposed: another effort, or another model, is another baseline."""
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        source = CausalProposals.source if self.proposals == MODEL else f"{MaskedProposals.source} {self.proposals}"
        return f"{runs} of at most {self.max_steps} steps, replacements proposed by the {source}"

    def _attribute(self, model, sample: Sample) -> Attribution:
        spans = self._spans(sample)
        n_input = len(spans)
        if self.region == "context" and sample.segments.has_reasoning:
            spans = spans + unit_spans(sample, sample.segments.reasoning, self._units(sample))
        region = (spans[0][0], spans[-1][1])
        draws = seeded_generator(f"{self.seed}:proposals", sample)
        proposer = make_proposer(self.proposals, model, sample, region, draws, self.tokenizer, self.max_batch_bytes)
        search = _Search(self, model, sample, spans, proposer)
        importance = search.run()  # [U], sums to 1
        return self._attribution(
            sample,
            importance[:n_input],
            search.forward_passes + proposer.forward_passes,
            n_units=len(spans),
            proposals=proposer.source,
            steps=search.steps,
            stopped=search.stopped,
        )


class _Search:
    """The runs of one attribution, side by side in one batch.

    Attributes
    ----------
    forward_passes : int
        Contexts scored by the explained model.
    steps : list of int
        Steps each run took.
    stopped : list of bool
        Whether it ended by the stopping rule.
    """

    def __init__(self, options: ReAGent, model, sample: Sample, spans: list[Span], proposer: Proposer) -> None:
        self.options, self.model, self.sample, self.proposer = options, model, sample, proposer
        start, stop = sample.segments.output
        self.targets = sample.input_ids[start:stop].cpu()  # [R]
        self.n_units = len(spans)
        self.unit_of = torch.full((len(sample),), -1)  # [N], -1 where no unit is
        for unit, (a, b) in enumerate(spans):
            self.unit_of[a:b] = unit
        # One generator for each run: its draws do not depend on how many runs there are, or on when others stop.
        self.random = [seeded_generator(f"{options.seed}:{run}", sample) for run in range(options.runs)]
        self.forward_passes, self.steps, self.stopped = 0, [0] * options.runs, [False] * options.runs
        self._change = self._change_measure()

    def run(self) -> torch.Tensor:
        """Importance of every unit, mean over runs, float64 [U]."""
        shape = (len(self.targets), self.n_units)
        drawn = [torch.rand(shape, generator=g, dtype=torch.float64) for g in self.random]
        logits = torch.stack(drawn)  # z: [runs, R, U]
        for _ in tqdm(range(self.options.max_steps), desc=f"{self.options.name} {self.sample.id}", leave=False):
            active = [run for run in range(self.options.runs) if not self.stopped[run]]
            if not active:
                break
            random = [self.random[run] for run in active]
            chosen = self._draw(random)  # [B, U]
            change = self._change(self._replace(chosen, random)).clamp(-_LARGEST_CHANGE, _LARGEST_CHANGE)  # [B, R]
            sign = chosen.double() * 2 - 1  # [B, U]
            logits[active] += torch.logit((1 + change) / 2)[:, :, None] * sign[:, None]
            decided = self._top_units_decide(_importance(logits[active]), random)
            for run, done in zip(active, decided, strict=True):
                self.steps[run] += 1
                self.stopped[run] = done
        return _importance(logits).mean(0)

    def _draw(self, random: list[torch.Generator]) -> torch.Tensor:
        """A random share of the units for every generator, bool [B, U]."""
        count = max(1, round(self.options.replace_share * self.n_units))
        order = torch.stack([torch.rand(self.n_units, generator=g).argsort() for g in random])  # [B, U]
        return torch.zeros(order.shape, dtype=torch.bool).scatter_(1, order[:, :count], True)

    def _top_units_decide(self, importance: torch.Tensor, random: list[torch.Generator]) -> list[bool]:
        """Whether O is kept with the top units alone, and lost once they are replaced too; importance [B, U]."""
        count = max(1, round(self.options.keep_share * self.n_units))
        order = torch.argsort(importance, dim=-1, descending=True, stable=True)
        top = torch.zeros(importance.shape, dtype=torch.bool).scatter_(1, order[:, :count], True)  # [B, U]
        alone = self._replace(~top, random)  # [B, N]
        decided = self._keeps_output(alone)
        kept = decided.nonzero().flatten().tolist()
        if kept:
            without = self._replace(top[kept], [random[i] for i in kept])
            without = torch.where(self._tokens_of(top[kept]), without, alone[kept])
            decided[kept] = ~self._keeps_output(without)
        return decided.tolist()

    def _keeps_output(self, contexts: torch.Tensor) -> torch.Tensor:
        """Whether every token of O is among the first ``top_k`` in each of the contexts [B, N], bool [B]."""

        def rank(log_probs: torch.Tensor, part: slice) -> torch.Tensor:
            target = self.targets[part].to(log_probs.device)[:, None]
            return (log_probs > log_probs.gather(1, target)).sum(-1)  # tokens that are more probable

        return (self._score(contexts, rank) < self.options.top_k).all(1)

    def _tokens_of(self, units: torch.Tensor) -> torch.Tensor:
        """Tokens [B, N] of the chosen units [B, U], bool."""
        return units[:, self.unit_of] & (self.unit_of >= 0)

    def _replace(self, units: torch.Tensor, random: list[torch.Generator]) -> torch.Tensor:
        """Contexts [B, N] with the tokens of the chosen units [B, U] replaced."""
        return self.proposer(self._tokens_of(units), random)

    def _change_measure(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Δ of each token of O for replaced contexts [B, N] -> float64 [B, R]."""
        intact = self.sample.input_ids.cpu()[None]
        if self.options.distance == "hellinger":
            reference = self._score(intact, whole_distribution)[0]  # [R, V]
            return lambda contexts: self._score(contexts, hellinger_from(reference)).double()
        measure = log_prob_of(self.targets)
        before = self._score(intact, measure).double().exp()  # [1, R]
        return lambda contexts: before - self._score(contexts, measure).double().exp()

    def _score(self, contexts: torch.Tensor, measure) -> torch.Tensor:
        """Measure of the predictions of O in each of the contexts [B, N]."""
        self.forward_passes += len(contexts)
        rows = contexts[:, : self.sample.segments.output[1] - 1]
        return score_rows(self.model, rows, len(self.targets), measure, max_batch_bytes=self.options.max_batch_bytes)


def _importance(logits: torch.Tensor) -> torch.Tensor:
    """Importance [..., U] from logits [..., R, U]: softmax over the units, mean over the tokens of O."""
    return logits.softmax(-1).mean(-2)
