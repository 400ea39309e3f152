"""ReAGent: recursive attribution by plausible replacements (Zhao & Shan 2024; appendix D)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from tqdm import tqdm

from ..attribution import Attribution
from ..proposals import MODEL, Proposer, make_proposer
from ..sample import Sample, Span
from ..scoring_model import hellinger_from, log_prob_of, score_rows, whole_distribution
from .units import UnitMethod, check_choice, seeded_generator, unit_spans

_LARGEST_CHANGE = 1 - 1e-6  # the logit of a change of 1 would be infinite


@dataclass
class ReAGent(UnitMethod):
    """Replace random parts of the context by plausible tokens and credit them with the change in the prediction.

    A run starts from random importance logits z (one row for each token of O) and repeats: replace a random share of
    the units; with Δ the change in the prediction of o_t, add logit((1 + Δ)/2) to z of the units that were replaced
    and take it from the others; stop when the most important units alone, all others replaced, keep every token of O
    among the model's first ``top_k``. Importance is softmax(z) over the units, averaged over the tokens of O
    (appendix D.1) and over the runs, then cut to I.

    All tokens of O are read off the same replaced context, so a step costs one pass, not |O|; for the same reason
    the stopping rule looks at the mean importance and at all tokens of O at once, and tokens of O are never
    replaced. A run takes two forward passes a step.

    Parameters
    ----------
    proposals : str
        ``"model"``: the causal model's own next-token predictions. Else a hub id or a folder of a masked language
        model (``"roberta-base"`` in the original). What was used stands in ``metadata["proposals"]``.
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
    incidental: ClassVar[tuple[str, ...]] = ("max_batch_bytes", "tokenizer")  # the tokenizer belongs to the model

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

    def _attribute(self, model, sample: Sample) -> Attribution:
        spans = self._spans(sample)
        n_input = len(spans)
        if self.region == "context" and sample.segments.has_reasoning:
            spans = spans + unit_spans(sample, sample.segments.reasoning, self.units)
        region = (spans[0][0], spans[-1][1])
        proposer = make_proposer(self.proposals, model, sample, region, self.tokenizer, self.max_batch_bytes)
        search = _Search(self, model, sample, spans, proposer)
        importance = search.run()  # [U], sums to 1
        return self._attribution(
            sample,
            importance[:n_input],
            search.forward_passes + proposer.forward_passes,
            proposals=self.proposals,
            proposals_unchanged=search.unchanged_share,
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
    unchanged_share : float
        Share of the replacements that proposed the token that stood there.
    """

    def __init__(self, options: ReAGent, model, sample: Sample, spans: list[Span], proposer: Proposer) -> None:
        self.options, self.model, self.sample, self.proposer = options, model, sample, proposer
        start, stop = sample.segments.output
        self.targets = sample.input_ids[start:stop].cpu()  # [R]
        self.n_units = len(spans)
        self.unit_of = torch.full((len(sample),), -1)  # [N], -1 where no unit is
        for unit, (a, b) in enumerate(spans):
            self.unit_of[a:b] = unit
        self.random = seeded_generator(options.seed, sample)
        self.forward_passes, self.steps, self.stopped = 0, [0] * options.runs, [False] * options.runs
        self._n_replaced = self._n_unchanged = 0
        self._change = self._change_measure()

    @property
    def unchanged_share(self) -> float:
        """Share of the replacements that proposed the token that stood there."""
        return self._n_unchanged / max(1, self._n_replaced)

    def run(self) -> torch.Tensor:
        """Importance of every unit, mean over runs, float64 [U]."""
        shape = (self.options.runs, len(self.targets), self.n_units)
        logits = torch.rand(shape, generator=self.random, dtype=torch.float64)  # z: [runs, R, U]
        for _ in tqdm(range(self.options.max_steps), desc=f"{self.options.name} {self.sample.id}", leave=False):
            active = [run for run in range(self.options.runs) if not self.stopped[run]]
            if not active:
                break
            chosen = self._draw()[active]  # [B, U]; drawn for all runs, so that a run does not depend on the others
            change = self._change(self._replace(chosen)).clamp(-_LARGEST_CHANGE, _LARGEST_CHANGE)  # [B, R]
            sign = chosen.double() * 2 - 1  # [B, U]
            logits[active] += torch.logit((1 + change) / 2)[:, :, None] * sign[:, None]
            kept = self._keeps_prediction(_importance(logits[active]))
            for run, done in zip(active, kept, strict=True):
                self.steps[run] += 1
                self.stopped[run] = done
        return _importance(logits).mean(0)

    def _draw(self) -> torch.Tensor:
        """A random share of the units for every run, bool [runs, U]."""
        count = max(1, round(self.options.replace_share * self.n_units))
        order = torch.rand(self.options.runs, self.n_units, generator=self.random).argsort(-1)
        return torch.zeros(order.shape, dtype=torch.bool).scatter_(1, order[:, :count], True)

    def _keeps_prediction(self, importance: torch.Tensor) -> list[bool]:
        """Whether the top units alone keep every token of O in the first k; importance [B, U]."""
        count = max(1, round(self.options.keep_share * self.n_units))
        top = torch.argsort(importance, dim=-1, descending=True, stable=True)[:, :count]
        others = torch.ones(importance.shape, dtype=torch.bool).scatter_(1, top, False)  # [B, U]

        def rank(log_probs: torch.Tensor, part: slice) -> torch.Tensor:
            target = self.targets[part].to(log_probs.device)[:, None]
            return (log_probs > log_probs.gather(1, target)).sum(-1)  # tokens that are more probable

        return (self._score(self._replace(others), rank) < self.options.top_k).all(1).tolist()

    def _replace(self, units: torch.Tensor) -> torch.Tensor:
        """Contexts [B, N] with the tokens of the chosen units [B, U] replaced."""
        chosen = units[:, self.unit_of] & (self.unit_of >= 0)  # [B, N]
        contexts = self.proposer(chosen)
        self._n_replaced += int(chosen.sum())
        self._n_unchanged += int((chosen & (contexts == self.proposer.ids)).sum())
        return contexts

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
