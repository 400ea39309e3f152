"""Recovery rate, RISE and MAS, all on plain arrays (paper, appendix F).

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

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import torch

from .deletion import deletion_curve
from .intervals import mean_interval
from .schedule import as_vector, cumulative, masked_counts, ranking, ranks_nothing

__all__ = [
    "cumulative", "deletion_curve", "density", "is_flagged", "mas", "masked_counts", "mean_interval",
    "normalise_response", "r_precision", "ranking", "ranks_nothing", "recovery_cap", "recovery_rate", "rise", "sharpen",
    "top_count",
]  # fmt: skip

DEFINITIONS = ("log_probability", "printed")
DENOMINATORS = ("signed", "absolute")


# --- recovery -------------------------------------------------------------------------------------------------


def top_count(n_tokens: int, top: float = 0.1, rounding: str = "floor") -> int:
    """K, the number of tokens in the top share (appendix F.1: floor; the authors' code: ceil).

    At least 1, so that an input of fewer than 1 / top tokens has a top at all.

    Raises
    ------
    ValueError
        If ``top`` is not in (0, 1], ``rounding`` is unknown or there is no token.
    """
    if not 0 < top <= 1:
        raise ValueError(f"top is a share of the input in (0, 1], got {top}")
    if rounding not in ("floor", "ceil"):
        raise ValueError(f'rounding is "floor" (the paper) or "ceil" (the authors\' code), got {rounding!r}')
    if n_tokens < 1:
        raise ValueError(f"the input has {n_tokens} tokens: there is nothing to rank")
    exact = Fraction(str(top)) * n_tokens  # in binary floats 0.29 * 100 is 28.999...
    return max(1, floor(exact) if rounding == "floor" else ceil(exact))


def recovery_rate(scores, gold, top: float = 0.1, rounding: str = "floor") -> float:
    """Recall of the evidence among the top tokens: |S_top ∩ S_gt| / |S_gt| (appendix F.1).

    Parameters
    ----------
    scores : array-like of float, shape [|I|]
        Importance of the tokens of I.
    gold : array-like of bool, shape [|I|]
        True at the evidence.
    top : float
        Share of I that counts as found.
    rounding : {"floor", "ceil"}
        How ``top * |I|`` becomes a number of tokens.

    Returns
    -------
    float
        In [0, `recovery_cap`]. Scores that are all equal rank nothing and get the expected value of a random ranking,
        K / |I|.

    Raises
    ------
    ValueError
        If shapes differ, no token is gold or the scores are not finite.
    """
    scores, gold = _scores_and_gold(scores, gold)
    return _recall(scores, gold, top_count(len(scores), top, rounding))


def recovery_cap(gold, top: float = 0.1, rounding: str = "floor") -> float:
    """Highest recovery rate any method can reach: min(1, K / |S_gt|)."""
    gold = _as_gold(gold)
    return min(1.0, top_count(len(gold), top, rounding) / int(gold.sum()))


def r_precision(scores, gold) -> float:
    """Recall among the top |S_gt| tokens: like recovery, without a cap when evidence exceeds a tenth of I.

    Scores that are all equal get the expected value of a random ranking, |S_gt| / |I|.
    """
    scores, gold = _scores_and_gold(scores, gold)
    return _recall(scores, gold, int(gold.sum()))


def _recall(scores: torch.Tensor, gold: torch.Tensor, count: int) -> float:
    if ranks_nothing(scores):
        return count / len(scores)  # the expected share of the evidence among tokens drawn at random
    return int(gold[ranking(scores)[:count]].sum()) / int(gold.sum())


def _scores_and_gold(scores, gold) -> tuple[torch.Tensor, torch.Tensor]:
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


# --- deletion metrics -----------------------------------------------------------------------------------------


def density(scores, steps: int = 20) -> torch.Tensor:
    """Share of the attribution mass not yet masked, d_k = 1 - cumulative share; float64 [steps + 1], 1 to 0."""
    return 1 - cumulative(scores, steps)


def is_flagged(log_probs) -> bool:
    """Whether masking everything does not lower the likelihood, s_0 <= s_K: no drop that a method could explain.

    The same for every method, since neither end of the curve depends on the scores.
    """
    curve = _as_curve(log_probs, "log_probs")
    return bool(curve[0] <= curve[-1])


def normalise_response(log_probs, definition: str = "log_probability", denominator: str = "signed") -> torch.Tensor:
    """Normalised response r of a raw deletion curve.

    The running minimum is taken on s itself ("how low has the likelihood been"), before the division. With a
    positive denominator that equals a running minimum of r. With a negative one (a flagged sample, s_0 < s_K)
    it gives r = 1 throughout: nothing has been explained, RISE and MAS are 1, their worst; taken after the
    division it would reward a fast *rise* of the likelihood with a near-perfect score. s_0 = s_K gives the same.

    Parameters
    ----------
    log_probs : array-like of float, shape [K + 1]
        s_k, nats.
    definition, denominator : str
        See the module's text. ``denominator`` has no effect under ``"printed"``.

    Returns
    -------
    torch.DoubleTensor, shape [K + 1]
        r in [0, 1]; under ``"printed"`` the probability exp(s_k).
    """
    _check_definition(definition)
    if denominator not in DENOMINATORS:
        raise ValueError(f"denominator is one of {DENOMINATORS}, got {denominator!r}")
    curve = _as_curve(log_probs, "log_probs")
    if definition == "printed":
        return curve.exp().clamp(max=1)
    drop = curve[0] - curve[-1]
    if denominator == "absolute":
        shares = (curve - curve[-1]) / drop.abs() if drop != 0 else torch.zeros_like(curve)
        return shares.clamp(0, 1).cummin(0).values
    if drop == 0:
        return torch.ones_like(curve)
    return ((curve.cummin(0).values - curve[-1]) / drop).clamp(0, 1)


def rise(response, definition: str = "log_probability") -> float:
    """Area under the normalised response; lower is better.

    Parameters
    ----------
    response : array-like of float, shape [K + 1]
        From `normalise_response`, of the same ``definition``.
    definition : str
        ``"log_probability"``: trapezoid on the grid k / K, whose lowest value is 1 / (2 K) (0.025 at K = 20).
        ``"printed"``: (1 / K) sum_{k=1..K} f_k.
    """
    _check_definition(definition)
    response = _as_response(response)
    return response[1:].mean().item() if definition == "printed" else _area(response)


def mas(response, scores_cumulative, definition: str = "log_probability") -> float:
    """Magnitude aligned score: the response plus its distance from the attribution's own mass; lower is better.

    Parameters
    ----------
    response : array-like of float, shape [K + 1]
        From `normalise_response`, of the same ``definition``.
    scores_cumulative : array-like of float, shape [K + 1]
        Share of the mass masked at step k, *rising* from 0 to 1 (`cumulative`).
    definition : str
        ``"log_probability"``: area under minmax(clip(r + |r - d|, 0, 1)), d = 1 - cumulative.
        ``"printed"``: RISE + (1 / K) sum_{k=1..K} |f_k - cumulative_k|.

    Raises
    ------
    ValueError
        If the two have different lengths, or the cumulative share does not rise from 0 to 1.
    """
    _check_definition(definition)
    response = _as_response(response)
    share = as_vector(scores_cumulative, "scores_cumulative")
    if len(share) != len(response):
        raise ValueError(f"response has {len(response)} points and scores_cumulative {len(share)}: use the same steps")
    if abs(share[0]) > 1e-6 or abs(share[-1] - 1) > 1e-6 or (share.diff() < -1e-6).any():
        raise ValueError("scores_cumulative must rise from 0 to 1; for a falling density d pass 1 - d")
    if definition == "printed":
        return rise(response, definition) + (response - share)[1:].abs().mean().item()
    remaining = 1 - share
    return _area(_minmax((response + (response - remaining).abs()).clamp(0, 1)))


def sharpen(scores, temperature: float) -> torch.Tensor:
    """Same ranking, other magnitudes: sign(A) |A|^(1 / temperature), scaled to a mass of 1.

    The control for MAS: a temperature below 1 concentrates the mass, one above 1 flattens it, and MAS changes, up or
    down, without anything being ranked better or worse; RISE and recovery stay the same.

    Returns
    -------
    torch.DoubleTensor, shape [|I|]
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    scores = as_vector(scores, "scores")
    largest = scores.abs().max()
    if largest == 0:
        return scores
    powered = scores.sign() * (scores.abs() / largest) ** (1 / temperature)
    return powered / powered.abs().sum()


def _area(curve: torch.Tensor) -> float:
    """Trapezoid area over k / K."""
    return torch.trapezoid(curve).item() / (len(curve) - 1)


def _minmax(curve: torch.Tensor) -> torch.Tensor:
    """Scale to [0, 1]; a constant curve has no scale and stays, so that a constant 1 is not turned into 0."""
    low, high = curve.min(), curve.max()
    return (curve - low) / (high - low) if high > low else curve


def _as_curve(values, name: str) -> torch.Tensor:
    curve = as_vector(values, name)
    if len(curve) < 2:
        raise ValueError(f"{name} has one point: a deletion curve has its start and at least one step")
    return curve


def _as_response(values) -> torch.Tensor:
    response = _as_curve(values, "response")
    if response.min() < 0 or response.max() > 1:
        raise ValueError("response leaves [0, 1]: pass what normalise_response returns, not log-probabilities")
    return response


def _check_definition(definition: str) -> None:
    if definition not in DEFINITIONS:
        raise ValueError(f"definition is one of {DEFINITIONS}, got {definition!r}")
