"""Walk mass from generated units back to what they came from (CAGE; suppression; exhaustive rollout, appendix D.3)."""

import torch
from tqdm import tqdm

from ..attribution import Attribution
from ..kernel.activations import Activations
from ..kernel.proximity import span_scores, spans_at_once
from ..sample import Sample, Span
from .hops import mass_by_segment
from .perturbation_base import of_signed, unit_spans

UNITS_AT_ONCE = 64  # more share no further work, and the progress bar should move


def unit_rows(activations: Activations, units: list[Span], label: str = "") -> torch.Tensor:
    """Span scores of every unit over the context, several units a pass (section 4.2).

    Parameters
    ----------
    activations : Activations
        Must hold the rows of all units.
    units : list of (int, int)
        Token ranges in the order of the text.
    label : str
        Of the progress bar.

    Returns
    -------
    torch.FloatTensor, shape [G, N]
        Each row sums to 1; the row of a single token is its IFR row.
    """
    at_once, rows = min(UNITS_AT_ONCE, spans_at_once(activations)), []
    with tqdm(total=len(units), desc=label, leave=False, unit="unit") as bar:
        for first in range(0, len(units), at_once):
            part = units[first : first + at_once]
            start, stop = part[0][0], part[-1][1]
            weights = torch.zeros(len(part), stop - start)  # [G', m]
            for row, (a, b) in zip(weights, part, strict=True):
                row[a - start : b - start] = 1
            rows.append(span_scores(activations, weights, (start, stop)))
            bar.update(len(part))
    return torch.cat(rows)


def edges(rows: torch.Tensor, units: list[Span]) -> torch.Tensor:
    """Rows of an attribution graph: non-negative, causal, each summing to 1.

    Parameters
    ----------
    rows : torch.FloatTensor, shape [G, N]
        Scores of every token of the context for each unit.
    units : list of (int, int)
        Token ranges of the G units.

    Returns
    -------
    torch.DoubleTensor, shape [G, N]
        Negative scores, and scores on the unit itself and behind it, are set to 0; then each row is normalised.
        Leaving out the unit itself is the limit of walking round its loop for ever: Σ_k a_gg^k a_gj = a_gj/(1 − a_gg).
    """
    out = rows.double().clamp_min(0)
    for row, (start, _) in zip(out, units, strict=True):
        row[start:] = 0
    return out / out.sum(-1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)


def walk_back(mass: torch.Tensor, graph: torch.Tensor, units: list[Span]) -> torch.Tensor:
    """Replace the mass on each unit, last unit first, by what it came from: w += w[g] A[g, :], w[g] = 0.

    Parameters
    ----------
    mass : torch.Tensor, shape [N]
        Where the walk begins.
    graph : torch.DoubleTensor, shape [G, N]
        From `edges`.
    units : list of (int, int)
        Token ranges of the G units, in the order of the text; they do not overlap.

    Returns
    -------
    torch.DoubleTensor, shape [N]
        Nothing is left on the units; the total is unchanged (a unit whose row is empty loses its mass).
    """
    mass = mass.double().clone()
    for row, (start, stop) in zip(graph.flip(0), reversed(units), strict=True):
        arrived = mass[start:stop].sum()
        mass[start:stop] = 0
        mass += arrived * row
    return mass


def graph_units(sample: Sample, segment: Span) -> list[Span]:
    """Sentences that tile one segment, nodes of a graph; the whole of it where the sample has no sentences."""
    if not sample.sentences:
        return [segment] if segment[0] < segment[1] else []
    return unit_spans(sample, segment, "sentence")


def walked_from_output(
    name: str, sample: Sample, rows: torch.Tensor, nodes: list[Span], forward_passes: int
) -> Attribution:
    """Attribution from a walk that begins with every token of O weighing 1/|O| and ends on I.

    Parameters
    ----------
    name : str
        Of the method.
    sample : Sample
    rows : torch.FloatTensor, shape [G, N]
        Scores of every token for each node; see `edges`.
    nodes : list of (int, int)
        Units of T and O, in the order of the text.
    forward_passes : int
        That ``rows`` took.
    """
    begin = torch.zeros(len(sample), dtype=torch.float64)
    start, stop = sample.segments.output
    begin[start:stop] = 1 / (stop - start)
    total = walk_back(begin, edges(rows, nodes), nodes)  # [N]
    more = {"n_units": len(nodes), "has_sentences": bool(sample.sentences), "mass": [mass_by_segment(total, sample)]}
    return of_signed(name, total[slice(*sample.segments.prompt)], forward_passes, **more)
