"""LDS, the linear datamodeling score of a ranking of sentences (Park et al. 2023; Cohen-Wang et al. 2024).

Sources are the sentences of the haystack (``Sample.sources``): question and instructions are never masked. With m a
mask over them, f(m) the likelihood of the response when only the sources of m are kept, and τ the score of each source,
LDS is Spearman's correlation of Σ_u τ_u m_u with f(m) over random masks. One set of masks serves all methods.

f is the sum over the response's tokens of their logits, log p / (1 − p). The logit of the *whole* response's
probability, which Cohen-Wang et al. take, rises with its log-probability: the LDS of the two is one.
"""

import torch

from .curve import as_vector, ranks_nothing
from .intervals import rank_correlation


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
    return 0.0 if ranks_nothing(sums) or ranks_nothing(effects) else rank_correlation(sums, effects)
