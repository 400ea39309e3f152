"""The deletion curve: what the model still says as the most important input tokens are masked (appendix F.2).

`schedule` says which tokens are masked at step k; `scoring_model` runs the forward passes.
"""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..model.batched_forward import log_prob_of, score_rows
from ..model.state import check_budget
from ..sample import Sample, seeded_generator
from .curve import cumulative, masked_counts, ranking, ranks_nothing


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


class Scorer:
    """Computes deletion curves with one model; methods that share a sample share its s_0 and s_K.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Must not change while the scorer is in use.
    precision : {"model", "auto"}
        ``"auto"`` makes a bfloat16 copy of a float32 model where the CPU computes in bfloat16 natively. The copy
        is used only if RISE of its first curve stays within ``tolerance`` of RISE in float32; ``dtype`` and ``note``
        say what was decided.
    max_batch_bytes : int, optional
        See `deletion_curve`.
    tolerance : float
        Largest accepted change of RISE on the sample that decides; on others it may be larger.

    Attributes
    ----------
    dtype : str
        Arithmetic in use.
    note : str
        Why.
    n_contexts : int
        Contexts scored so far.
    """

    def __init__(self, model, precision: str = "model", max_batch_bytes: int | None = None, tolerance: float = 0.01):
        if precision not in ("model", "auto"):
            raise ValueError(f'precision is "model" or "auto", got {precision!r}')
        check_budget(max_batch_bytes)
        self.model = model
        self.precision = precision
        self.max_batch_bytes = max_batch_bytes
        self.tolerance = tolerance
        self.note = "the model's own dtype"
        self.n_contexts = 0
        self._reduced: nn.Module | None = None
        self._in_dtype: dict[str, Scorer] = {}
        self._undecided = precision == "auto"
        self._ends: dict[tuple[str, int, str], float] = {}  # (context, tokens masked, dtype) -> log-probability

    @property
    def dtype(self) -> str:
        """Arithmetic in use, for example ``"float32"``."""
        return _dtype_name(self._reduced if self._reduced is not None else self.model)

    def settled(self) -> bool:
        """Whether the arithmetic is decided; False where it takes the first curve that can tell."""
        if self._undecided and (reason := _no_choice(self.model)):
            self._undecided, self.note = False, reason
        return not self._undecided

    def settings(self) -> dict[str, Any]:
        """All that `from_settings` needs to score as this one does: small, and can be sent to another process."""
        names = ("precision", "max_batch_bytes", "tolerance", "note", "_undecided")
        return {name: getattr(self, name) for name in names} | {"reduced": self._reduced is not None}

    @classmethod
    def from_settings(cls, model, settings: dict[str, Any]) -> Scorer:
        """Scorer of another copy of the model, with the arithmetic that was decided on the first."""
        scorer = cls(model, settings["precision"], settings["max_batch_bytes"], settings["tolerance"])
        scorer.note, scorer._undecided = settings["note"], settings["_undecided"]
        if settings["reduced"]:
            scorer._reduced = _bfloat16_copy(model)
        return scorer

    def in_dtype(self, dtype: str) -> Scorer:
        """A scorer of this precision that has decided for ``dtype``: to compute a stored curve again as it was."""
        if dtype not in self._in_dtype:
            reduced = dtype == "bfloat16" and self.precision == "auto" and _cpu_float32(self.model)
            note = f"{dtype}: as stored"
            settings = self.settings() | {"note": note, "_undecided": False, "reduced": reduced}
            self._in_dtype[dtype] = Scorer.from_settings(self.model, settings)
        return self._in_dtype[dtype]

    def curve(self, sample: Sample, scores, steps: int = 20) -> DeletionCurve:
        """Deletion curve of ``scores`` on ``sample``; see `deletion_curve`."""
        order = self._check(sample, scores)
        counts = masked_counts(len(order), steps)
        if not self.settled():
            self._decide(sample, order, counts)
        model = self.model if self._reduced is None else self._reduced
        log_probs = self._log_probs(model, sample, order, counts)
        return DeletionCurve(
            log_probs, cumulative(scores, steps), counts, int(sample.mask_token_id), self.dtype, self.note
        )

    def _check(self, sample: Sample, scores) -> torch.Tensor:
        """Validate the input and return the ranking, shape [|I|]."""
        if sample.mask_token_id is None:
            raise ValueError(
                f"sample {sample.id} has no mask_token_id: build it with the tokenizer's pad token id "
                "(else its end token id), which stands in for a masked token"
            )
        order = ranking(scores)
        if len(order) != len(sample.prompt_ids):
            raise ValueError(
                f"sample {sample.id} has {len(sample.prompt_ids)} input tokens but {len(order)} scores: "
                "pass one score for each token of the prompt span"
            )
        if ranks_nothing(scores):
            return torch.randperm(len(order), generator=seeded_generator("no ranking", sample))
        return order

    def _decide(self, sample: Sample, order: torch.Tensor, counts: torch.Tensor) -> None:
        """Settle on bfloat16 or stay with float32, and say why."""
        from .curve import (
            is_flagged,  # here, since metrics offers deletion_curve
            normalise_response,
            rise,
        )

        self._undecided = False
        reduced = _bfloat16_copy(self.model)
        curves = [self._log_probs(model, sample, order, counts) for model in (self.model, reduced)]
        if is_flagged(curves[0]):  # RISE is 1 whatever the arithmetic: this sample cannot decide
            self._undecided, self.note = True, "float32: not yet compared with bfloat16"
            return
        exact, rounded = (rise(normalise_response(curve)) for curve in curves)
        if abs(exact - rounded) <= self.tolerance:
            self._reduced = reduced
        outcome = "bfloat16" if self._reduced is not None else "float32"
        self.note = f"{outcome}: bfloat16 changes RISE by {rounded - exact:+.4f} (limit {self.tolerance:.4f})"

    def _log_probs(self, model, sample: Sample, order: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """s_k for each of ``counts``, float64 [steps + 1]; equal contexts are scored once."""
        context = _context_key(sample)
        known = {n: self._ends.get((context, n, _dtype_name(model))) for n in (0, len(order))}
        known = {n: value for n, value in known.items() if value is not None}
        todo = [n for n in counts.unique().tolist() if n not in known]
        start, stop = sample.response
        rows = sample.input_ids[: stop - 1].cpu().repeat(len(todo), 1)  # [B, L]: the last token predicts nothing
        for row, n in zip(rows, todo, strict=True):
            row[sample.segments.prompt[0] + order[:n]] = sample.mask_token_id
        if todo:
            measure = log_prob_of(sample.input_ids[start:stop])
            picked = score_rows(model, rows, stop - start, measure, max_batch_bytes=self.max_batch_bytes)  # [B, R]
            known.update(zip(todo, picked.double().sum(1).tolist(), strict=True))
            self.n_contexts += len(rows)
        for n in (0, len(order)):
            self._ends[context, n, _dtype_name(model)] = known[n]
        return torch.tensor([known[n] for n in counts.tolist()], dtype=torch.float64)


def _bfloat16_copy(model: nn.Module) -> nn.Module:
    """Copy with bfloat16 parameters; buffers (rotary frequencies) stay as they are, as on a bfloat16 load."""
    # Seeding the memo with the cast parameters avoids a float32 copy on the way and keeps tied weights tied.
    memo = {id(p): nn.Parameter(p.detach().to(torch.bfloat16), requires_grad=False) for p in model.parameters()}
    return copy.deepcopy(model, memo)


def _no_choice(model: nn.Module) -> str:
    """Why bfloat16 is no option, empty where it is one."""
    if not _cpu_float32(model):
        return "the model's own dtype: not a float32 model on a CPU"
    return "" if _native_bfloat16() else "float32: this CPU has no bfloat16 arithmetic"


def _cpu_float32(model: nn.Module) -> bool:
    return all(p.device.type == "cpu" and p.dtype == torch.float32 for p in model.parameters())


def _native_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware (emulation is slower than float32)."""
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def _dtype_name(model: nn.Module) -> str:
    return str(next(model.parameters()).dtype).removeprefix("torch.")


def _context_key(sample: Sample) -> str:
    """What s_0 and s_K depend on, beside the model."""
    digest = hashlib.sha256(sample.input_ids.cpu().numpy().tobytes())
    digest.update(repr((sample.segments.prompt, sample.response, sample.mask_token_id)).encode())
    return digest.hexdigest()
