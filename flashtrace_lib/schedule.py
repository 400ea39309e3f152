"""Which tokens the deletion curve masks at which step: plain maths on scores (appendix F.2)."""

from __future__ import annotations

import torch


def as_vector(values, name: str, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return ``values`` as a finite, non-empty 1-D tensor on the CPU; ValueError naming ``name`` otherwise."""
    vector = torch.as_tensor(values).detach().to("cpu", dtype)
    if vector.ndim != 1 or len(vector) == 0:
        raise ValueError(f"{name} must be a non-empty vector, got shape {tuple(vector.shape)}")
    if not torch.isfinite(vector).all():
        raise ValueError(f"{name} holds NaN or infinite values: find out where they come from before scoring them")
    return vector


def ranking(scores) -> torch.Tensor:
    """Positions of I from the most to the least important, pi of appendix F.2.

    Parameters
    ----------
    scores : array-like of float, shape [|I|]
        Importance, with its sign: a negative score ranks below zero.

    Returns
    -------
    torch.LongTensor, shape [|I|]
        Ties keep the order of the text: the earlier token comes first. Where `ranks_nothing` holds that order
        says nothing, and metrics take the random baseline's value.
    """
    return torch.argsort(as_vector(scores, "scores"), descending=True, stable=True)


def ranks_nothing(scores) -> bool:
    """Whether all scores are equal, as where nothing was attributed: any order would be made up."""
    scores = as_vector(scores, "scores")
    return bool(scores.min() == scores.max())


def masked_counts(n_tokens: int, steps: int = 20) -> torch.Tensor:
    """Number of masked tokens at each step: the fixed linear grid k |I| / steps.

    Appendix F.2 names the grid {0.05 |I|, 0.10 |I|, ..., |I|} and, beside it, "5 % of the remaining tokens",
    which contradicts it; the grid is what is used. Where |I| is no multiple of ``steps`` the groups differ by
    at most one token; where it is smaller, some groups are empty.

    Returns
    -------
    torch.LongTensor, shape [steps + 1]
        From 0 to ``n_tokens``.
    """
    if steps < 1 or n_tokens < 1:
        raise ValueError(f"need at least one step and one token, got steps={steps} and {n_tokens} tokens")
    return torch.arange(steps + 1) * n_tokens // steps


def cumulative(scores, steps: int = 20) -> torch.Tensor:
    """Share of the attribution mass that step k has masked: sum_{i<=k} |A_pi(i)| / sum_j |A_j| (appendix F.2).

    Returns
    -------
    torch.DoubleTensor, shape [steps + 1]
        Rises from 0 to 1. Scores that are all zero place no mass anywhere and count as uniform.
    """
    scores = as_vector(scores, "scores")
    mass = scores[ranking(scores)].abs()  # [|I|]
    if mass.sum() == 0:
        mass = torch.ones_like(mass)
    running = torch.cat([mass.new_zeros(1), mass.cumsum(0)])  # [|I| + 1]
    return running[masked_counts(len(scores), steps)] / running[-1]
