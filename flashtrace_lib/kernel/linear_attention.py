"""Layers whose state is linear in their values: gated delta rule, state space (Mamba-2), short convolution.

With everything that depends on a position itself frozen (keys k, queries q, decay γ, strength β, the gain σ of the
activation, and the gate and norm g behind the sum, as softmax attention has its weights frozen), one head computes

    v_t = σ_t ⊙ (Σ_s c_s ⊙ p_{t-s} + b)                     short convolution over the projected inputs p
    S_t = γ_t S_{t-1} + β_t k_t (v_t − S'_t k_t)ᵀ           delta rule, S'_t k_t = (γ_t S_{t-1})ᵀ k_t; else without it
    o_t = g_t ⊙ (S_tᵀ q_t + δ v_t)

Each channel of a value goes its own way, so what a span Σ_i w_i o_i has from source j is G_j ⊙ p_j with one gradient
G_j for every source: the adjoint of the recurrence, applied to w_i g_i, from the last target row back to the first
token. Its state is as large as the layer's own, and no map of N × N positions exists.
"""

from dataclasses import dataclass

import torch
from transformers.activations import ACT2FN

CHUNK, CHANNEL_CHUNK = 64, 16  # positions at once; fewer where every channel of a key decays by itself


@dataclass
class Linear:
    """What one linear layer does to its values, frozen.

    Parameters
    ----------
    taps : torch.Tensor, shape [H, c, K], or None
        Weights c of the convolution, the token's own last; None without a convolution.
    bias : torch.Tensor, shape [H, c], or None
        Bias b of the convolution: part of the value at its position, as the bias of a value projection is.
    activation : str or None
        Behind the convolution; its gain σ(x) = f(x) / x is frozen.
    beta : torch.FloatTensor, shape [H, N], or None
        Strength β (Mamba-2: Δ); None where there is no recurrence.
    decay : torch.FloatTensor, shape [H, N, 1 or d_k], or None
        log γ, at most 0, of a head or of each channel of its keys.
    corrects : bool
        The delta rule: what the state already holds for a key is taken off the value.
    skip : torch.FloatTensor, shape [H], or None
        δ, the share of its value that a position gets past the state.
    """

    taps: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    activation: str | None = None
    beta: torch.Tensor | None = None
    decay: torch.Tensor | None = None
    corrects: bool = False
    skip: torch.Tensor | None = None

    def contributions(
        self, q: torch.Tensor | None, k: torch.Tensor | None, p: torch.Tensor, y: torch.Tensor, first: int
    ) -> torch.Tensor:
        """What every source gives to weighted rows, before W_O.

        Parameters
        ----------
        q : torch.FloatTensor, shape [H_k, m, d_k], or None
            Queries of the m rows.
        k : torch.FloatTensor, shape [H_k, N, d_k], or None
            Keys; each serves H / H_k consecutive heads.
        p : torch.Tensor, shape [H, N, c]
            Projected inputs.
        y : torch.FloatTensor, shape [B, H, m, c]
            w_bi g_i of B spans.
        first : int
            Position of the first row.

        Returns
        -------
        torch.FloatTensor, shape [B, H, N, c]
        """
        n_spans, heads, m, c = y.shape
        n, stop = p.shape[1], first + m
        y = y.permute(1, 2, 0, 3)  # [H, m, B, c]
        gradient = y.new_zeros(heads, n, n_spans, c)  # at the values
        if self.beta is None:
            gradient[:, first:stop] = y
        else:
            gradient[:, :stop] = self._adjoint(q, k, y.flatten(2), first).view(heads, stop, n_spans, c)
        if self.skip is not None:
            gradient[:, first:stop] += self.skip.view(-1, 1, 1, 1) * y
        p, bias = p.float(), 0
        if self.taps is not None:
            taps = self.taps.float()
            if self.activation is not None:
                gradient *= self._gain(p, taps)[:, :, None]
            bias = 0 if self.bias is None else gradient * self.bias.float()[:, None, None]
            gradient = _transposed_convolution(gradient, taps)
        return (gradient * p[:, :, None] + bias).permute(2, 0, 1, 3)

    def _adjoint(self, q: torch.Tensor, k: torch.Tensor, y: torch.Tensor, first: int) -> torch.Tensor:
        """Gradient [H, first + m, E] at the values of Σ_i y_i · o_i, for y [H, m, E], in chunks from the end."""
        heads, m, width = y.shape
        group, chunk = heads // len(k), CHUNK if self.decay.shape[-1] == 1 else CHANNEL_CHUNK
        state = y.new_zeros(heads, k.shape[-1], width)  # gradient at the state that the chunk hands on
        out = y.new_empty(heads, first + m, width)
        for start in range((first + m - 1) // chunk * chunk, -1, -chunk):
            stop = min(start + chunk, first + m)
            keys = k[:, start:stop].repeat_interleave(group, 0)  # [H, C, d_k]
            log = self.decay[:, start:stop].cumsum(1)  # [H, C, 1 or d_k]: decay since the chunk began
            beta, last = self.beta[:, start:stop, None], log[:, -1:]
            at_values = (keys * (last - log).exp()) @ state  # [H, C, E]
            state = last.exp().mT * state
            if stop > first:
                begin = max(first, start)
                queries = q[:, begin - first : stop - first].repeat_interleave(group, 0)  # [H, m', d_k]
                since, rows = log[:, begin - start :], y[:, begin - first : stop - first]
                read = _decayed(queries, keys, since, log).tril(begin - start)  # [H, m', C]
                at_values += read.mT @ rows
                state += (queries * since.exp()).mT @ rows
            if self.corrects:
                system = _decayed(beta * keys, keys, log, log)  # [H, C, C]
                at_values = torch.linalg.solve_triangular(system.mT, at_values, upper=True, unitriangular=True)
                state -= (beta * keys * log.exp()).mT @ at_values
            out[:, start:stop] = beta * at_values
        return out

    def _gain(self, p: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
        """f(x) / x of the convolution's output x, shape [H, N, c]; near 0 its limit, read off close by."""
        width, n = taps.shape[-1], p.shape[1]
        padded = torch.nn.functional.pad(p, (0, 0, width - 1, 0))  # [H, N + K - 1, c]
        x = sum(padded[:, s : s + n] * taps[:, None, :, s] for s in range(width))
        x = x if self.bias is None else x + self.bias.float()[:, None]
        x = torch.where(x.abs() < 1e-4, 1e-4, x)
        return ACT2FN[self.activation](x) / x


def _decayed(x: torch.Tensor, y: torch.Tensor, since_x: torch.Tensor, since_y: torch.Tensor) -> torch.Tensor:
    """Σ_d x_id y_jd exp(since_id − since_jd), shape [H, m, C]; of use where j is not behind i."""
    if since_x.shape[-1] == 1:
        return (x @ y.mT) * (since_x - since_y.mT).clamp_max_(0).exp_()
    decay = (since_x[:, :, None] - since_y[:, None]).clamp_max_(0).exp_()  # [H, m, C, d_k]
    return torch.einsum("hid,hjd,hijd->hij", x, y, decay)


def _transposed_convolution(gradient: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
    """Gradient [H, N, B, c] at a convolution's inputs, from that at its outputs."""
    width, n = taps.shape[-1], gradient.shape[1]
    padded = torch.nn.functional.pad(gradient, (0, 0, 0, 0, 0, width - 1))  # [H, N + K - 1, B, c]
    return sum(padded[:, width - 1 - s :][:, :n] * taps[:, None, None, :, s] for s in range(width))
