"""Evaluation by the workers of a Dask cluster: one task a sample, the model loaded once a worker.

    evaluate(methods, samples, model, store=store, executor=2)                      # worker processes of this machine
    evaluate(methods, samples, model, store=store, executor="tcp://10.0.0.1:8786")  # `dask scheduler`, `dask worker`

A worker writes to the store itself where it can reach it: what it has finished survives it, and another worker goes on
from there. The caller stores the records of workers that cannot. A worker process evaluates one sample at a time,
however many threads it has, because attribution listens to the model's forward passes.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import dask
import distributed
import torch
from distributed.protocol import pickle
from distributed.scheduler import KilledWorker
from tqdm import tqdm

from ..attribution import Method
from ..bench.memory import KEEP_PAGES
from ..fingerprints import code_fingerprint, model_fingerprint
from ..load import recipe_of
from ..metrics.deletion import Scorer
from ..sample import Sample
from ..store import Store
from .ablations import Memory, Needs, Record, masks_beside
from .job import Job, Runner
from .recorder import Recorder

CONNECT_SECONDS = 60  # for a scheduler to answer and its first worker to register


@dataclass(frozen=True)
class _Work:
    """All that a worker needs to make the caller's `Job` its own."""

    name: str  # another one for each job
    recipe: Callable[[], Any]
    model_key: str
    code: str
    scorer: dict[str, Any]  # arguments of the caller's `Scorer`, without the model
    steps: int
    methods: dict[str, Method]
    store: Path | None
    needs: Needs


# --- the caller


def dask_runner(executor: Any, recipe: Callable[[], Any] | None, model: torch.nn.Module) -> Runner:
    """Runner that sends the tasks to the workers of ``executor``; `evaluation.evaluate` has the parameters.

    Raises
    ------
    ValueError
        If the executor is none of those, or it is not known how to make the model on a worker. The runner raises it if
        the scheduler cannot be reached, or a worker has another model or other code than the caller.
    """
    whole = isinstance(executor, int) and not isinstance(executor, bool) and executor > 0
    client = isinstance(executor, distributed.Client) and not executor.asynchronous
    if not (whole or client or isinstance(executor, str)):
        raise ValueError(
            "executor is a number of worker processes, the address of a scheduler or a synchronous "
            f"distributed.Client, got {executor!r}"
        )
    recipe = recipe or recipe_of(model)
    if recipe is None:
        raise ValueError(
            "the workers do not know how to make this model: load it with load_model, or pass recipe=, a callable "
            "that makes it, for example functools.partial(load_model, 'Qwen/Qwen3-8B', dtype='bfloat16')"
        )
    return partial(_run, executor, recipe)


def _run(executor: Any, recipe: Callable, job: Job, samples: Sequence[Sample], bar: tqdm) -> list[list[Record]]:
    """Records of each sample: the workers run what is unfinished, this process reads the rest from the store."""
    todo = {i: sample for i, sample in enumerate(samples) if job.unfinished(sample)}
    found = {i: job.run(sample, bar) for i, sample in enumerate(samples) if i not in todo}
    if todo:
        work = _work(job, recipe)
        with connected(executor, len(todo)) as client:
            for i, records in _results(client, work, job, todo):
                found[i] = records
                bar.update(len(records))
    return [found[i] for i in range(len(samples))]


def _work(job: Job, recipe: Callable[[], Any]) -> _Work:
    """The job without its model and its open store, which cannot be sent."""
    recorder, path = job.recorder, None
    if isinstance(job.store, Store):
        job.store.parts.mkdir(parents=True, exist_ok=True)  # a worker that sees this folder can reach the store
        path = job.store.path.resolve()
    scorer = {f.name: getattr(recorder.scorer, f.name) for f in fields(Scorer) if f.init and f.name != "model"}
    return _Work(
        uuid.uuid4().hex, recipe, recorder.model_key, code_fingerprint(), scorer, recorder.steps, job.methods, path,
        job.needs,
    )  # fmt: skip


def _results(client, work: _Work, job: Job, samples: dict[int, Sample]) -> Iterator[tuple[int, list[Record]]]:
    """Index and records of each of ``samples``, as they are finished; stored where the worker could not do so."""
    futures = {
        client.submit(_evaluate_sample, work, s, job.stored(s), job.stored_masks(s), pure=False): i
        for i, s in samples.items()
    }
    try:
        for future in distributed.as_completed(list(futures), loop=client.loop):
            index = futures[future]
            try:
                records, masks = future.result()
            except KilledWorker as error:
                error.add_note(f"while evaluating sample {samples[index].id}: have the workers memory enough for it?")
                raise
            for record in records:
                job.keep(record, job.store.get(record["key"]))
            job.keep_masks(masks)
            del futures[future]
            yield index, records
    finally:
        if futures:  # an error or an interrupt: tasks that have not begun need not run
            client.cancel(list(futures))


# --- a worker

_LOCK = threading.Lock()
_HELD: dict[str, Any] = {}  # by this process: a model, how it was made, the work that it is used for, its recorder


def _evaluate_sample(
    work: _Work, sample: Sample, known: dict[str, Record], known_masks: dict[str, Record]
) -> tuple[list[Record], dict[str, Record]]:
    """Records of one sample and of its masks; the known ones are those that the caller's stores hold of it."""
    with _LOCK:
        store = None if work.store is None else Store(work.store)
        reached = store is not None and store.parts.is_dir()
        stores = (store, masks_beside(store)) if reached else (Memory(known), Memory(known_masks))
        job = Job(_recorder(work), work.methods, stores[0], work.needs, stores[1])
        return job.run(sample, tqdm(disable=True)), job.stored_masks(sample)


def _recorder(work: _Work) -> Recorder:
    """The recorder of ``work``, made by its first task on this process; ValueError where code or model are others."""
    if _HELD.get("work") == work.name:
        return _HELD["recorder"]
    if code_fingerprint() != work.code:
        raise ValueError("this worker runs other code of flashtrace_lib than the caller: restart it from the same")
    made_by = pickle.dumps((work.recipe, work.model_key))
    if _HELD.get("made_by") != made_by:
        _HELD.clear()  # one model at a time fits a device
        made = work.recipe()
        _HELD.update(made_by=made_by, model=made[0] if isinstance(made, tuple) else made)
    model = _HELD["model"]
    seen = model_fingerprint(model)
    if seen != work.model_key:
        _HELD.clear()
        raise ValueError(
            f"the worker's model ({seen}) is another one than the caller's ({work.model_key}): pass a recipe= that "
            "makes the same weights in the same dtype, adapters and changes in place included"
        )
    _HELD.update(work=work.name, recorder=Recorder(model, Scorer(model, **work.scorer), work.steps))
    return _HELD["recorder"]


# --- the workers


@contextmanager
def connected(executor: Any, n_tasks: int) -> Iterator[Any]:
    """A client with at least one worker; closed in the end unless it was given."""
    with ExitStack() as stack:
        if isinstance(executor, int):
            executor = stack.enter_context(_local_workers(min(executor, n_tasks)))
        try:
            if not isinstance(executor, distributed.Client):
                client = distributed.Client(executor, timeout=CONNECT_SECONDS, set_as_default=False)
                executor = stack.enter_context(client)
            executor.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except (OSError, TimeoutError, ValueError) as error:
            raise ValueError(
                f"no scheduler with a worker answers at {executor}: start `dask scheduler` and `dask worker ADDRESS`, "
                "or give a number of local processes"
            ) from error
        yield executor


@contextmanager
def _local_workers(n_workers: int) -> Iterator[Any]:
    """Worker processes of this machine, restarted should they die, each with its share of the threads and GPUs."""
    # the default port of the dashboard may be somebody else's
    quiet = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    options = {**quiet, "nthreads": 1, "memory_limit": 0}
    workers = {
        i: {"cls": distributed.Nanny, "options": {**options, "env": share}}
        for i, share in enumerate(gpu_shares(n_workers))
    }
    environment = KEEP_PAGES | {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // n_workers))}
    before = dict(os.environ)
    try:
        with (
            dask.config.set({"distributed.nanny.pre-spawn-environ": environment}),
            distributed.SpecCluster(workers, {"cls": distributed.Scheduler, "options": quiet}) as cluster,
        ):
            yield cluster
    finally:
        for name in (*environment, "PYTHONHASHSEED", "__DASK_PARENT_PID"):  # set here for the workers to inherit
            os.environ.pop(name, None)
            os.environ.update({name: before[name]} if name in before else {})


def gpu_shares(n_workers: int) -> list[dict[str, str]]:
    """Environment of each worker process: an equal part of the visible GPUs, or one of them in turn; empty without."""
    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = named.split(",")[:count] if named else [str(i) for i in range(count)]
    if not gpus:
        return [{}] * n_workers
    each = max(1, len(gpus) // n_workers)
    parts = [gpus[i * each : (i + 1) * each] or [gpus[i % len(gpus)]] for i in range(n_workers)]
    return [{"CUDA_VISIBLE_DEVICES": ",".join(part)} for part in parts]
