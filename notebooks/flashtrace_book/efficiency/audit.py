"""What of a stored sweep can be checked on any machine, however busy: counts and arithmetic, not seconds."""

from __future__ import annotations

import random

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
# Methods whose passes follow from the lengths alone: no stopping rule, no budget that a machine decides.
COUNTED = ("ifr", "ifr_one_by_one", "flashtrace", "rollout", "perturbation", "clp")
_SMALL = 320  # tokens of a context that is attributed again


def audit(frame: pd.DataFrame, profile: Profile, model: torch.nn.Module, k: int = 3, seed: int = 0) -> pd.DataFrame:
    """Check a sweep.

    Every stored median is computed again from its runs, and no run may have gone over the limit it was under. ``k``
    measurements chosen at random are attributed again and must take the passes that are stored: they are what the
    times come from, and any model gives the same. IFR must give the same scores in one batch and one by one, else the
    comparison of their times would be one of two methods.

    Parameters
    ----------
    frame : DataFrame
        From `sweep.sweep`.
    profile : Profile
        What it was measured under.
    model : transformers.PreTrainedModel
        Any model; its weights do not matter.
    k, seed : int
        How many measurements, and what chooses them.

    Returns
    -------
    pandas.DataFrame
        ``check, method, size, stored, recomputed, agrees``.
    """
    ran = frame[frame["outcome"] == OK]
    rows = [row for record in ran.itertuples() for row in _arithmetic(record)]
    small = ran[(ran["n_input"] + ran["n_generated"] <= _SMALL) & ran["method"].isin(COUNTED)]
    for record in random.Random(seed).sample(list(small.itertuples()), min(k, len(small))):
        rows.append(_passes(record, profile, model))
    rows.append(_same_scores(profile, model))
    return pd.DataFrame(rows)


def _arithmetic(record: tuple) -> list[dict]:
    """Medians against their runs, and the longest run against the limit."""
    found = measure.medians(list(zip(record.forward_runs_s, record.runs_s, strict=True)))
    rows = [
        _entry("median of " + name, record, stored, value, bool(np.isclose(stored, value, rtol=1e-9)))
        for name, value in found.items()
        for stored in [getattr(record, name)]
    ]
    longest = max(record.runs_s)
    return [*rows, _entry("longest run", record, longest, record.time_limit, longest <= record.time_limit)]


def _passes(record: tuple, profile: Profile, model: torch.nn.Module) -> dict:
    """Passes of one attribution, taken again."""
    name, options = VARIANTS.get(record.method, (record.method, {}))
    method = build_method(name, sweep_options(profile, name) | options)
    sample = sweep_sample(name, record.n_input, record.n_generated, model.get_input_embeddings().num_embeddings)
    metadata = method.attribute(model, sample).metadata
    stored = [int(getattr(record, count)) for count in COUNTS]
    found = [int(metadata.get(count, 0)) for count in COUNTS]
    return _entry("passes", record, stored, found, stored == found)


def _same_scores(profile: Profile, model: torch.nn.Module) -> dict:
    """IFR batched and one by one on the smallest size of the sweep."""
    size = (profile.efficiency.inputs[0], profile.efficiency.generations[0])
    sample = sweep_sample("ifr", *size, model.get_input_embeddings().num_embeddings)
    batched, single = (IFR(batch_size=n).attribute(model, sample).scores for n in (None, 1))
    gap = float((batched - single).abs().max() / batched.abs().max())
    return {"check": "IFR in one batch and one by one", "method": "ifr", "size": "+".join(map(str, size)),
            "stored": 0.0, "recomputed": gap, "agrees": gap < 1e-3}  # fmt: skip


def _entry(check: str, record: tuple, stored: object, recomputed: object, agrees: bool) -> dict:
    size = f"{record.n_input}+{record.n_generated}"
    return {"check": check, "method": record.method, "size": size, "stored": stored, "recomputed": recomputed,
            "agrees": agrees}  # fmt: skip
