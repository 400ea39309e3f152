"""The audit of an evaluation: stored records computed again from scratch, and compared quantity by quantity."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from ..attribution import Method
from ..metrics.arithmetic import without_emulation
from ..metrics.deletion import Scorer
from ..sample import Sample
from ..store import Store
from .ablations import ON_MASKS, ON_TOP, Record, has_masks, has_top, masks_beside, with_masks
from .recorder import Recorder, facts, labelled, labels
from .results_table import METRICS, ON_CURVE, has_curve

# What an audit compares, beside metrics and labels.
RAW = (
    "scores", "hop_scores", "flow", "gold", "log_probs", "cumulative", "n_masked",
    "drop_log_probs", "keep_log_probs", "masks", "mask_log_probs", "mask_log_odds",
)  # fmt: skip
LIKELIHOODS = ("log_probs", "drop_log_probs", "keep_log_probs", "mask_log_probs", "mask_log_odds")
RANKED = ("scores", "mask_log_probs", "mask_log_odds")  # of which metrics take the order
MASKS_SCORED = 6  # of a sample's random masks, by an audit; with all kept and none beside them
# The column that names the arithmetic of a quantity; of all others it is the model's.
ARITHMETIC = {
    **dict.fromkeys(("log_probs", *ON_CURVE), "curve_dtype"),
    **dict.fromkeys(("drop_log_probs", "keep_log_probs", *ON_TOP), "top_dtype"),
    **dict.fromkeys(("mask_log_probs", "mask_log_odds", *ON_MASKS), "masks_dtype"),
}


def audit(
    methods: Iterable[Method] | Mapping[str, Method],
    samples: Iterable[Sample],
    model,
    store: Store,
    k: int = 3,
    seed: int = 0,
    *,
    steps: int = 20,
    scorer: Scorer | None = None,
) -> pd.DataFrame:
    """Recompute ``k`` randomly chosen stored records from scratch and compare every raw column and metric.

    The scores are computed again from the model and the sample. The curve is computed again for the stored
    scores where those agree, so that two nearly tied tokens that swap ranks on another machine are no false
    alarm, and for the new scores where they do not; in the arithmetic in which it is stored, but in float32 where
    that is bfloat16 and the CPU has none. Of a sample's masks, which its methods share, all are drawn again and the
    response is scored under a few.

    Parameters
    ----------
    methods, samples, model, store, steps, scorer
        As given to `evaluate`.
    k : int
        Records to recompute, at most as many as are stored.
    seed : int
        Chooses them.

    Returns
    -------
    pandas.DataFrame
        Columns ``sample, method, quantity, stored, recomputed, difference, agrees``. Of an array, ``stored`` and
        ``recomputed`` show the mean; ``difference`` is the largest gap between elements, relative to the largest
        recomputed magnitude (of a curve: to its range), and decides. Tolerance: 0.001 in float32, of scores 0.003; in
        reduced precision 0.03, of likelihoods 0.05. Of a metric it is the difference itself: 0.005 in float32, 0.03 for
        RISE and MAS of a curve in reduced precision.

    Raises
    ------
    ValueError
        If none of the pairs is stored.
    """
    methods, recorder = labelled(methods), Recorder(model, scorer, steps)
    # The scorers of the stored curves.
    in_dtype = cache(lambda dtype: replace(recorder.scorer, dtype=without_emulation(dtype, model)))
    pairs = [(label, method, sample) for sample in samples for label, method in methods.items()]
    stored = [pair for pair in pairs if recorder.key(pair[1], pair[2]) in store]
    if not stored:
        raise ValueError(
            f"none of these {len(pairs)} results is stored in {store.path}: run evaluate with the same methods, "
            "samples, model, steps and scorer precision first"
        )
    rows = []
    for label, method, sample in tqdm(random.Random(seed).sample(stored, min(k, len(stored))), desc="audit"):
        record = with_masks(store.get(recorder.key(method, sample)), masks_beside(store))
        # As in a frame: what the metrics ask of the sample itself is the sample's, not the record's of an earlier time.
        record |= {name: value for name, value in facts(sample).items() if name not in RAW}
        shared = {"sample": sample.id, "method": label}
        fresh = _recompute(recorder, in_dtype, method, sample, record, seed)
        rows += [shared | row for row in _compare(record, fresh)]
    return pd.DataFrame(rows)


def audit_masks(record: Record, sample: Sample, model, scorer: Scorer | None = None, seed: int = 0) -> pd.DataFrame:
    """Draw the stored masks of a sample again, score the response under a few of them, and compare.

    Parameters
    ----------
    record : dict
        Of the store ``<name>_masks``.
    sample, model, scorer
        As given to `evaluate`.
    seed : int
        Chooses the masks that are scored.

    Returns
    -------
    pandas.DataFrame
        Columns ``quantity, stored, recomputed, difference, agrees``, as in `audit`.
    """
    recorder = Recorder(model, scorer, steps=1)
    recorder.scorer = replace(recorder.scorer, dtype=without_emulation(record["masks_dtype"], model))
    fresh = _masks(recorder, sample, record, seed) | labels(sample) | recorder.provenance
    return pd.DataFrame(_compare(record, fresh))


def _recompute(
    recorder: Recorder, in_dtype: Callable, method: Method, sample: Sample, record: Record, seed: int
) -> Record:
    """A new record to compare with ``record``, in its arithmetic.

    What is computed for a ranking is computed for the stored scores where they agree.
    """
    fresh = recorder.attribution(method, sample) | labels(sample)
    ranked = fresh | ({"scores": record["scores"]} if _agree("scores", record, fresh) else {})
    if has_curve(record):
        recorder.scorer = in_dtype(record.get("curve_dtype"))
        fresh |= recorder.curve(sample, ranked["scores"])
    if has_top(record):
        recorder.scorer = in_dtype(record["top_dtype"])
        fresh |= recorder.top(sample, ranked)
    if has_masks(record):
        recorder.scorer = in_dtype(record["masks_dtype"])
        fresh |= _masks(recorder, sample, record, seed)
    return fresh


def _masks(recorder: Recorder, sample: Sample, record: Record, seed: int) -> Record:
    """Columns of the masks, drawn again; likelihoods under a few, and the stored ones under all others."""
    n = int(record["n_masks"])
    rows = [*sorted(random.Random(seed).sample(range(n), min(n, MASKS_SCORED))), n, n + 1]
    fresh = recorder.masks(sample, n, rows)
    for name in ("mask_log_probs", "mask_log_odds"):
        if len(record[name]) == n + 2:  # else the few rows disagree with it, whatever they hold
            whole = [list(values) for values in record[name]]  # [n + 2] lists
            for row, values in zip(rows, fresh[name], strict=True):
                whole[row] = values
            fresh[name] = whole
    return fresh


def _compare(stored: Record, fresh: Record) -> list[Record]:
    """One row a quantity; the labels must be equal, numbers must agree within the tolerance."""
    rows = []
    for name in RAW:
        a, b = stored.get(name), fresh.get(name)
        if a is not None or b is not None:
            rows.append(_row(name, _mean(a), _mean(b), _gap(name, a, b), _agree(name, stored, fresh)))
    # Rank by what is stored where it agrees, as the curve does: two nearly tied scores, or likelihoods of two masks,
    # may change places on another machine.
    fresh = fresh | {name: stored[name] for name in RANKED if _agree(name, stored, fresh)}
    for name in METRICS:
        a, b = _metric(name, stored), _metric(name, fresh)
        if a is not None or b is not None:
            gap = abs(a - b) if a is not None and b is not None else math.inf
            rows.append(_row(name, a, b, gap, gap <= _metric_tolerance(name, stored, fresh)))
    for name in ("sample", "task", "cell"):
        same = stored[name] == fresh[name]
        rows.append(_row(name, stored[name], fresh[name], 0.0 if same else math.inf, same))
    return rows


def _agree(name: str, stored: Record, fresh: Record) -> bool:
    return _gap(name, stored.get(name), fresh.get(name)) <= _tolerance(name, stored, fresh)


def _tolerance(name: str, stored: Record, fresh: Record) -> float:
    """0.001 where both sides were computed in float32, 0.003 of scores; otherwise 0.05 of likelihoods, and 0.03.

    Scores that are differences of likelihoods keep the rounding of both: those of CLP on a problem of 19 tokens were
    0.0014 of the largest apart between a processor with AVX-512 and one without.

    Curves in bfloat16 that one processor stored and another computed again, with one thread or two, were up to 0.032 of
    their range apart.
    """
    dtype = ARITHMETIC.get(name, "model_dtype")
    if stored.get(dtype) == fresh.get(dtype) == "float32":
        return 3e-3 if name in ("scores", "hop_scores") else 1e-3
    return 5e-2 if name in LIKELIHOODS else 3e-2


def _metric_tolerance(name: str, stored: Record, fresh: Record) -> float:
    """Of the metrics, absolute: 0.03 for RISE and MAS of a curve in reduced precision, else five times `_tolerance`.

    A dozen stored curves in bfloat16 computed again on the same kind of machine were equal to the last bit; in float32
    their RISE was up to 0.009 away and their MAS up to 0.015. Another CPU's bfloat16 may differ as much.
    """
    tolerance = _tolerance(name, stored, fresh)
    if name in ON_TOP:  # a difference of two likelihoods, nats
        likelihoods = "drop_log_probs" if name.startswith("drop") else "keep_log_probs"
        return 2 * _tolerance(likelihoods, stored, fresh) * _scale(likelihoods, fresh)
    return tolerance if name in ON_CURVE and tolerance > 1e-3 else 5 * tolerance  # MAS can triple an error


def _metric(name: str, record: Record) -> float | None:
    """Metric of a record that may have been tampered with: nan, which agrees with nothing, where it is invalid."""
    try:
        return METRICS[name](record, "log_probability", "signed")
    except ValueError:
        return math.nan


def _row(quantity: str, stored: Any, recomputed: Any, difference: float, agrees: bool) -> Record:
    return {
        "quantity": quantity, "stored": stored, "recomputed": recomputed, "difference": difference, "agrees": agrees,
    }  # fmt: skip


def _gap(name: str, stored: Any, fresh: Any) -> float:
    """Largest gap between two arrays relative to the fresh one's scale; infinite where their shapes differ."""
    if stored is None or fresh is None:
        return math.inf
    a, b = _flat(stored), _flat(fresh)
    if a.shape != b.shape or not np.isfinite(a).all():
        return math.inf
    if not len(b):
        return 0.0
    return float(np.abs(a - b).max() / _scale(name, {name: fresh}))


def _scale(name: str, record: Record) -> float:
    """What the gaps of a column are compared with: the range of likelihoods, else the largest magnitude."""
    values = _flat(record[name])
    largest = np.abs(values).max()
    # A nearly flat curve has no range to speak of: its rounding errors go with the size of the log-probability.
    scale = max(np.ptp(values), 0.01 * largest) if name in LIKELIHOODS else largest
    return max(float(scale), 1e-9)


def _flat(values: Any) -> np.ndarray:
    """Nested lists or arrays as one float64 vector."""
    if len(values) and isinstance(values[0], (list, np.ndarray)):
        return np.concatenate([np.asarray(row, dtype=np.float64) for row in values])
    return np.asarray(values, dtype=np.float64)


def _mean(values: Any) -> float:
    return float(_flat(values).mean()) if values is not None and len(values) else math.nan
