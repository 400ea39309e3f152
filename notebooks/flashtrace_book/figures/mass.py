"""Where the mass of each hop lies, as tidy frames for the plots (section 3.2, appendix H)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from flashtrace_lib.attribution import Attribution
from flashtrace_lib.sample import Sample
from flashtrace_lib.viewer.colours import SEGMENTS


def mass_frame(samples: Iterable[Sample], attributions: Iterable[Attribution]) -> pd.DataFrame:
    """Share of each hop's mass on I, T, O and context.

    Parameters
    ----------
    samples : iterable of Sample
    attributions : iterable of Attribution
        One a sample, with hops.

    Returns
    -------
    pandas.DataFrame
        ``sample, hop, segment, mass``; the masses of a hop sum to 1.
    """
    rows = []
    for sample, attribution in zip(samples, attributions, strict=True):
        labels = np.array(sample.segments.labels(len(sample)))
        for k, hop in enumerate(_hops(attribution)):
            scores = hop.scores.double().numpy()
            rows += [(sample.id, k, name, scores[labels == name].sum() / scores.sum()) for name in SEGMENTS]
    return pd.DataFrame(rows, columns=["sample", "hop", "segment", "mass"])


def position_frame(samples: Iterable[Sample], attributions: Iterable[Attribution], bins: int = 10) -> pd.DataFrame:
    """How each hop's mass within T spreads from its beginning (0) to its end (1).

    Parameters
    ----------
    samples, attributions
        See `mass_frame`; samples without reasoning are left out.
    bins : int
        Parts of equal length that T is cut into.

    Returns
    -------
    pandas.DataFrame
        ``sample, hop, position, mass``; position is the middle of a part, the masses of a hop sum to 1.
    """
    rows = []
    for sample, attribution in zip(samples, attributions, strict=True):
        start, stop = sample.segments.reasoning
        if start == stop:
            continue
        middles = (np.arange(stop - start) + 0.5) / (stop - start)
        for k, hop in enumerate(_hops(attribution)):
            inside = hop.scores[start:stop].double().numpy()
            parts, _ = np.histogram(middles, bins=bins, range=(0, 1), weights=inside)
            total = parts.sum() or 1.0
            rows += [(sample.id, k, (b + 0.5) / bins, part / total) for b, part in enumerate(parts)]
    return pd.DataFrame(rows, columns=["sample", "hop", "position", "mass"])


def _hops(attribution: Attribution) -> list:
    if not attribution.hops:
        raise ValueError(f"{attribution.method} has no hops: its mass cannot be followed")
    return attribution.hops
