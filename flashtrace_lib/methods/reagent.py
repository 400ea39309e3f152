"""ReAGent: recursive attribution by plausible replacements (Zhao & Shan 2024; appendix D)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from tqdm import tqdm

from ..attribution import Attribution
from ..model.batched_forward import log_prob_of, score_rows
from ..model.state import model_budget
from ..sample import Sample, Span, seeded_generator
from .perturbation_base import UnitMethod, unit_spans

REPLACE_SHARE = 0.3  # of the units, at a step
KEEP_SHARE = 0.1  # of the units, which alone must keep the prediction; else the first lucky draw would end the run
DRAWS = 32  # proposals drawn for a position; every replacement takes one of them at random
_LARGEST_CHANGE = 1 - 1e-6  # the logit of a change of 1 would be infinite


@dataclass
class ReAGent(UnitMethod):
    """Replace random parts of the context by plausible other tokens and credit them with the change in the prediction.

    A run starts from random importance logits z (one row for each token of O) and repeats: replace a random share of
    the units; with Δ the change in the prediction of o_t, add logit((1 + Δ)/2) to z of the units that were replaced
    and take it from the others; stop when the most important units alone, all others replaced, keep every token of O
    among the model's first ``top_k``. Importance is softmax(z) over the units, averaged over the tokens of O
    (appendix D.1) and over the runs, then cut to I.

    A replacement is drawn from the model's own next-token distribution, never the token that stood there. Where O
    would be kept although the most important units are replaced as well, it does not depend on them and the run goes
    on: O is given up to o_t and may follow from itself.

    All tokens of O are read off the same replaced context, so a step costs one pass, not |O|; for the same reason
    the stopping rule looks at the mean importance and at all tokens of O at once, and tokens of O are never
    replaced. A run takes two forward passes a step, and a third where O was kept.

    Parameters
    ----------
    top_k : int
        How far up a token of O must rank to count as kept.
    runs : int
        Independent runs that are averaged.
    max_steps : int
        Most steps of a run.
    seed : int
        Fixes every draw, together with the sample.

    The other parameters: see `UnitMethod`.

    References
    ----------
    Zhao & Shan, "ReAGent: A Model-agnostic Feature Attribution Method for Generative Language Models", 2024.
    """

    top_k: int = 3
    runs: int = 3
    max_steps: int = 50
    seed: int = 0

    name: ClassVar[str] = "reagent"
    removed: ClassVar[dict] = {
        "spread": "copy", "proposals": "model", "region": "context", "distance": "probability",
        "replace_share": REPLACE_SHARE, "keep_share": KEEP_SHARE,
    }  # fmt: skip
    revision: ClassVar[int] = 2  # 1 let a token be its own replacement

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("top_k", "runs", "max_steps"):
            if getattr(self, option) < 1:
                raise ValueError(f"{option} must be at least 1, got {getattr(self, option)!r}")

    def _attribute(self, model, sample: Sample) -> Attribution:
        spans = self._spans(sample)
        n_input = len(spans)
        if sample.segments.has_reasoning:  # units of T are replaced, and dropped at the end (appendix D.1)
            spans = spans + unit_spans(sample, sample.segments.reasoning, self._units(sample))
        draws = seeded_generator(f"{self.seed}:proposals", sample)
        proposer = CausalProposals(model, sample, (spans[0][0], spans[-1][1]), draws)
        search = _Search(self, model, sample, spans, proposer)
        importance = search.run()  # [U], sums to 1
        told = {"n_units": len(spans), "proposals": "causal model", "steps": search.steps, "stopped": search.stopped}
        passes = search.forward_passes + proposer.forward_passes
        return self._attribution(sample, importance[:n_input], passes, **told)


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

    def __init__(self, options: ReAGent, model, sample: Sample, spans: list[Span], proposer: CausalProposals) -> None:
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
        self._before = self._probabilities(sample.input_ids.cpu()[None])  # [1, R]

    def run(self) -> torch.Tensor:
        """Importance of every unit, mean over runs, float64 [U]."""
        drawn = [torch.rand((len(self.targets), self.n_units), generator=g, dtype=torch.float64) for g in self.random]
        logits = torch.stack(drawn)  # z: [runs, R, U]
        for _ in tqdm(range(self.options.max_steps), desc=f"{self.options.name} {self.sample.id}", leave=False):
            active = [run for run in range(self.options.runs) if not self.stopped[run]]
            if not active:
                break
            random = [self.random[run] for run in active]
            chosen = self._draw(random)  # [B, U]
            change = self._before - self._probabilities(self._replace(chosen, random))  # [B, R]: Δ
            change = change.clamp(-_LARGEST_CHANGE, _LARGEST_CHANGE)
            sign = chosen.double() * 2 - 1  # [B, U]
            logits[active] += torch.logit((1 + change) / 2)[:, :, None] * sign[:, None]
            decided = self._top_units_decide(_importance(logits[active]), random)
            for run, done in zip(active, decided, strict=True):
                self.steps[run] += 1
                self.stopped[run] = done
        return _importance(logits).mean(0)

    def _draw(self, random: list[torch.Generator]) -> torch.Tensor:
        """A random share of the units for every generator, bool [B, U]."""
        count = max(1, round(REPLACE_SHARE * self.n_units))
        order = torch.stack([torch.rand(self.n_units, generator=g).argsort() for g in random])  # [B, U]
        return torch.zeros(order.shape, dtype=torch.bool).scatter_(1, order[:, :count], True)

    def _top_units_decide(self, importance: torch.Tensor, random: list[torch.Generator]) -> list[bool]:
        """Whether O is kept with the top units alone, and lost once they are replaced too; importance [B, U]."""
        count = max(1, round(KEEP_SHARE * self.n_units))
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

    def _probabilities(self, contexts: torch.Tensor) -> torch.Tensor:
        """p(o_t) of each token of O in each of the contexts [B, N], float64 [B, R]."""
        return self._score(contexts, log_prob_of(self.targets)).double().exp()

    def _score(self, contexts: torch.Tensor, measure) -> torch.Tensor:
        """Measure of the predictions of O in each of the contexts [B, N]."""
        self.forward_passes += len(contexts)
        return score_rows(self.model, contexts[:, : self.sample.segments.output[1] - 1], len(self.targets), measure)


def _importance(logits: torch.Tensor) -> torch.Tensor:
    """Importance [..., U] from logits [..., R, U]: softmax over the units, mean over the tokens of O."""
    return logits.softmax(-1).mean(-2)


class CausalProposals:
    """Replacements drawn from the model's next-token distribution given the intact context to the left.

    The token that stood there and the model's special tokens are left out of the distribution. It looks one way only,
    where the original's masked language model looks both ways. Takes one forward pass (several for a long context with
    a large vocabulary, each within the free memory); the draws do not depend on how many.
    """

    def __init__(self, model, sample: Sample, region: Span, generator: torch.Generator) -> None:
        self.ids = sample.input_ids.cpu()
        self._pool = self.ids[:, None].repeat(1, DRAWS)  # [N, DRAWS]
        self.forward_passes = 0
        start, stop = region
        shift = 0 if start else 1  # nothing stands before the first token: let it follow a mask token
        if shift and sample.mask_token_id is None:
            raise ValueError(f"sample {sample.id} has no mask_token_id to predict its first token from")
        context = torch.cat([torch.tensor([sample.mask_token_id]), self.ids]) if shift else self.ids
        special = _special_ids(model)
        uniform = torch.rand(self._pool.shape, generator=generator).double()  # of float32: stays below 1
        # positions whose logits are formed at once
        window = max(64, model_budget(model) // (8 * model.config.get_text_config().vocab_size))
        for end in range(stop, start, -window):
            first = max(start, end - window)

            def draw(log_probs: torch.Tensor, part: slice, first: int = first) -> torch.Tensor:
                at = slice(first + part.start, first + part.start + len(log_probs))
                return _draw_others(log_probs, self.ids[at], special, uniform[at])

            self._pool[first:end] = score_rows(model, [context[: end - 1 + shift]], end - first, draw)[0]
            self.forward_passes += 1

    def __call__(self, chosen: torch.Tensor, generators: Sequence[torch.Generator]) -> torch.Tensor:
        """Contexts [B, N] with the chosen tokens [B, N] replaced."""
        picks = torch.stack([torch.randint(DRAWS, self.ids.shape, generator=g) for g in generators])  # [B, N]
        return torch.where(chosen, self._pool.gather(1, picks.T).T, self.ids)


def _draw_others(
    log_probs: torch.Tensor, original: torch.Tensor, special: list[int], uniform: torch.Tensor
) -> torch.Tensor:
    """Tokens [r, DRAWS] from log-probabilities [r, V] without the original [r] and special ones, by inversion."""
    log_probs = log_probs.to("cpu", torch.float64, copy=True)
    log_probs[:, special] = -torch.inf
    log_probs.scatter_(1, original[:, None], -torch.inf)
    below = log_probs.softmax(-1).cumsum(-1)  # [r, V]
    # the first token whose sum exceeds the draw: one of probability zero leaves the sum as it was, and is never it
    return torch.searchsorted(below, uniform * below[:, -1:], right=True)


def _special_ids(model) -> list[int]:
    """Ids of the marks that begin, end and pad a text, as far as the model's configuration names them."""
    config, found = model.config.get_text_config(), set()
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = getattr(config, name, None)
        found.update(value if isinstance(value, (list, tuple)) else [] if value is None else [value])
    return sorted(token for token in found if 0 <= token < config.vocab_size)
