"""Recovery, RISE and MAS (paper, appendix F), AUROC and LDS, all on plain arrays.

Three definitions of the deletion metrics are in circulation; all are here under a name, on the same raw curve
s_k = log p(response | input with the top k of K groups masked):

``definition="log_probability"`` (default)
    r_k = (s_k - s_K) / (s_0 - s_K) with a running minimum, clipped to [0, 1]; RISE is the trapezoid area under
    r, MAS the area under minmax(clip(r + |r - d|, 0, 1)) with the falling density d_k = 1 - cumulative share.
    The numbers in the paper's tables are of this kind.
``definition="printed"``
    The formulas as appendix F.2 prints them: probabilities exp(s_k), which underflow for long responses, sums
    over k = 1..K, and |f - cumulative share| with a *rising* share, which charges a perfectly aligned line
    almost twice the score of the definition above.
``denominator="absolute"``
    |s_0 - s_K| under the default definition: where masking raises the likelihood it makes RISE 0, a perfect
    score. Kept to measure what that does; never the default.

Note that r + |r - d| = max(d, 2r - d), which is least, r itself, where the density falls as the response does. At an
unchanged ranking MAS therefore depends on how the scores are spread: sharpening them (d falls earlier) lowers MAS where
d lies above r, and raises it where d lies below r, since up to twice the response is charged there. `sharpen` is the
control for it, and RISE belongs beside every MAS.
"""

from ..model.ablations import Effects, draw_masks, sentence_effects
from .ablation import lds
from .curve import (
    DEFINITIONS,
    DENOMINATORS,
    cumulative,
    is_flagged,
    mas,
    masked_counts,
    normalise_response,
    ranking,
    ranks_nothing,
    rise,
    sharpen,
)  # fmt: skip
from .deletion import DeletionCurve, Scorer, deletion_curve
from .intervals import mean_interval
from .recovery import auroc, r_precision, recovery_cap, recovery_rate, top_count

# ``<name>_haystack`` is measured over the haystack alone, I without question and instructions.
HIGHER_IS_BETTER = {
    "recovery": True, "r_precision": True, "recovery_haystack": True, "r_precision_haystack": True,
    "auroc_haystack": True, "rank": False, "first": True, "lds": True, "rise": False, "mas": False,
}  # fmt: skip
SHARES = {name for name in HIGHER_IS_BETTER if name not in ("rank", "lds", "rise", "mas")}  # they lie in [0, 1]

__all__ = [
    "DEFINITIONS", "DENOMINATORS", "HIGHER_IS_BETTER", "SHARES", "DeletionCurve", "Effects", "Scorer", "auroc",
    "cumulative", "deletion_curve", "draw_masks", "is_flagged", "lds", "mas", "masked_counts", "mean_interval",
    "normalise_response", "r_precision", "ranking", "ranks_nothing", "recovery_cap", "recovery_rate", "rise",
    "sentence_effects", "sharpen", "top_count",
]  # fmt: skip
