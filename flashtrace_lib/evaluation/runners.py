"""Who runs the tasks of an evaluation: this process, the workers of a Dask cluster, or a callable of the caller's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tqdm import tqdm

from ..sample import Sample
from .job import Job, Runner
from .results_table import Record


def in_this_process(job: Job, samples: Sequence[Sample], bar: tqdm) -> list[list[Record]]:
    """Run one task after the other."""
    return [job.run(sample, bar) for sample in samples]


def runner_of(executor: Any, recipe: Callable[[], Any] | None, model) -> Runner:
    """Runner for the ``executor`` and ``recipe`` of `evaluate`; ValueError where they give none."""
    if executor is None:
        return in_this_process
    if callable(executor):
        return executor
    try:
        from .on_dask import dask_runner  # here, since Dask is an optional part
    except ImportError as error:
        raise ValueError("executor needs Dask: `pip install -e .[cluster]`, or leave executor out") from error
    return dask_runner(executor, recipe, model)
