"""How high the evidence ranks: recovery rate and R-precision (paper, appendix F.1), and the area under the ROC curve.

All have one rule for ties: the expected value over random orders of the tied tokens. So scores that are all equal get
what a random ranking gets on average, and the order of the text helps nobody.
"""

from fractions import Fraction
from math import floor

import torch
from scipy.stats import rankdata

from .curve import as_vector


def top_count(n_tokens: int, top: float = 0.1) -> int:
    """K, the number of tokens in the top share, rounded down (appendix F.1; the authors' code rounds up).

    At least 1, so that an input of fewer than 1 / top tokens has a top at all.

    Raises
    ------
    ValueError
        If ``top`` is not in (0, 1] or there is no token.
    """
    if not 0 < top <= 1:
        raise ValueError(f"top is a share of the input in (0, 1], got {top}")
    if n_tokens < 1:
        raise ValueError(f"the input has {n_tokens} tokens: there is nothing to rank")
    exact = Fraction(str(top)) * n_tokens  # in binary floats 0.29 * 100 is 28.999...
    return max(1, floor(exact))


def recovery_rate(scores, gold, top: float = 0.1) -> float:
    """Recall of the evidence among the top tokens: |S_top ∩ S_gt| / |S_gt| (appendix F.1).

    Parameters
    ----------
    scores : array-like of float, shape [|I|]
        Importance of the tokens of I.
    gold : array-like of bool, shape [|I|]
        True at the evidence.
    top : float
        Share of I that counts as found.

    Returns
    -------
    float
        In [0, `recovery_cap`]. Tied tokens count by expectation over their orders; scores that are all equal get what
        a random ranking does on average, K / |I|.

    Raises
    ------
    ValueError
        If shapes differ, no token is gold or the scores are not finite.
    """
    scores, gold = scores_and_gold(scores, gold)
    return _recall(scores, gold, top_count(len(scores), top))


def recovery_cap(gold, top: float = 0.1) -> float:
    """Highest recovery rate any method can reach: min(1, K / |S_gt|)."""
    gold = _as_gold(gold)
    return min(1.0, top_count(len(gold), top) / int(gold.sum()))


def r_precision(scores, gold) -> float:
    """Recall among the top |S_gt| tokens: like recovery, without a cap when evidence exceeds a tenth of I.

    Tied tokens count by expectation over their orders.
    """
    scores, gold = scores_and_gold(scores, gold)
    return _recall(scores, gold, int(gold.sum()))


def auroc(scores, gold) -> float:
    """Share of pairs (gold token, other token) in which the gold one scores higher; a tie counts half.

    The area under the ROC curve: the Mann-Whitney U statistic over its largest value (Hanley & McNeil 1982).

    Parameters
    ----------
    scores, gold : array-like, shape [n]
        See `recovery_rate`.

    Returns
    -------
    float
        In [0, 1]; a random ranking has 1/2 on average.

    Raises
    ------
    ValueError
        If shapes differ, the scores are not finite, or no token or every token is gold.
    """
    scores, gold = scores_and_gold(scores, gold)
    n_gold = int(gold.sum())
    if n_gold == len(gold):
        raise ValueError("gold marks every token: AUROC compares the evidence with what is none")
    ranks = rankdata(scores.numpy())[gold.numpy()]  # of the gold tokens, 1 the lowest; tied ones share their mean
    return float((ranks.sum() - n_gold * (n_gold + 1) / 2) / (n_gold * (len(gold) - n_gold)))


def _recall(scores: torch.Tensor, gold: torch.Tensor, count: int) -> float:
    """Expected share of the gold tokens among the ``count`` highest, tied ones in random order."""
    lowest = scores.sort(descending=True).values[count - 1]  # the score at the cut: those above it are all in
    above, tied = scores > lowest, scores == lowest
    places = (count - int(above.sum())) / int(tied.sum())  # share of the tied tokens that is still in
    return (int((gold & above).sum()) + places * int((gold & tied).sum())) / int(gold.sum())


def scores_and_gold(scores, gold) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores, float64, and gold marks, bool, of the same units, [n] each; ValueError naming what is wrong."""
    scores, gold = as_vector(scores, "scores"), _as_gold(gold)
    if len(scores) != len(gold):
        raise ValueError(
            f"{len(scores)} scores but {len(gold)} gold marks: both must cover exactly the input I "
            "(sample.gold_in_prompt)"
        )
    return scores, gold


def _as_gold(gold) -> torch.Tensor:
    marks = as_vector(gold, "gold")
    if not ((marks == 0) | (marks == 1)).all():
        raise ValueError("gold must be a boolean mask over I, not a list of positions")
    if not marks.any():
        raise ValueError("gold marks no token: recovery needs at least one token of evidence")
    return marks.bool()
