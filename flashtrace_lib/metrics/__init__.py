"""Recovery rate, RISE and MAS (paper, appendix F) and what stands beside them, all on plain arrays.

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

Ranking metrics (`auroc`, `average_precision`, `pointing`, `mrr`, `sentence_hit`) have no cut at a tenth of the input,
and share one rule for ties: the expected value over random orders of the tied. `calibrated` puts RISE on a scale from
a random ranking, 0, to the best reachable one, 1.

Note that r + |r - d| = max(d, 2r - d), which is least, r itself, where the density falls as the response does. At an
unchanged ranking MAS therefore depends on how the scores are spread: sharpening them (d falls earlier) lowers MAS where
d lies above r, and raises it where d lies below r, since up to twice the response is charged there. `sharpen` is the
control for it, and RISE belongs beside every MAS.
"""

from ..model.ablations import Effects, draw_masks, sentence_effects
from .ablation import TOP_COUNTS, TopEffects, lds, top_effects
from .calibration import BestOrder, best_order, calibrated, rise_floor
from .curve import (
    DEFINITIONS,
    DENOMINATORS,
    cumulative,
    density,
    is_flagged,
    mas,
    masked_counts,
    normalise_response,
    ranking,
    ranks_nothing,
    rise,
    sharpen,
)
from .deletion import DeletionCurve, Scorer, choose_dtype, deletion_curve
from .intervals import mean_interval
from .rank_metrics import auroc, average_precision, mrr, pointing, sentence_hit, smooth
from .recovery import r_precision, recovery_cap, recovery_rate, top_count
from .swaps import swap_agreement

# Ranking metrics are also measured over the haystack alone, I without question and instructions: ``<name>_haystack``.
OVER_HAYSTACK = ("recovery", "r_precision", "auroc", "ap", "pointing", "mrr", "sentence_hit")
HIGHER_IS_BETTER = {
    **dict.fromkeys(("recovery_ceil", *OVER_HAYSTACK, *(f"{name}_haystack" for name in OVER_HAYSTACK)), True),
    "rise": False, "mas": False, "rise_calibrated": True,
    **dict.fromkeys(("lds", "lds_log_prob", "lds_output"), True),
    **{f"{side}{k}": True for side in ("drop", "keep") for k in TOP_COUNTS},
}  # fmt: skip

__all__ = [
    "DEFINITIONS",
    "DENOMINATORS",
    "HIGHER_IS_BETTER",
    "OVER_HAYSTACK",
    "TOP_COUNTS",
    "BestOrder",
    "DeletionCurve",
    "Effects",
    "Scorer",
    "TopEffects",
    "auroc",
    "average_precision",
    "best_order",
    "calibrated",
    "choose_dtype",
    "cumulative",
    "deletion_curve",
    "density",
    "draw_masks",
    "is_flagged",
    "lds",
    "mas",
    "masked_counts",
    "mean_interval",
    "mrr",
    "normalise_response",
    "pointing",
    "r_precision",
    "ranking",
    "ranks_nothing",
    "recovery_cap",
    "recovery_rate",
    "rise",
    "rise_floor",
    "sentence_effects",
    "sentence_hit",
    "sharpen",
    "smooth",
    "swap_agreement",
    "top_count",
    "top_effects",
]
