"""Agreement with swaps: by hand, by counting pairs, and what is undefined."""

import math
import random

import pandas as pd
import pytest
from scipy.stats import spearmanr

from flashtrace_lib.metrics import swap_agreement


def pairs_won(scores, positive):
    """Share of (positive, negative) pairs in which the positive has the higher score; ties count one half."""
    pairs = [(a, b) for a, p in zip(scores, positive, strict=True) if p
             for b, q in zip(scores, positive, strict=True) if not q]  # fmt: skip
    return sum((a > b) + 0.5 * (a == b) for a, b in pairs) / len(pairs)


@pytest.mark.parametrize("seed", range(20))
def test_agreement_is_spearman_and_the_share_of_pairs(seed):
    rng = random.Random(seed)
    scores = [rng.randrange(6) / 2 for _ in range(12)]  # with ties
    sentence = [rng.randrange(12) for _ in range(9)]
    drops = [float(rng.randrange(5)) for _ in range(9)]
    changes = [True, False, *(rng.random() < 0.5 for _ in range(7))]
    effects = pd.DataFrame({"sentence": sentence, "drop": drops, "changes_answer": changes})
    found = swap_agreement(scores, effects)
    of_swaps = [scores[i] for i in sentence]
    assert found["swap_spearman"] == pytest.approx(spearmanr(of_swaps, drops).statistic)
    assert found["swap_auroc"] == pytest.approx(pairs_won(of_swaps, changes)) and found["swaps"] == 9


def test_by_hand():
    effects = {"sentence": [0, 2, 3, -1], "drop": [9.0, 0.5, 0.1, 100.0], "changes_answer": [True, False, False, True]}
    assert swap_agreement([3, 0, 2, 1], effects) == {"swap_spearman": 1, "swap_auroc": 1, "swaps": 3}
    assert swap_agreement([0, 3, 1, 2], effects) == {"swap_spearman": -1, "swap_auroc": 0, "swaps": 3}
    flat = swap_agreement([1, 1, 1, 1], effects)
    assert math.isnan(flat["swap_spearman"]) and flat["swap_auroc"] == 0.5
    one_kind = {**effects, "changes_answer": [False] * 4}
    assert math.isnan(swap_agreement([3, 0, 2, 1], one_kind)["swap_auroc"])


def test_bad_input_is_named():
    effects = {"sentence": [0, 4], "drop": [1.0, 2.0], "changes_answer": [True, False]}
    with pytest.raises(ValueError, match="lies in sentence 4, but there are 3"):
        swap_agreement([1, 2, 3], effects)
    with pytest.raises(ValueError, match="NaN or infinite"):
        swap_agreement([1, 2, 3], {**effects, "sentence": [0, 1], "drop": [1.0, math.nan]})
