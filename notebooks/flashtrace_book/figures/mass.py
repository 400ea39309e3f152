"""Where the mass of each hop lies, as tidy frames for the plots (section 3.2, appendix H)."""

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from flashtrace_lib.attribution import Attribution, Hop
from flashtrace_lib.evaluation.results_table import clusters_of
from flashtrace_lib.sample import Sample
from flashtrace_lib.viewer.colours import SEGMENTS


def mass_by_label(
    samples: Iterable[Sample],
    attributions: Iterable[Attribution],
    labels_of: Callable[[Sample], list[str]],
    names: Iterable[str],
) -> pd.DataFrame:
    """Share of each hop's mass on the tokens of each label, beside the share of the tokens that have the label.

    Parameters
    ----------
    samples : iterable of Sample
    attributions : iterable of Attribution
        One for each sample, with hops.
    labels_of : callable
        Gives the label of every token of a sample.
    names : iterable of str
        Labels in the order of the rows.

    Returns
    -------
    pandas.DataFrame
        ``sample, cluster, cell, hop, label, mass, tokens``; where the names are all labels, both shares of a hop sum
        to 1. ``cluster``: see `results_table.clusters_of`.

    Raises
    ------
    ValueError
        If an attribution has no hops.
    """
    samples, names, rows = list(samples), list(names), []
    cluster_of = clusters_of(samples)
    for sample, attribution in zip(samples, attributions, strict=True):
        about = (sample.id, cluster_of[sample.id], str(sample.metadata.get("cell", "")))
        labels = np.array(labels_of(sample))
        for k, hop in enumerate(_hops(attribution)):
            scores = hop.scores.double().numpy()
            for name in names:
                chosen = labels == name
                rows.append((*about, k, name, mass_share(scores, chosen), chosen.mean()))
    return pd.DataFrame(rows, columns=["sample", "cluster", "cell", "hop", "label", "mass", "tokens"])


def mass_share(scores: np.ndarray, chosen: np.ndarray) -> float:
    """Share of the mass of ``scores`` that lies where the mask ``chosen`` is True; both of shape [N]."""
    return scores[chosen].sum() / scores.sum()


def mass_frame(samples: Iterable[Sample], attributions: Iterable[Attribution]) -> pd.DataFrame:
    """Share of each hop's mass on I, T, O and context (`mass_by_label`): ``sample, cluster, hop, segment, mass``."""
    frame = mass_by_label(samples, attributions, lambda sample: sample.segments.labels(len(sample)), SEGMENTS)
    return frame.rename(columns={"label": "segment"})[["sample", "cluster", "hop", "segment", "mass"]]


def _hops(attribution: Attribution) -> list[Hop]:
    if not attribution.hops:
        raise ValueError(f"{attribution.method} has no hops: its mass cannot be followed")
    return attribution.hops
