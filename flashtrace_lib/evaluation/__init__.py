"""Methods x samples -> one tidy table, resumed from the store, and the audit that recomputes stored rows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from ..attribution import Method
from ..metrics.deletion import Scorer
from ..sample import Sample
from ..store import Store
from .job import Job, Memory, choose_scorer
from .recorder import Recorder, labelled, labels
from .results_table import (
    DEFAULT_METRICS,
    METRICS,
    ON_CURVE,
    Record,
    check_metrics,
    frame_from_records,
    has_curve,
    summarise,
)
from .runners import runner_of

__all__ = ["METRICS", "audit", "evaluate", "frame_from_records", "summarise"]

# What an audit compares, beside metrics and labels.
RAW = ("scores", "hop_scores", "flow", "gold", "log_probs", "cumulative", "n_masked")


def evaluate(
    methods: Iterable[Method] | Mapping[str, Method],
    samples: Iterable[Sample],
    model,
    *,
    store: Store | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    steps: int = 20,
    scorer: Scorer | None = None,
    progress: bool = True,
    executor: Any = None,
    recipe: Callable[[], Any] | None = None,
) -> pd.DataFrame:
    """Attribute every sample with every method and score the result.

    Each finished pair is stored at once, so that an interrupted run goes on where it stopped. What is stored is
    raw (scores, hops, log-probabilities); the metrics in the frame are computed from it.

    Parameters
    ----------
    methods : list of Method, or dict label -> Method
        Labels name the rows; a list takes each method's ``name``.
    samples : iterable of Sample
        Task, cell and id come from their metadata.
    model : transformers.PreTrainedModel
    store : Store, optional
        Where to resume from and write to.
    metrics : sequence of str
        Keys of ``METRICS``. The deletion curve is computed only where one of them needs it; it is added later
        to a record that lacks it, without attributing again.
    steps : int
        Groups of the deletion curve.
    scorer : Scorer, optional
        Default: ``Scorer(model, precision="auto")``. With this precision, and no dtype, the arithmetic is chosen here,
        before the first missing curve and for all of them: that of the store's curves of this model, else by
        `metrics.choose_dtype`. Each record notes it (``curve_dtype``, ``curve_note``).
    progress : bool
        Show a progress bar.
    executor : int, str, distributed.Client or callable, optional
        Evaluate on several devices: so many worker processes on this machine, or the workers of the scheduler at this
        address (``"tcp://host:8786"``) or of this client, see `on_dask`. One task is one sample with all methods; the
        frame is the one that this process would give. A callable is used as the `job.Runner` of the tasks.
    recipe : callable, optional
        Makes the model on a worker; returns it, or what `load_model` returns. Not needed for a model of `load_model`
        that was not changed since.

    Returns
    -------
    pandas.DataFrame
        See `frame_from_records`.
    """
    check_metrics(metrics)
    run = runner_of(executor, recipe, model)
    needs_curve = any(name in ON_CURVE for name in metrics)
    job = Job(Recorder(model, scorer, steps), labelled(methods), Memory() if store is None else store, needs_curve)
    samples = list(samples)
    job.recorder.scorer = choose_scorer(job, samples)
    total = len(samples) * len(job.methods)
    with tqdm(total=total, desc="evaluate", **({} if progress else {"disable": True})) as bar:
        records = [record for of_sample in run(job, samples, bar) for record in of_sample]
    return frame_from_records(records, metrics)


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
    alarm, and for the new scores where they do not; in the arithmetic in which it is stored.

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
        recomputed magnitude (of a curve: to its range), and decides. Tolerance: 0.001 in float32, 0.03 in reduced
        precision. Of a metric it is the difference itself: 0.005 in float32, 0.03 for RISE and MAS of a curve in
        reduced precision.

    Raises
    ------
    ValueError
        If none of the pairs is stored.
    """
    methods, recorder = labelled(methods), Recorder(model, scorer, steps)
    in_dtype = cache(lambda dtype: replace(recorder.scorer, dtype=dtype))  # the scorers of the stored curves
    pairs = [(label, method, sample) for sample in samples for label, method in methods.items()]
    stored = [pair for pair in pairs if recorder.key(pair[1], pair[2]) in store]
    if not stored:
        raise ValueError(
            f"none of these {len(pairs)} results is stored in {store.path}: run evaluate with the same methods, "
            "samples, model, steps and scorer precision first"
        )
    rows = []
    for label, method, sample in tqdm(random.Random(seed).sample(stored, min(k, len(stored))), desc="audit"):
        record = store.get(recorder.key(method, sample))
        recorder.scorer = in_dtype(record.get("curve_dtype"))
        shared = {"sample": sample.id, "method": label}
        rows += [shared | row for row in _compare(record, _recompute(recorder, method, sample, record))]
    return pd.DataFrame(rows)


def _recompute(recorder: Recorder, method: Method, sample: Sample, record: Record) -> Record:
    """A new record to compare with ``record``, whose curve is computed for the stored scores where they agree."""
    fresh = recorder.attribution(method, sample) | labels(sample)
    if has_curve(record):
        scores = record["scores"] if _agree("scores", record, fresh) else fresh["scores"]
        fresh |= recorder.curve(sample, scores)
    return fresh


def _compare(stored: Record, fresh: Record) -> list[Record]:
    """One row a quantity; the labels must be equal, numbers must agree within the tolerance."""
    rows = []
    for name in RAW:
        a, b = stored.get(name), fresh.get(name)
        if a is not None or b is not None:
            rows.append(_row(name, _mean(a), _mean(b), _gap(name, a, b), _agree(name, stored, fresh)))
    if _agree("scores", stored, fresh):  # rank by the stored scores, as the curve does
        fresh = fresh | {"scores": stored["scores"]}
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
    """0.001 where both sides were computed in float32, 0.03 otherwise."""
    dtype = "curve_dtype" if name in ("log_probs", *ON_CURVE) else "model_dtype"
    return 1e-3 if stored.get(dtype) == fresh.get(dtype) == "float32" else 3e-2


def _metric_tolerance(name: str, stored: Record, fresh: Record) -> float:
    """Of the metrics, absolute: 0.03 for RISE and MAS of a curve in reduced precision, else five times `_tolerance`.

    A dozen stored curves in bfloat16 computed again on the same kind of machine were equal to the last bit; in float32
    their RISE was up to 0.009 away and their MAS up to 0.015. Another CPU's bfloat16 may differ as much.
    """
    tolerance = _tolerance(name, stored, fresh)
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
    largest = np.abs(b).max()
    # A nearly flat curve has no range to speak of: its rounding errors go with the size of the log-probability.
    scale = max(np.ptp(b), 0.01 * largest) if name == "log_probs" else largest
    return float(np.abs(a - b).max() / max(scale, 1e-9))


def _flat(values: Any) -> np.ndarray:
    """Nested lists or arrays as one float64 vector."""
    if len(values) and isinstance(values[0], (list, np.ndarray)):
        return np.concatenate([np.asarray(row, dtype=np.float64) for row in values])
    return np.asarray(values, dtype=np.float64)


def _mean(values: Any) -> float:
    return float(_flat(values).mean()) if values is not None and len(values) else math.nan
