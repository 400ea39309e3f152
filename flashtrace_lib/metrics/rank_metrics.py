"""Ranking metrics without a cut: AUROC, average precision, pointing, and the rank of the first piece of evidence.

Units are tokens or sentences; each has a score and is gold or not. Every metric has one rule for ties: its expected
value when tied units are ordered at random. So scores that are all equal get what a random ranking gets on average,
and neither the order of the text nor that of the units helps anyone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from .curve import as_vector
from .recovery import scores_and_gold


class _Ties(NamedTuple):
    """Groups of units with one score, from the best to the worst; float64 [G] each."""

    size: torch.Tensor
    gold: torch.Tensor  # gold units in the group
    before: torch.Tensor  # units in better groups
    gold_before: torch.Tensor


def _ties(scores, gold) -> _Ties:
    """Group the units by score; ValueError for bad input."""
    scores, gold = scores_and_gold(scores, gold)
    values, group, size = scores.unique(return_inverse=True, return_counts=True)  # from the lowest score
    marked = torch.zeros(len(values), dtype=torch.float64).index_add(0, group, gold.double())  # [G]
    size, marked = size.double().flip(0), marked.flip(0)
    return _Ties(size, marked, size.cumsum(0) - size, marked.cumsum(0) - marked)


def auroc(scores, gold) -> float:
    """Share of pairs (gold unit, other unit) in which the gold one scores higher; a tie counts half.

    The area under the ROC curve, which is the Mann-Whitney U statistic over its largest value (Hanley & McNeil 1982).

    Parameters
    ----------
    scores : array-like of float, shape [n]
        Importance of the units.
    gold : array-like of bool, shape [n]
        True at the evidence.

    Returns
    -------
    float
        In [0, 1]; a random ranking has 1/2 on average.

    Raises
    ------
    ValueError
        If shapes differ, the scores are not finite, or no unit or every unit is gold.
    """
    ties = _ties(scores, gold)
    n, n_gold = ties.size.sum(), ties.gold.sum()
    if n == n_gold:
        raise ValueError("gold marks every unit: AUROC compares the evidence with what is none")
    others = ties.size - ties.gold  # [G]
    below = (n - n_gold) - others.cumsum(0)  # others in worse groups
    return ((ties.gold * (below + others / 2)).sum() / (n_gold * (n - n_gold))).item()


def average_precision(scores, gold) -> float:
    """Mean, over the gold units, of the precision among the units ranked down to each: ``ap`` in tables.

    The area under the precision-recall steps, without interpolation. In a group of n tied units of which g are gold,
    behind N units of which G are gold, the j-th of the group is gold with probability g/n, and then
    1 + G + (j - 1)(g - 1)/(n - 1) of the first N + j are gold on average (McSherry & Najork 2008).

    Parameters
    ----------
    scores, gold : array-like, shape [n]
        See `auroc`.

    Returns
    -------
    float
        In (0, 1]; 1 where all evidence ranks on top.

    Raises
    ------
    ValueError
        If shapes differ, the scores are not finite or no unit is gold.
    """
    ties = _ties(scores, gold)
    group = torch.from_numpy(np.repeat(np.arange(len(ties.size)), ties.size.long().numpy()))  # [n], of each rank
    size, marked, before, gold_before = (part[group] for part in ties)  # [n] each
    rank = torch.arange(1, len(group) + 1, dtype=torch.float64)
    in_group = (rank - 1 - before) * (marked - 1) / (size - 1).clamp_min(1)  # gold ones before it in its group
    precision = (1 + gold_before + in_group) / rank
    return ((marked / size * precision).sum() / ties.gold.sum()).item()


def pointing(scores, gold) -> float:
    """Whether the highest-scored unit is gold: 1 or 0, of several highest ones the share that is gold.

    The pointing game (Zhang et al. 2018) on units of text.

    Parameters
    ----------
    scores, gold : array-like, shape [n]
        See `auroc`.

    Raises
    ------
    ValueError
        If shapes differ, the scores are not finite or no unit is gold.
    """
    ties = _ties(scores, gold)
    return (ties.gold[0] / ties.size[0]).item()


def mrr(scores, gold) -> float:
    """One over the rank of the first gold unit: the reciprocal rank, whose mean over samples is the MRR.

    Parameters
    ----------
    scores, gold : array-like, shape [n]
        See `auroc`; in tables the units are sentences. Among n tied units of which g are gold, the first gold one is
        at place j with probability C(n - j, g - 1) / C(n, g).

    Returns
    -------
    float
        In (0, 1].

    Raises
    ------
    ValueError
        If shapes differ, the scores are not finite or no unit is gold.
    """
    ties = _ties(scores, gold)
    first = int(ties.gold.nonzero()[0])
    n, g, before = (int(part[first]) for part in (ties.size, ties.gold, ties.before))
    expected, none_yet = 0.0, 1.0  # none_yet: probability that no gold unit is among the first j - 1 of the group
    for j in range(1, n - g + 2):
        here = g / (n - j + 1)
        expected += none_yet * here / (before + j)
        none_yet *= 1 - here
    return expected


def sentence_hit(scores, gold) -> float:
    """Share of the gold units among as many top units as are gold: R-precision, in tables of sentences.

    Parameters
    ----------
    scores, gold : array-like, shape [n]
        See `auroc`.

    Returns
    -------
    float
        In [0, 1]; a random ranking has the share of gold units on average.

    Raises
    ------
    ValueError
        If shapes differ, the scores are not finite or no unit is gold.
    """
    ties = _ties(scores, gold)
    n_gold = ties.gold.sum()
    taken = (n_gold - ties.before).clamp_min(0).minimum(ties.size)  # units of each group among the top ones
    return ((ties.gold * taken / ties.size).sum() / n_gold).item()


def smooth(scores, width: int) -> torch.Tensor:
    """Mean of the scores over a window of ``width`` neighbouring tokens: the smoothed copy of a ranking.

    A control: block-shaped attributions can score better in a deletion metric while saying less (Song et al. 2023).
    The tokens themselves stay; at both ends of I the window is cut.

    Parameters
    ----------
    scores : array-like of float, shape [|I|]
        Importance, with its sign.
    width : int
        Tokens in a window, odd, so that it has a middle; 1 changes nothing.

    Returns
    -------
    torch.DoubleTensor, shape [|I|]
        Scores that are all equal stay so to the last bit.

    Raises
    ------
    ValueError
        If the scores are not finite or ``width`` is not a positive odd number.
    """
    if width < 1 or width % 2 == 0:
        raise ValueError(f"width must be an odd number of tokens, 1 or more, got {width}")
    scores = as_vector(scores, "scores")
    middle = width // 2
    padded = torch.nn.functional.pad(scores, (middle, middle))  # [|I| + width - 1]
    inside = torch.nn.functional.pad(torch.ones_like(scores), (middle, middle))
    mean = padded.unfold(0, width, 1).sum(-1) / inside.unfold(0, width, 1).sum(-1)  # [|I|]
    return scores if scores.min() == scores.max() else mean
