"""Metrics of sentence ablations: LDS, top-k drop and sufficiency.

Sources are the sentences of the haystack (``Sample.sources``): question and instructions are never masked. Let m be a
mask over them, f(m) the likelihood of the response when only the sources of m are kept, and τ the score of each source.

* LDS, the linear datamodeling score (Park et al. 2023; Cohen-Wang et al. 2024): Spearman's correlation of Σ_u τ_u m_u
  with f(m) over random masks. One set of masks serves all methods.
* Top-k drop: f(all kept) − f(the k highest-scored sources masked).
* Sufficiency: f(only the k highest-scored sources kept) − f(none kept).

f is a log-probability in nats, except in `lds` by the sum of the tokens' logits log p / (1 − p). The logit of the
*whole* response's probability, which Cohen-Wang et al. take, rises with its log-probability: the LDS of the two is one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..sample import Sample, seeded_generator
from .curve import as_vector, ranking, ranks_nothing
from .deletion import Scorer
from .intervals import rank_correlation

TOP_COUNTS = (1, 3, 5)  # k of top-k drop and sufficiency


class TopEffects(NamedTuple):
    """log p(T ∪ O), nats, without and with only the highest-scored sources.

    Parameters
    ----------
    drop : torch.DoubleTensor, shape [K + 1]
        With every source kept; then with the k highest-scored ones masked, for each of K numbers k.
    keep : torch.DoubleTensor, shape [K + 1]
        With none kept; then with only the k highest-scored ones kept.
    """

    drop: torch.Tensor
    keep: torch.Tensor


def lds(scores, masks, effects) -> float:
    """Linear datamodeling score: Spearman's correlation of Σ_u τ_u m_u with f(m) over masks m.

    Parameters
    ----------
    scores : array-like of float, shape [U]
        τ, the score of each source.
    masks : array-like of bool, shape [n, U]
        True where a source is kept.
    effects : array-like of float, shape [n]
        f(m), in any unit: only its order counts.

    Returns
    -------
    float
        In [-1, 1]; equal values share their mean rank, sums being compared to a millionth of the largest. 0, the
        expected value of random scores, where all sums or all effects are equal.

    Raises
    ------
    ValueError
        If shapes differ or a value is not finite.
    """
    scores, effects = as_vector(scores, "scores"), as_vector(effects, "effects")
    masks = torch.as_tensor(masks, dtype=torch.float64)
    if masks.shape != (len(effects), len(scores)):
        raise ValueError(
            f"{tuple(masks.shape)} masks for {len(effects)} effects and {len(scores)} scores: need one row for each "
            "effect, one column for each source"
        )
    sums = masks @ scores  # [n]
    # Scores are float32: equal sums of other terms differ by their rounding, and are ties all the same.
    sums = (sums / sums.abs().max().clamp_min(torch.finfo(torch.float64).tiny)).round(decimals=6)
    if ranks_nothing(sums) or ranks_nothing(effects):
        return 0.0
    return rank_correlation(sums, effects)


def top_effects(scorer: Scorer, sample: Sample, scores, counts: tuple[int, ...] = TOP_COUNTS) -> TopEffects:
    """What the response's likelihood is without, and with only, the highest-scored sources.

    Parameters
    ----------
    scorer : Scorer
        Of the model, in the arithmetic that is to be used.
    sample : Sample
        Must have a ``mask_token_id`` and sentences.
    scores : array-like of float, shape [U]
        Score of each of ``sample.sources``. Of equal ones the earlier ranks first; where all are equal, the order is a
        random one that the sample fixes.
    counts : tuple of int
        k; where there are fewer sources, all of them.

    Returns
    -------
    TopEffects
        At most 2 K + 2 forward passes, fewer for masks that the scorer has met on this sample.

    Raises
    ------
    ValueError
        If the scores do not fit the sources or are not finite, or the sample has no sentences or no mask token.
    """
    order, n_sources = ranking(scores), len(sample.sources)
    if len(order) != n_sources:
        raise ValueError(
            f"sample {sample.id} has {n_sources} sentences in its haystack but {len(order)} scores: pass one for each "
            "of sample.sources"
        )
    if ranks_nothing(scores):
        order = torch.randperm(n_sources, generator=seeded_generator("no ranking of sources", sample))
    top = torch.zeros(len(counts) + 1, n_sources, dtype=torch.bool)  # row 0: none
    for row, k in zip(top[1:], counts, strict=True):
        row[order[:k]] = True
    total = scorer.effects(sample, torch.cat([~top, top])).log_prob[:, :2].sum(1)  # of T and of O
    return TopEffects(*total.chunk(2))
