"""Lasso by coordinate descent, on standardised features."""

from __future__ import annotations

import numpy as np
import torch

_TOLERANCE = 1e-8  # of the largest change in a round, against the spread of the target
_MAX_ROUNDS = 100_000


def lasso(features: torch.Tensor, target: torch.Tensor, alpha: float) -> torch.Tensor:
    """Coefficients of a sparse linear fit with an intercept.

    With every feature x_u standardised (mean 0, variance 1) and the target centred, w minimises
    ‖y − X w‖² / (2 n) + α ‖w‖₁ (Tibshirani 1996), one coordinate after the other (Friedman et al. 2007); what is
    returned is w_u / σ_u, in the units of the feature.

    Parameters
    ----------
    features : torch.Tensor, shape [n, U]
        A constant feature gets the coefficient 0.
    target : torch.Tensor, shape [n]
    alpha : float
        At least 0; in the units of the target.

    Returns
    -------
    torch.DoubleTensor, shape [U]

    Raises
    ------
    ValueError
        If shapes differ, ``alpha`` is negative, the target is not finite or no solution is found.
    """
    x, y = features.double(), target.double()
    if x.ndim != 2 or y.shape != x.shape[:1] or alpha < 0 or not torch.isfinite(y).all():
        raise ValueError(
            f"need features [n, U], a finite target [n] and alpha >= 0, got {tuple(x.shape)}, {tuple(y.shape)}, {alpha}"
        )
    x, y = x - x.mean(0), y - y.mean()
    spread = x.square().mean(0).sqrt()  # [U]
    varies = spread > 0
    x = x[:, varies] / spread[varies]  # [n, V]
    # In numpy, which is faster on so few numbers. `rest` is the correlation of each feature with the residual.
    gram, rest = (x.T @ x / len(x)).numpy(), (x.T @ y / len(x)).numpy()  # [V, V], [V]
    w = np.zeros(len(rest))
    small = _TOLERANCE * max(float(y.square().mean().sqrt()), np.finfo(float).tiny)
    for _ in range(_MAX_ROUNDS):
        before = w.copy()
        for u, old in enumerate(before):
            fit = rest[u] + old  # a standardised feature has variance 1
            w[u] = np.sign(fit) * max(abs(fit) - alpha, 0.0)
            if w[u] != old:
                rest -= gram[u] * (w[u] - old)
        if np.abs(w - before).max(initial=0.0) <= small:
            break
    else:
        raise ValueError(f"the lasso did not converge in {_MAX_ROUNDS} rounds: raise alpha")
    coefficients = torch.zeros(len(spread), dtype=torch.float64)
    coefficients[varies] = torch.from_numpy(w) / spread[varies]
    return coefficients
