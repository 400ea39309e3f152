"""The deletion curve: the response's likelihood as the most important input tokens are masked (appendix F.2).

`curve` says which tokens are masked at step k; `batched_forward` runs the forward passes.
"""

import copy
import hashlib
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from ..model.ablations import Effects, sentence_effects
from ..model.batched_forward import log_prob_of, score_rows
from ..model.context import mask_token
from ..model.wrapped import unwrap
from ..sample import Sample, seeded_generator
from .curve import as_vector, bisected, cumulative, is_flagged, masked_counts, normalise_response, ranking, rise


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
    dtype, note : str
        Arithmetic of the forward passes, and why it was used.
    evaluated : list of int
        The steps whose s_k was computed; all others are interpolated.
    """

    log_probs: torch.Tensor
    cumulative: torch.Tensor
    n_masked: torch.Tensor
    mask_token_id: int
    dtype: str
    note: str = ""
    evaluated: list[int] = field(default_factory=list)


def deletion_curve(model, sample: Sample, scores, steps: int = 20, tolerance: float = 0.0) -> DeletionCurve:
    """Mask the tokens of I group by group, most important first, and score the response each time.

    s_k = sum over the response of log p(token | context with the top k of ``steps`` groups masked). Tokens of
    the context (template, special tokens) and of the response itself are never masked, nor is the template between the
    messages of a conversation.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        The causal language model, in its own dtype.
    sample : Sample
        Must have a ``mask_token_id``.
    scores : array-like of float, shape [|I|]
        Importance of the tokens of I. Tied tokens, all of them where all are equal, are masked in a random order that
        the sample fixes.
    steps : int
        Number of groups.
    tolerance : float
        Of RISE; above 0 only some steps are evaluated, see `curve.bisected`.

    Raises
    ------
    ValueError
        If the sample has no mask token, or the scores do not fit I or are not finite.
    """
    return Scorer(model).curve(sample, scores, steps, tolerance)


@dataclass(eq=False)
class Scorer:
    """Computes deletion curves with one model in one arithmetic; methods that share a sample share its s_0 and s_K.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Must not change while the scorer is in use.
    precision : {"model", "auto"}
        The model's own dtype; or, on a CPU that multiplies bfloat16 in hardware, bfloat16 where the first curve has
        the same RISE in it up to ``tolerance``, else float32 (`settle`).
    tolerance : float
    dtype : str, optional
        Arithmetic of the curves: the dtype of the model, or ``"bfloat16"``, for which the model is copied. Default:
        what ``precision`` says.
    note : str
        Why the curves are computed in this arithmetic; stored with each of them.

    Attributes
    ----------
    n_contexts : int
        Contexts scored so far.

    Raises
    ------
    ValueError
        If ``precision`` or ``dtype`` is none of these.
    """

    model: nn.Module = field(repr=False)
    precision: str = "model"
    tolerance: float = 0.01
    dtype: str | None = None
    note: str = "the model's own dtype"
    n_contexts: int = field(default=0, init=False)

    def __post_init__(self):
        if self.precision not in ("model", "auto"):
            raise ValueError(f'precision is "model" or "auto", got {self.precision!r}')
        self.model = unwrap(self.model)
        own = dtype_name(self.model)
        if self.dtype not in (None, own, "bfloat16"):
            raise ValueError(f'dtype is "bfloat16" or that of the model, {own!r}, got {self.dtype!r}')
        self._known: dict[str, dict[int, float]] = {}  # context -> tokens masked -> log-probability, of both ends
        self._network = self.model
        if self.dtype is not None:
            self.use(self.dtype, self.note)
        elif self.is_open and not _float32_on_cpu(self.model):
            self.use(own, "the model's own dtype: not a float32 model on a CPU")
        elif self.is_open and not _native_bfloat16():
            self.use(own, "float32: this CPU has no bfloat16 arithmetic")

    @property
    def is_open(self) -> bool:
        """Whether the arithmetic is still to be chosen."""
        return self.precision == "auto" and self.dtype is None

    @property
    def arithmetic(self) -> str:
        """Name of the dtype in which contexts are scored."""
        return dtype_name(self._network)

    def use(self, dtype: str, note: str) -> None:
        """Score in this arithmetic from now on."""
        self._network = bfloat16_copy(self.model) if dtype == "bfloat16" != dtype_name(self.model) else self.model
        self.dtype, self.note, self._known = dtype, note, {}

    def settle(self, sample: Sample, scores=None, steps: int = 20) -> torch.Tensor | None:
        """Choose the arithmetic by this curve, where it is open: bfloat16 where | RISE - RISE in float32 | is small.

        A sample whose likelihood masking does not lower has RISE 1 in any arithmetic and decides nothing.

        Parameters
        ----------
        sample, steps
            See `curve`.
        scores : array-like of float, shape [|I|], optional
            Default: tokens are masked in the order of the text.

        Returns
        -------
        torch.DoubleTensor, shape [steps + 1], or None
            Log-probabilities of this curve in the arithmetic that was chosen; None where there was no choice.
        """
        if not self.is_open:
            return None
        scores = -torch.arange(float(len(sample.prompt_ids))) if scores is None else scores
        trials = [replace(self, dtype=dtype) for dtype in ("float32", "bfloat16")]
        curves = [trial.curve(sample, scores, steps).log_probs for trial in trials]
        if is_flagged(curves[0]):
            self.note = "float32: not yet compared with bfloat16"
            return curves[0]
        exact, rounded = (rise(normalise_response(curve)) for curve in curves)
        agree = abs(rounded - exact) <= self.tolerance
        self._network, self._known, self.dtype = trials[agree]._network, trials[agree]._known, trials[agree].dtype
        self.note = f"{self.dtype}: bfloat16 changes RISE by {rounded - exact:+.4f} (limit {self.tolerance:.4f})"
        return curves[agree]

    def curve(self, sample: Sample, scores, steps: int = 20, tolerance: float = 0.0) -> DeletionCurve:
        """Deletion curve of ``scores`` on ``sample``; see `deletion_curve`."""
        mask = mask_token(sample)
        scores, (first, stop) = as_vector(scores, "scores"), sample.segments.prompt
        if len(scores) != stop - first:
            raise ValueError(
                f"sample {sample.id} has {stop - first} input tokens but {len(scores)} scores: "
                "pass one score for each token of the prompt span"
            )
        words = torch.cat([torch.arange(a - first, b - first) for a, b in sample.words((first, stop))])  # [M]
        order = words[ranking(scores[words], seeded_generator("no ranking", sample))]
        counts = masked_counts(len(order), steps)  # [steps + 1]
        log_probs, evaluated = self.settle(sample, scores, steps), list(range(steps + 1))
        if log_probs is None:
            log_probs, evaluated = bisected(lambda at: self._log_probs(sample, order, counts[at]), steps, tolerance)
        share = cumulative(scores[words], steps)
        return DeletionCurve(log_probs, share, counts, mask, self.arithmetic, self.note, evaluated)

    def effects(self, sample: Sample, masks: torch.Tensor, progress: str | None = None) -> Effects:
        """Likelihood of T, O and the response under masks [n, U] over the sample's sources, see `sentence_effects`."""
        self.settle(sample)
        self.n_contexts += len(masks)
        return sentence_effects(self._network, sample, masks, progress=progress)

    def log_probs(self, sample: Sample, masks: torch.Tensor) -> torch.Tensor:
        """Log-probability of the response with some tokens of I masked, nats.

        Parameters
        ----------
        sample : Sample
            Must have a ``mask_token_id``.
        masks : torch.BoolTensor, shape [B, |I|]
            True at the tokens that each context masks.

        Returns
        -------
        torch.DoubleTensor, shape [B]
        """
        (first, last), (start, stop) = sample.segments.prompt, sample.response
        rows = sample.input_ids[: stop - 1].cpu().repeat(len(masks), 1)  # [B, L]: the last token predicts nothing
        rows[:, first:last][masks.cpu()] = mask_token(sample)
        picked = score_rows(self._network, rows, stop - start, log_prob_of(sample.input_ids[start:stop]))  # [B, R]
        self.n_contexts += len(rows)
        return picked.double().sum(1)

    def _log_probs(self, sample: Sample, order: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """s_k for each of ``counts``, float64 [steps + 1]; equal contexts are scored once."""
        digest = hashlib.sha256(sample.input_ids.cpu().numpy().tobytes())
        at_most = sorted(order.tolist())  # what is masked at the end: not what a template wrote between messages
        digest.update(repr((sample.segments.prompt, sample.response, sample.mask_token_id, at_most)).encode())
        known = self._known.setdefault(digest.hexdigest(), {})
        todo, found = [n for n in counts.unique().tolist() if n not in known], dict(known)
        if todo:
            masks = torch.zeros(len(todo), len(sample.prompt_ids), dtype=torch.bool)  # [B, |I|]
            for mask, n in zip(masks, todo, strict=True):
                mask[order[:n]] = True
            found.update(zip(todo, self.log_probs(sample, masks).tolist(), strict=True))
        known.update({n: found[n] for n in (0, len(order)) if n in found})
        return torch.tensor([found[n] for n in counts.tolist()], dtype=torch.float64)


def bfloat16_copy(model: nn.Module) -> nn.Module:
    """A copy with bfloat16 parameters; buffers (rotary frequencies) stay as they are, as on a bfloat16 load."""
    # Seeding the memo with the cast parameters avoids a float32 copy on the way and keeps tied weights tied.
    memo = {id(p): nn.Parameter(p.detach().to(torch.bfloat16), requires_grad=False) for p in model.parameters()}
    return copy.deepcopy(model, memo)


def dtype_name(model: nn.Module) -> str:
    """Name of the dtype of a model's parameters, such as ``"float32"``."""
    return str(next(model.parameters()).dtype).removeprefix("torch.")


def _float32_on_cpu(model: nn.Module) -> bool:
    return all(p.device.type == "cpu" and p.dtype == torch.float32 for p in model.parameters())


def _native_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware (emulation is slower than float32)."""
    return any(torch.cpu.get_capabilities().get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
