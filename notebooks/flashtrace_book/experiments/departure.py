"""How far the division of a whole span departs from the division token by token, and a bound on it.

From the last layer L down, a layer maps the mass on the context to mass on the context (docs/better_flashtrace.md has
the equations). By the span that is F_l: one proximity for all rows, so F_l is not linear. By the token it is a matrix
P_l, stochastic by construction, so ‖P_l a − P_l b‖₁ ≤ ‖a − b‖₁. With u_l the mass that the span's division brings to
layer l,

    ‖F_1 ∘ … ∘ F_L (w) − P_1 … P_L w‖₁ ≤ Σ_l ‖F_l(u_l) − P_l u_l‖₁.

The right side costs one extra row for each token of the span; the left side tells how loose it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import torch

from flashtrace_lib.kernel.activations import Activations
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.kernel.proximity import rollout_step
from flashtrace_lib.sample import Sample, Span


@dataclass
class Departure:
    """Both sides of the bound, for B spans.

    Parameters
    ----------
    distance : torch.FloatTensor, shape [B]
        L1 distance between the two distributions over the context, from 0 to 2.
    terms : torch.FloatTensor, shape [B, L]
        What each layer adds to the bound, the first layer first.
    """

    distance: torch.Tensor
    terms: torch.Tensor

    @property
    def bound(self) -> torch.Tensor:
        """Sum of the terms, shape [B]; at least ``distance``."""
        return self.terms.sum(-1)


@torch.inference_mode()
def departure(activations: Activations, weights: torch.Tensor, own: torch.Tensor, target: Span) -> Departure:
    """Distance of `proximity.span_rollout` by the span from that by the token, and the bound on it.

    Parameters
    ----------
    activations : Activations
        The captured pass.
    weights : torch.FloatTensor, shape [B, m]
        Row weights of B spans over the same rows; any positive scale.
    own : torch.BoolTensor, shape [B, m]
        The rows that belong to each span, whatever their weight.
    target : (int, int)
        The m rows, as positions in the context.

    Returns
    -------
    Departure
    """
    first = activations.rows[0]
    w = weights.float() / weights.float().sum(-1, keepdim=True)  # [B, m]
    by_span = by_token = w
    apart = torch.zeros(len(w), activations.n_tokens)  # [B, N]: mass that has left the span, one less the other
    terms = []
    for layer in reversed(activations.layers):
        moved, below = rollout_step(layer, by_span, own, target, first)
        both, owns = torch.cat([by_span, by_token]), torch.cat([own, own])  # [2B, m]: one matrix P_l serves both
        moved_p, below_p = rollout_step(layer, both, owns, target, first, each=True)
        b = len(w)
        terms.append((moved - moved_p[:b]).abs().sum(-1) + (below - below_p[:b]).abs().sum(-1))
        apart += moved - moved_p[b:]
        by_span, by_token = below, below_p[b:]
    apart[:, slice(*target)] += by_span - by_token
    return Departure(apart.abs().sum(-1), torch.stack(terms[::-1], -1))


def departure_table(model: torch.nn.Module, sample: Sample) -> pd.DataFrame:
    """The departure of the two spans that hop 0 may explain, every token of them weighing the same.

    Returns
    -------
    pandas.DataFrame
        ``span`` (O, and T ∪ O where there is reasoning), ``tokens``, ``distance``, ``bound``, and ``worst_layer``, the
        layer, counted from 1, that adds most to the bound.
    """
    reasoning, output = sample.segments.reasoning, sample.segments.output
    spans = {"O": [output]} | ({"T ∪ O": [reasoning, output]} if sample.segments.has_reasoning else {})
    rows = []
    for name, parts in spans.items():
        first, last = parts[0][0], parts[-1][1]
        own = torch.zeros(1, last - first, dtype=torch.bool)  # the marks between T and O belong to neither
        for start, stop in parts:
            own[0, start - first : stop - first] = True
        found = departure(capture(model, sample.input_ids, (first, last)), own.float(), own, (first, last))
        rows.append(
            {
                "span": name,
                "tokens": int(own.sum()),
                "distance": float(found.distance),
                "bound": float(found.bound),
                "worst_layer": int(found.terms[0].argmax()) + 1,
            }
        )
    return pd.DataFrame(rows)
