"""The deletion curve: the response's likelihood as the most important input tokens are masked (appendix F.2).

`curve` says which tokens are masked at step k; `batched_forward` runs the forward passes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from ..model.ablations import Effects, sentence_effects
from ..model.batched_forward import log_prob_of, score_rows
from ..model.context import mask_token
from ..model.state import check_budget
from ..sample import Sample, seeded_generator
from .arithmetic import bfloat16_copy, dtype_name, no_choice
from .curve import cumulative, is_flagged, masked_counts, normalise_response, ranking, ranks_nothing, rise


@dataclass
class DeletionCurve:
    """One raw deletion curve; every definition of RISE and MAS is computed from it.

    Parameters
    ----------
    log_probs : torch.DoubleTensor, shape [steps + 1]
        s_k, the log-probability (nats) of the whole response with the top k groups masked.
    cumulative : torch.DoubleTensor, shape [steps + 1]
        Share of the attribution mass masked at step k, rising from 0 to 1.
    n_masked : torch.LongTensor, shape [steps + 1]
        Tokens masked at step k.
    mask_token_id : int
        What stood in their place.
    dtype : str
        Arithmetic of the forward passes.
    note : str
        Why that arithmetic was used.
    """

    log_probs: torch.Tensor
    cumulative: torch.Tensor
    n_masked: torch.Tensor
    mask_token_id: int
    dtype: str
    note: str = ""

    @property
    def density(self) -> torch.Tensor:
        """Share of the mass that is still unmasked, d_k, falling from 1 to 0; shape [steps + 1]."""
        return 1 - self.cumulative


def deletion_curve(model, sample: Sample, scores, steps: int = 20, max_batch_bytes: int | None = None) -> DeletionCurve:
    """Mask the tokens of I group by group, most important first, and score the response each time.

    s_k = sum over the response of log p(token | context with the top k of ``steps`` groups masked). Tokens of
    the context (template, special tokens) and of the response itself are never masked.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        The causal language model, in its own dtype.
    sample : Sample
        Must have a ``mask_token_id``.
    scores : array-like of float, shape [|I|]
        Importance of the tokens of I. Where all are equal they rank nothing, and the order is a random one that the
        sample fixes.
    steps : int
        Number of groups.
    max_batch_bytes : int, optional
        Memory budget of one batched forward. Default: 1 GiB on a CPU, a quarter of the free memory on a GPU.

    Raises
    ------
    ValueError
        If the sample has no mask token, or the scores do not fit I or are not finite.
    """
    return Scorer(model, max_batch_bytes=max_batch_bytes).curve(sample, scores, steps)


@dataclass(eq=False)
class Scorer:
    """Computes deletion curves with one model in one arithmetic; methods that share a sample share its s_0 and s_K.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Must not change while the scorer is in use.
    precision : {"model", "auto"}
        ``"auto"`` allows an evaluation that is given this scorer to use one in bfloat16 instead (`choose_dtype`). The
        scorer itself never changes its arithmetic.
    max_batch_bytes : int, optional
        See `deletion_curve`.
    tolerance : float
        Largest change of RISE that `choose_dtype` accepts.
    dtype : str, optional
        Arithmetic of the curves: the dtype of the model, or ``"bfloat16"``, for which the model is copied. Default: the
        dtype of the model; ``precision="auto"`` sets it where bfloat16 is no option.
    note : str
        Why the curves are computed in this arithmetic; stored with each of them.

    Attributes
    ----------
    n_contexts : int
        Contexts scored so far.

    Raises
    ------
    ValueError
        If ``precision``, ``dtype`` or ``max_batch_bytes`` is none of these.
    """

    model: nn.Module = field(repr=False)
    precision: str = "model"
    max_batch_bytes: int | None = None
    tolerance: float = 0.01
    dtype: str | None = None
    note: str = "the model's own dtype"
    n_contexts: int = field(default=0, init=False)

    def __post_init__(self):
        if self.precision not in ("model", "auto"):
            raise ValueError(f'precision is "model" or "auto", got {self.precision!r}')
        own = dtype_name(self.model)
        if self.dtype not in (None, own, "bfloat16"):
            raise ValueError(f'dtype is "bfloat16" or that of the model, {own!r}, got {self.dtype!r}')
        check_budget(self.max_batch_bytes)
        if self.is_open and (reason := no_choice(self.model)):
            self.dtype, self.note = own, reason
        self._network = bfloat16_copy(self.model) if self.dtype == "bfloat16" != own else self.model
        self._ends: dict[str, dict[int, float]] = {}  # context -> tokens masked -> log-probability
        self._effects: tuple[str, dict[bytes, Effects]] = ("", {})  # of the last context: mask -> effects [S]

    @property
    def is_open(self) -> bool:
        """Whether `choose_dtype` may still choose another arithmetic."""
        return self.precision == "auto" and self.dtype is None

    @property
    def network(self) -> nn.Module:
        """The model in the arithmetic of the curves."""
        return self._network

    def curve(self, sample: Sample, scores, steps: int = 20) -> DeletionCurve:
        """Deletion curve of ``scores`` on ``sample``; see `deletion_curve`."""
        order = self._check(sample, scores)
        counts = masked_counts(len(order), steps)
        return DeletionCurve(
            self._log_probs(sample, order, counts), cumulative(scores, steps), counts, int(sample.mask_token_id),
            self.arithmetic, self.note,
        )  # fmt: skip

    def log_probs(self, sample: Sample, masks: torch.Tensor) -> torch.Tensor:
        """Log-probability of the response with some tokens of I masked.

        Parameters
        ----------
        sample : Sample
            Must have a ``mask_token_id``.
        masks : torch.BoolTensor, shape [B, |I|]
            True at the tokens that each context masks; B is 1 or more.

        Returns
        -------
        torch.DoubleTensor, shape [B]
            Nats.

        Raises
        ------
        ValueError
            If the sample has no mask token or the masks do not fit I.
        """
        mask = mask_token(sample)
        first, last = sample.segments.prompt
        if masks.dtype != torch.bool or masks.ndim != 2 or masks.shape[1] != last - first or not len(masks):
            raise ValueError(
                f"masks must be a BoolTensor [B, {last - first}], a row for each context and a column for each token "
                f"of the input, got {tuple(masks.shape)} {masks.dtype}"
            )
        start, stop = sample.response
        rows = sample.input_ids[: stop - 1].cpu().repeat(len(masks), 1)  # [B, L]: the last token predicts nothing
        rows[:, first:last][masks.cpu()] = mask
        measure = log_prob_of(sample.input_ids[start:stop])
        picked = score_rows(self._network, rows, stop - start, measure, max_batch_bytes=self.max_batch_bytes)  # [B, R]
        self.n_contexts += len(rows)
        return picked.double().sum(1)

    @property
    def arithmetic(self) -> str:
        """Name of the dtype in which contexts are scored."""
        return dtype_name(self._network)

    def effects(self, sample: Sample, masks: torch.Tensor, progress: str | None = None) -> Effects:
        """Likelihood of T, O and the response under masks [n, U] over the sample's sources, see `sentence_effects`.

        Each mask is scored once as long as the sample stays the same.
        """
        context = _context_key(sample) + repr((sample.sources, sample.segments))  # T and O have columns of their own
        if self._effects[0] != context:
            self._effects = (context, {})
        known = self._effects[1]
        keys = [mask.numpy().tobytes() for mask in masks]
        todo = {key: i for i, key in enumerate(keys) if key not in known}
        if todo:
            options = {"max_batch_bytes": self.max_batch_bytes, "progress": progress}
            found = sentence_effects(self._network, sample, masks[list(todo.values())], **options)
            known.update(zip(todo, (Effects(*pair) for pair in zip(*found, strict=True)), strict=True))
            self.n_contexts += len(todo)
        return Effects(*(torch.stack(rows) for rows in zip(*(known[key] for key in keys), strict=True)))

    def _check(self, sample: Sample, scores) -> torch.Tensor:
        """Validate the input and return the ranking, shape [|I|]."""
        mask_token(sample)
        order = ranking(scores)
        if len(order) != len(sample.prompt_ids):
            raise ValueError(
                f"sample {sample.id} has {len(sample.prompt_ids)} input tokens but {len(order)} scores: "
                "pass one score for each token of the prompt span"
            )
        if ranks_nothing(scores):
            return torch.randperm(len(order), generator=seeded_generator("no ranking", sample))
        return order

    def _log_probs(self, sample: Sample, order: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """s_k for each of ``counts``, float64 [steps + 1]; equal contexts are scored once."""
        context = _context_key(sample)
        known = dict(self._ends.get(context, {}))
        todo = [n for n in counts.unique().tolist() if n not in known]
        if todo:
            masks = torch.zeros(len(todo), len(order), dtype=torch.bool)  # [B, |I|]
            for mask, n in zip(masks, todo, strict=True):
                mask[order[:n]] = True
            known.update(zip(todo, self.log_probs(sample, masks).tolist(), strict=True))
        self._ends[context] = {n: known[n] for n in (0, len(order))}
        return torch.tensor([known[n] for n in counts.tolist()], dtype=torch.float64)


# How the note of a choice begins, after the arithmetic that was chosen.
COMPARED = "bfloat16 changes RISE by"


def choose_dtype(scorer: Scorer, sample: Sample, scores, steps: int = 20) -> Scorer:
    """Scorer that an evaluation should work with: in bfloat16 where this is faster and changes RISE little.

    A CPU that multiplies bfloat16 in hardware computes a curve faster in it than in float32, but rounds more. The curve
    of ``scores`` is therefore computed in both, and bfloat16 is chosen where

        | RISE in bfloat16 - RISE in float32 | <= ``scorer.tolerance``.

    One sample decides for a whole evaluation, so that its methods are compared in one arithmetic; on other samples RISE
    may change by more.

    Parameters
    ----------
    scorer : Scorer
        Returned as it is where its arithmetic is fixed: with ``precision="model"`` or a ``dtype``.
    sample, scores, steps
        The deciding curve, see `deletion_curve`.

    Returns
    -------
    Scorer
        With the chosen ``dtype`` and the reason as its ``note``; without a ``dtype`` where the sample cannot decide: if
        full masking does not lower the likelihood, RISE is 1 in any arithmetic (`is_flagged`).
    """
    if not scorer.is_open:
        return scorer
    exact = replace(scorer, dtype="float32")
    curve = exact.curve(sample, scores, steps).log_probs
    if is_flagged(curve):
        return replace(scorer, note="float32: not yet compared with bfloat16")
    rounded = replace(scorer, dtype="bfloat16")
    change = _rise(rounded.curve(sample, scores, steps).log_probs) - _rise(curve)
    chosen = rounded if abs(change) <= scorer.tolerance else exact
    chosen.note = f"{chosen.dtype}: {COMPARED} {change:+.4f} (limit {scorer.tolerance:.4f})"
    return chosen


def _rise(log_probs: torch.Tensor) -> float:
    return rise(normalise_response(log_probs))


def _context_key(sample: Sample) -> str:
    """Hash of all that s_0 and s_K depend on, beside the model."""
    digest = hashlib.sha256(sample.input_ids.cpu().numpy().tobytes())
    digest.update(repr((sample.segments.prompt, sample.response, sample.mask_token_id)).encode())
    return digest.hexdigest()
