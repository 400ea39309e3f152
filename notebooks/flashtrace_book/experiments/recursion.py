"""Recovery by the number of hops (notebook 03)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from flashtrace_lib.attribution import Attribution
from flashtrace_lib.methods.hops import accumulate
from flashtrace_lib.metrics import mean_interval, recovery_rate
from flashtrace_lib.sample import Sample


def recovery_by_hops(samples: list[Sample], attributions: list[Attribution]) -> pd.DataFrame:
    """Recovery with the first K hops of each attribution, and the paired gain over K = 0.

    The first K hops of one run are exactly the run with K hops.

    Returns
    -------
    pandas.DataFrame
        ``K, recovery, low, high, gain, gain_low, gain_high, n``; intervals are `metrics.mean_interval`'s.
    """
    depth = max(len(attribution.hops) for attribution in attributions)
    values = np.array(
        [
            [recovery_rate(accumulate(a.hops[: k + 1], s)[0], s.gold_in_prompt) for k in range(depth)]
            for s, a in zip(samples, attributions, strict=True)
        ]
    )  # [samples, depth]
    rows = []
    for k in range(depth):
        low, high = mean_interval(values[:, k])
        gains = values[:, k] - values[:, 0]
        gain_low, gain_high = mean_interval(gains)
        rows.append(
            {"K": k, "recovery": values[:, k].mean(), "low": low, "high": high, "gain": gains.mean(),
             "gain_low": gain_low, "gain_high": gain_high, "n": len(values)}
        )  # fmt: skip
    return pd.DataFrame(rows)
