"""Deletion metrics on a raw curve: its schedule, the normalised response, RISE and MAS (paper, appendix F.2).

The definitions in circulation are compared in `flashtrace_lib.metrics`.
"""

from collections.abc import Callable

import numpy as np
import torch

DEFINITIONS, DENOMINATORS = ("log_probability", "printed"), ("signed", "absolute")


def as_vector(values, name: str, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return ``values`` as a finite, non-empty 1-D tensor on the CPU; ValueError naming ``name`` otherwise."""
    if isinstance(values, np.ndarray) and not values.flags.writeable:  # as parquet gives them; torch would warn
        values = values.copy()
    vector = torch.as_tensor(values).detach().to("cpu", dtype)
    if vector.ndim != 1 or len(vector) == 0:
        raise ValueError(f"{name} must be a non-empty vector, got shape {tuple(vector.shape)}")
    if not torch.isfinite(vector).all():
        raise ValueError(f"{name} holds NaN or infinite values: find out where they come from before scoring them")
    return vector


def ranking(scores, generator: torch.Generator | None = None) -> torch.Tensor:
    """Positions of I from the most to the least important, pi of appendix F.2.

    Parameters
    ----------
    scores : array-like of float, shape [|I|]
        Importance, with its sign: a negative score ranks below zero.

    Returns
    -------
    torch.LongTensor, shape [|I|]
        Tied tokens stand in a random order, by default the same for every ranking of so many tokens: the order of the
        text would favour methods with few distinct scores, or harm them.
    """
    scores = as_vector(scores, "scores")
    shuffled = torch.randperm(len(scores), generator=generator or torch.Generator().manual_seed(0))
    return shuffled[torch.argsort(scores[shuffled], descending=True, stable=True)]


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
        return ((curve - curve[-1]) / drop.abs() if drop != 0 else torch.zeros_like(curve)).clamp(0, 1).cummin(0).values
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
    response, share = _as_response(response), as_vector(scores_cumulative, "scores_cumulative")
    if len(share) != len(response):
        raise ValueError(f"response has {len(response)} points and scores_cumulative {len(share)}: use the same steps")
    if abs(share[0]) > 1e-6 or abs(share[-1] - 1) > 1e-6 or (share.diff() < -1e-6).any():
        raise ValueError("scores_cumulative must rise from 0 to 1; for a falling density d pass 1 - d")
    if definition == "printed":
        return rise(response, definition) + (response - share)[1:].abs().mean().item()
    return _area(_minmax((response + (response - (1 - share)).abs()).clamp(0, 1)))


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


def bisected(
    measure: Callable[[list[int]], torch.Tensor], steps: int, tolerance: float
) -> tuple[torch.Tensor, list[int]]:
    """A deletion curve from as few of its steps as an error of RISE below ``tolerance`` allows.

    Both ends are evaluated, then again and again the middle of the interval on which RISE is least certain, until the
    bounds of all intervals add up to ``tolerance``: where r falls by h over L steps, a straight line is off by at most
    h (L - 1) / (2 steps). A likelihood that dips between two evaluated steps escapes the bound; RISE
    then comes out too high. MAS, twice as steep in r where its density lies below, may be off by twice as much.

    Parameters
    ----------
    measure : callable
        s_k, nats, at a list of steps.
    tolerance : float
        0 evaluates every step.

    Returns
    -------
    (torch.DoubleTensor, shape [steps + 1], list of int)
        s_k, straight lines between the least so far of those that were evaluated; and which those are.
    """
    if tolerance < 0:
        raise ValueError(f"tolerance is an error of RISE, at least 0, got {tolerance}")
    at = [0, steps] if tolerance else list(range(steps + 1))
    known = dict(zip(at, measure(at).tolist(), strict=True))
    while True:
        at = sorted(known)
        bounds = -normalise_response([known[k] for k in at]).diff() * (torch.tensor(at).diff() - 1) / (2 * steps)
        if bounds.sum() <= tolerance:
            line = np.interp(range(steps + 1), at, np.minimum.accumulate([known[k] for k in at]))  # r never rises
            line[at] = [known[k] for k in at]
            return torch.from_numpy(line), at
        widest = int(bounds.argmax())
        middle = (at[widest] + at[widest + 1]) // 2
        known[middle] = measure([middle]).item()


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
