"""Methods x samples -> one tidy table, resumed from the store, and the audit that recomputes stored rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from tqdm import tqdm

from ..attribution import Method
from ..methods.by_name import chosen_method
from ..metrics.deletion import Scorer
from ..sample import Sample
from ..store import Store
from .ablations import ON_MASKS, ON_TOP, Memory, Needs
from .auditing import audit, audit_masks
from .job import Job, choose_scorer
from .recorder import Recorder, labelled
from .results_table import DEFAULT_METRICS, METRICS, ON_CURVE, check_metrics, frame_from_records, summarise
from .runners import runner_of

__all__ = ["METRICS", "audit", "audit_masks", "evaluate", "frame_from_records", "summarise"]


def evaluate(
    methods: Iterable[Method | str] | Mapping[str, Method],
    samples: Iterable[Sample],
    model,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    steps: int = 20,
    masks: int = 64,
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
    methods : list of Method or str, or dict label -> Method
        Labels name the rows; a list takes each method's ``name``. A str is a name of `methods.METHODS`.
    samples : iterable of Sample
        Task, cell and id come from their metadata.
    model : transformers.PreTrainedModel
    store : Store or path, optional
        Where to resume from and write to.
    metrics : sequence of str
        Keys of ``METRICS``. The deletion curve and the sentence ablations are computed only where one of them needs
        them; they are added later to a record that lacks them, without attributing again.
    steps : int
        Groups of the deletion curve.
    masks : int
        Random masks over the sentences of a sample, for LDS (``lds``, ``lds_log_prob``, ``lds_output``): so many
        forward passes, and two, serve all methods, and are stored once in ``<name>_masks`` beside the store
        ``<name>``. Top-k drop and sufficiency (``drop1`` to ``keep5``) take six passes a method, and two a sample.
    scorer : Scorer, optional
        Default: ``Scorer(model, precision="auto")``. With this precision, and no dtype, the arithmetic is chosen here,
        before the first missing curve or ablation and for all of them: that of the store's curves of this model, else
        by `metrics.choose_dtype`. Each record notes it (``curve_dtype``, ``top_dtype``, ``masks_dtype`` and a note).
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
    if store is not None and not isinstance(store, Store):
        store = Store(store)
    if not isinstance(methods, Mapping):
        methods = [chosen_method(method) for method in methods]
    run = runner_of(executor, recipe, model)
    if masks < 2:
        raise ValueError(f"masks is the number of random masks over a sample's sentences, at least 2, got {masks}")
    asked = [any(name in group for name in metrics) for group in (ON_CURVE, ON_TOP, ON_MASKS)]
    needs = Needs(curve=asked[0], top=asked[1], n_masks=masks if asked[2] else 0)
    job = Job(Recorder(model, scorer, steps), labelled(methods), Memory() if store is None else store, needs)
    samples = list(samples)
    job.recorder.scorer = choose_scorer(job, samples)
    total = len(samples) * len(job.methods)
    with tqdm(total=total, desc="evaluate", **({} if progress else {"disable": True})) as bar:
        records = [record for of_sample in run(job, samples, bar) for record in of_sample]
    if isinstance(job.masks, Store):
        job.masks.compact()
    return frame_from_records(records, metrics)
