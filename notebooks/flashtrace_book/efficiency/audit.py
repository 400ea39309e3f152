"""The audit of a stored sweep: counts and arithmetic, which any machine repeats however busy it is; no seconds."""

from __future__ import annotations

import random
import statistics

import numpy as np
import pandas as pd
import torch

from flashtrace_lib.bench import measure
from flashtrace_lib.methods import IFR

from ..methods import build_method, sweep_options
from ..profiles import Profile
from .supervised_process import OK
from .sweep import VARIANTS
from .worker import sweep_sample

COUNTS = ("forward_passes", "backward_passes", "hop_passes")
# Methods whose passes follow from the lengths alone: they have no stopping rule, and no budget that a machine decides.
COUNTED = ("ifr", "ifr_one_by_one", "flashtrace", "rollout", "perturbation", "clp")
_SMALL = 320  # tokens of a context that is attributed again


def audit(frame: pd.DataFrame, profile: Profile, model: torch.nn.Module, k: int = 3, seed: int = 0) -> pd.DataFrame:
    """Check a sweep.

    Every stored median is computed again from its runs, and no run may have gone over its time limit. ``k``
    measurements chosen at random are attributed again and must take the stored number of passes, which the times come
    from and which is the same for any model. IFR must give the same scores in one batch and one by one, else their
    times would be those of two methods.

    Parameters
    ----------
    frame : DataFrame
        From `sweep.sweep`.
    profile : Profile
        The one that it was measured under.
    model : transformers.PreTrainedModel
        Any model; its weights do not matter.
    k, seed : int
        Number of measurements, and the seed that chooses them.

    Returns
    -------
    pandas.DataFrame
        ``check, method, size, stored, recomputed, agrees``.
    """
    ran = frame[frame["outcome"] == OK]
    small = ran[(ran["n_input"] + ran["n_generated"] <= _SMALL) & ran["method"].isin(COUNTED)]
    chosen = random.Random(seed).sample(list(small.itertuples()), min(k, len(small)))
    rows = [row for record in ran.itertuples() for row in _arithmetic(record)]
    rows += [_passes(record, profile, model) for record in chosen]
    return pd.DataFrame([*rows, _same_scores(profile, model)])


def _arithmetic(record: tuple) -> list[dict]:
    """Medians against their runs, and the longest run against the limit."""
    rows = []
    for name, found in measure.medians(list(zip(record.forward_runs_s, record.runs_s, strict=True))).items():
        stored = getattr(record, name)
        rows.append(_row("median of " + name, record, stored, found, bool(np.isclose(stored, found, rtol=1e-9))))
    if record.n_peak > 1:
        found = statistics.median(record.peak_runs_gib)
        agrees = bool(np.isclose(record.peak_gib, found, rtol=1e-9))
        rows.append(_row("median of peak_gib", record, record.peak_gib, found, agrees))
    longest = max(record.runs_s)
    return [*rows, _row("longest run", record, longest, record.time_limit, longest <= record.time_limit)]


def _passes(record: tuple, profile: Profile, model: torch.nn.Module) -> dict:
    """Passes of one attribution, taken again."""
    name, options = VARIANTS.get(record.method, (record.method, {}))
    method = build_method(name, sweep_options(profile, name) | options)
    sample = sweep_sample(name, record.n_input, record.n_generated, model.get_input_embeddings().num_embeddings)
    metadata = method.attribute(model, sample).metadata
    stored = [int(getattr(record, count)) for count in COUNTS]
    found = [int(metadata.get(count, 0)) for count in COUNTS]
    return _row("passes", record, stored, found, stored == found)


def _same_scores(profile: Profile, model: torch.nn.Module) -> dict:
    """IFR batched and one by one on the smallest size of the sweep."""
    size = (profile.efficiency.inputs[0], profile.efficiency.generations[0])
    sample = sweep_sample("ifr", *size, model.get_input_embeddings().num_embeddings)
    batched, single = (IFR(batch_size=n).attribute(model, sample).scores for n in (None, 1))
    gap = float((batched - single).abs().max() / batched.abs().max())
    return {"check": "IFR in one batch and one by one", "method": "ifr", "size": "+".join(map(str, size)),
            "stored": 0.0, "recomputed": gap, "agrees": gap < 1e-3}  # fmt: skip


def _row(check: str, record: tuple, stored: object, recomputed: object, agrees: bool) -> dict:
    size = f"{record.n_input}+{record.n_generated}"
    return {"check": check, "method": record.method, "size": size, "stored": stored, "recomputed": recomputed,
            "agrees": agrees}  # fmt: skip
