"""Agreement of an attribution with counterfactual swaps: do the sentences rank on top whose swap matters?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .curve import as_vector
from .intervals import rank_correlation
from .rank_metrics import auroc


def swap_agreement(sentence_scores, effects: Mapping[str, Sequence[Any]]) -> dict[str, float]:
    """Rank agreement of sentence scores with the effects of swapping those sentences.

    Parameters
    ----------
    sentence_scores : array-like of float, shape [U]
        Importance of every sentence of I (`Attribution.by_sentence`).
    effects : mapping or pandas.DataFrame
        From `tasks.swap_effects`, one entry a swap: ``sentence`` (index into the scores, -1 where the swap lies in none
        of them: left out), ``drop`` (nats) and ``changes_answer``.

    Returns
    -------
    dict
        ``swap_spearman``, Spearman's correlation of the swapped sentences' scores with the drops, in [-1, 1];
        ``swap_auroc``, the probability that a sentence whose swap changes the true answer has a higher score than one
        whose swap does not, ties counting one half, in [0, 1]; ``swaps``, how many were used. NaN where a side is
        constant or there are fewer than three swaps (Spearman), or all swaps are of one kind (AUROC).

    Raises
    ------
    ValueError
        If a sentence is out of range, or the scores or drops are not finite.
    """
    scores = as_vector(sentence_scores, "sentence_scores").numpy()  # [U]
    sentence = np.asarray(effects["sentence"], dtype=int)  # [swaps]
    if len(sentence) and sentence.max() >= len(scores):
        raise ValueError(
            f"a swap lies in sentence {sentence.max()}, but there are {len(scores)} sentence scores: give the scores "
            "of the sample that was swapped (Attribution.by_sentence)"
        )
    inside = sentence >= 0
    scores = scores[sentence[inside]]
    drops = np.asarray(effects["drop"], dtype=float)[inside]
    changes = np.asarray(effects["changes_answer"], dtype=bool)[inside]
    if not np.isfinite(drops).all():
        raise ValueError("a drop is NaN or infinite: the likelihood overflowed; score in float32 or bfloat16")
    both_kinds = changes.any() and not changes.all()
    return {
        "swap_spearman": rank_correlation(scores, drops) if len(scores) > 2 else math.nan,
        "swap_auroc": auroc(scores, changes) if both_kinds else math.nan,
        "swaps": float(len(scores)),
    }
