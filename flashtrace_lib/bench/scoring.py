"""Rate at which contexts are scored, against plain batched forward passes of the same tokens with the same logits."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from ..metrics.deletion import Scorer
from ..model.batched_forward import log_prob_of, score_rows
from ..model.state import evaluating
from ..sample import Sample
from .measure import alternate

AIM = 0.9  # of the plain rate: what gathering, log-softmax and copies may cost


def scoring_rate(
    model: torch.nn.Module, sample: Sample, steps: int = 20, runs: int = 3, max_batch_bytes: int | None = None
) -> dict[str, float]:
    """Contexts a second of a deletion curve and of `score_rows`, and of plain forwards of the same batches.

    The three run in turn, so that what slows the machine slows all of them. A plain forward keeps the logits of the
    positions that predict the response, as the scorer's does, and drops them.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    sample : Sample
        Its input tokens are masked in the order of the text.
    steps : int
        Groups of the deletion curve; ``steps + 1`` contexts are scored.
    runs : int
        Rounds; medians are given.
    max_batch_bytes : int, optional
        Memory budget of one batched forward, see `score_rows`.

    Returns
    -------
    dict
        ``contexts`` of one curve; ``plain, rows, curve`` in contexts a second; ``rows_ratio, curve_ratio``, the medians
        of the rounds' ratios to the plain rate; ``batches``, plain forwards a curve; ``n``, rounds.

    Raises
    ------
    ValueError
        If no round is asked for.
    """
    if runs < 1:
        raise ValueError(f"runs must be at least 1, got {runs}")
    scores = torch.arange(len(sample.prompt_ids), 0, -1.0)  # [|I|]
    start, stop = sample.response
    batches = recorded_batches(model, lambda: _curve(model, sample, scores, steps, max_batch_bytes))
    rows = torch.cat([ids for ids, _ in batches])  # [contexts, stop - 1]
    measure = log_prob_of(sample.input_ids[start:stop])

    def plain() -> None:
        with evaluating(model), torch.inference_mode():
            for ids, keep in batches:
                model(input_ids=ids, logits_to_keep=keep, use_cache=False)

    def by_rows() -> None:
        score_rows(model, rows.cpu(), stop - start, measure, max_batch_bytes=max_batch_bytes)

    def curve() -> None:
        _curve(model, sample, scores, steps, max_batch_bytes)

    times = alternate([plain, by_rows, curve], runs)  # [runs][3]
    rates = {
        name: len(rows) / statistics.median(t[i] for t in times) for i, name in enumerate(("plain", "rows", "curve"))
    }
    ratios = {f"{name}_ratio": statistics.median(t[0] / t[i] for t in times) for i, name in ((1, "rows"), (2, "curve"))}
    return {"contexts": len(rows), **rates, **ratios, "batches": len(batches), "n": runs}


def _curve(model: torch.nn.Module, sample: Sample, scores: torch.Tensor, steps: int, budget: int | None) -> None:
    """A deletion curve by a scorer of its own, which knows no end of it yet."""
    Scorer(model, max_batch_bytes=budget).curve(sample, scores, steps)


def recorded_batches(model: torch.nn.Module, work: Callable[[], object]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Ids [B, L] and positions whose logits were kept, of every forward pass that ``work()`` makes without a cache."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def note(module, args, kwargs) -> None:
        seen.append((kwargs["input_ids"], kwargs["logits_to_keep"]))

    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        work()
    finally:
        handle.remove()
    return seen
