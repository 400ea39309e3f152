"""The random baseline as the mean of many draws, and RISE calibrated by it."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ..attribution import Method
from ..methods.random import Random, RandomSentences
from ..metrics import calibrated, rise_floor
from .results_table import COLUMNS

BASELINES = (Random, RandomSentences)


def random_draws(n: int = 20, sentences: bool = False) -> dict[str, Method]:
    """Random baselines that differ in their seed alone, to be evaluated like any other methods.

    Parameters
    ----------
    n : int
        Number of draws. One draw is as noisy as one method on one sample; the mean of 20 adds a twentieth of that
        variance to a paired difference.
    sentences : bool
        Draw a score for each sentence (`RandomSentences`), not for each token (`Random`).

    Returns
    -------
    dict of str to Method
        ``"random/0"``, ``"random/1"``, ... (``"random_sentences/0"``, ...) to the draw with that seed. Draw 0 is the
        method with its default options, and finds what is stored of it.

    Raises
    ------
    ValueError
        If ``n`` is not positive.
    """
    if n < 1:
        raise ValueError(f"need at least one draw, got {n}")
    method = RandomSentences if sentences else Random
    return {f"{method.name}/{seed}": method(seed=seed) for seed in range(n)}


def mean_over_draws(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with all draws of a random baseline as one method, its value on a sample the mean over the draws.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `evaluate` or `frame_from_records`, with methods labelled as `random_draws` labels them. A row ``random``
        beside such draws is one of them, stored under its older label, and counts once.

    Returns
    -------
    pandas.DataFrame
        Methods ``random`` and ``random_sentences`` in the place of their draws, a row for each sample and metric:
        mean of ``value`` and ``seconds``, flagged if any draw is, ``key`` and ``curve_dtype`` of the first draw. All
        other rows as they are. A baseline without numbered draws stays as it is.
    """
    frame = frame.reset_index(drop=True)
    names = _baseline_of(frame["method"])
    drawn = frame[names.isin(names[names != frame["method"]])]  # of baselines that have numbered draws
    if drawn.empty:
        return frame
    of_baseline = drawn.assign(method=names[drawn.index], place=drawn.index)
    same = [*_identity(frame), "method", "metric"]
    if "key" in frame:
        of_baseline = of_baseline[~of_baseline.duplicated([*same, "key"]) | of_baseline["key"].isna()]
    how = {"value": "mean", "flagged": "any", "seconds": "mean"}
    how = {column: how.get(column, "first") for column in of_baseline if column not in same}
    merged = of_baseline.groupby(same, sort=False, dropna=False).agg(how).reset_index().set_index("place")
    return pd.concat([frame.drop(drawn.index), merged[list(frame)]]).sort_index().reset_index(drop=True)


def add_calibrated(
    frame: pd.DataFrame, best: float | Mapping[str, float] | None = None, baseline: str = "random", steps: int = 20
) -> pd.DataFrame:
    """The frame with rows ``rise_calibrated`` (`metrics.calibrated`) for every row of ``rise``.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `evaluate`, with the draws of the baseline on every sample, or their mean (`mean_over_draws`).
    best : float, or mapping of sample id to float, optional
        Lowest RISE that can be reached, for all samples or for each (`metrics.best_order`). Default: `rise_floor`.
    baseline : {"random", "random_sentences"}
        Which random ranking is 0.
    steps : int
        Groups of the deletion curves: what the floor depends on.

    Returns
    -------
    pandas.DataFrame
        The new rows follow the others. On a sample whose likelihood masking does not lower, and where a random ranking
        is as good as the best, the value is NaN and the row flagged: `summarise` counts it and leaves it out.

    Raises
    ------
    ValueError
        If the baseline is unknown or missing on a sample, or ``best`` lacks a sample.
    """
    if baseline not in [method.name for method in BASELINES]:
        raise ValueError(f"baseline is one of {[method.name for method in BASELINES]}, got {baseline!r}")
    rows = frame[frame["metric"] == "rise"].reset_index(drop=True)
    same = _identity(frame)
    of_baseline = mean_over_draws(rows)
    of_baseline = of_baseline[of_baseline["method"] == baseline].drop_duplicates(same)
    random = rows[same].merge(of_baseline[[*same, "value", "flagged"]], on=same, how="left")
    if random["value"].isna().any():
        missing = sorted(set(rows.loc[random["value"].isna(), "sample"]))
        raise ValueError(f"no RISE of {baseline} on the samples {missing}: evaluate random_draws() with the methods")
    lowest = _lowest(best, rows["sample"], steps)
    found = [calibrated(*three) for three in zip(rows["value"], random["value"], lowest, strict=True)]
    value = pd.Series(found, dtype=float).mask(random["flagged"].astype(bool))
    flagged = rows["flagged"].astype(bool) | value.isna()
    added = rows.assign(metric="rise_calibrated", value=value, flagged=flagged)
    return pd.concat([frame, added], ignore_index=True)


def _lowest(best: float | Mapping[str, float] | None, samples: pd.Series, steps: int) -> list[float]:
    """Lowest RISE for each of the samples."""
    if best is None:
        best = rise_floor(steps)
    if not isinstance(best, Mapping):
        return [best] * len(samples)
    if missing := sorted(set(samples) - set(best)):
        raise ValueError(f"best has no value for the samples {missing}: give them rise_floor({steps})")
    return [best[sample] for sample in samples]


def _baseline_of(methods: pd.Series) -> pd.Series:
    """Label of each method, without the number of the draw."""
    names = "|".join(method.name for method in BASELINES)
    return methods.astype(str).str.replace(rf"^({names})/\d+$", r"\1", regex=True)


def _identity(frame: pd.DataFrame) -> list[str]:
    """Columns that say which sample a row is of, those that a reader added among them."""
    own = [name for name in COLUMNS if name not in ("sample", "task", "cell")]
    return [column for column in frame if column not in own]
