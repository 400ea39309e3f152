"""Recovery by the number of hops (notebook 03)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from flashtrace_lib.attribution import Attribution
from flashtrace_lib.evaluation.results_table import clusters_of
from flashtrace_lib.methods.hops import accumulate
from flashtrace_lib.metrics import recovery_rate
from flashtrace_lib.sample import Sample

from ..statistics import mean_row


def recovery_by_hops(samples: list[Sample], attributions: list[Attribution]) -> pd.DataFrame:
    """Recovery with the first K hops of each attribution, and the paired gain over K = 0.

    The first K hops of one run are exactly the run with K hops.

    Returns
    -------
    pandas.DataFrame
        ``K, recovery, low, high, gain, gain_low, gain_high, n``, see `statistics.mean_row`.
    """
    depth = max(len(attribution.hops) for attribution in attributions)
    values = np.empty((len(samples), depth))
    for i, (sample, attribution) in enumerate(zip(samples, attributions, strict=True)):
        for k in range(depth):
            scores, _ = accumulate(attribution.hops[: k + 1], sample)
            values[i, k] = recovery_rate(scores, sample.gold_in_prompt)
    cluster_of, rows = clusters_of(samples), []
    shared = [cluster_of[sample.id] for sample in samples]
    for k in range(depth):
        gain = mean_row(values[:, k] - values[:, 0], "gain", "gain_", shared)
        rows.append({"K": k, **mean_row(values[:, k], "recovery", clusters=shared), **gain})
    return pd.DataFrame(rows, columns=["K", "recovery", "low", "high", "gain", "gain_low", "gain_high", "n"])
