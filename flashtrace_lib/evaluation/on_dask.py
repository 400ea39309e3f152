"""Evaluation by the workers of a Dask cluster: one task a sample, the model loaded once a worker.

    evaluate(methods, samples, model, store=store, executor=2)                      # worker processes of this machine
    evaluate(methods, samples, model, store=store, executor="tcp://10.0.0.1:8786")  # `dask scheduler`, `dask worker`

All methods of a sample go to one worker, since they share the ends of its deletion curve. The caller decides the
scorer's arithmetic, on the very curve that a serial run decides by, so that both give the same keys and records. A
worker writes to the store itself where it can reach the folder: what it has finished survives it, and its samples are
run again elsewhere, from what is stored on. A worker process evaluates one sample at a time, however many threads it
has, because attribution listens to the model's forward passes.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..attribution import Method
from ..fingerprints import code_fingerprint, model_fingerprint
from ..load import recipe_of
from ..metrics.deletion import Scorer
from ..sample import Sample
from ..store import Store
from .executors import check_executor, connected, import_distributed
from .recorder import Recorder
from .results_table import Record, has_curve


@dataclass(frozen=True)
class _Job:
    """What all tasks of one `evaluate_on` share.

    Parameters
    ----------
    probe : Path, optional
        A file in the store's folder; who sees it can reach the store.
    threads : int, optional
        Threads of a worker's arithmetic; left alone where None.
    """

    recipe: Callable[[], Any]
    methods: dict[str, Method]
    steps: int
    scorer: dict[str, Any]
    needs_curve: bool
    model_key: str
    code: str
    store: Path | None
    probe: Path | None
    threads: int | None


class _Carried:
    """Stands in for a store out of reach: its records come with the task, and new ones go back with the result."""

    def __init__(self, records: dict[str, Record]):
        self.records, self.new = records, {}

    def get(self, key: str) -> Record | None:
        return self.records.get(key)

    def put(self, key: str, record: Record) -> None:
        self.records[key] = self.new[key] = record


# --- the caller


def evaluate_on(
    executor: Any,
    recipe: Callable[[], Any] | None,
    recorder: Recorder,
    store: Store | None,
    methods: Mapping[str, Method],
    samples: Sequence[Sample],
    needs_curve: bool,
    bar: Any,
) -> list[Record]:
    """Records of all pairs, in the order of a serial run; called by `evaluation.evaluate`, which has the parameters.

    Raises
    ------
    ValueError
        If Dask is missing, the executor is none or cannot be reached, the model cannot be made on a worker, or is
        another one there than here.
    """
    check_executor(executor)
    recipe = recipe or recipe_of(recorder.model)
    if recipe is None:
        raise ValueError(
            "the workers do not know how to make this model: load it with load_model, or pass recipe=, a callable "
            "that makes it, for example functools.partial(load_model, 'Qwen/Qwen3-8B', dtype='bfloat16')"
        )
    results: dict[int, list[Record]] = {}
    todo: dict[int, dict[str, Record]] = {}  # sample -> what the store holds of it
    for index, sample in enumerate(samples):
        known = _known(recorder, store, methods, sample)
        complete = len(known) == len(methods) and all(has_curve(r) or not needs_curve for r in known.values())
        if complete or (needs_curve and not recorder.scorer.settled()):
            results[index] = [recorder.resume(store, *pair, sample, needs_curve) for pair in methods.items()]
            bar.update(len(methods))
        else:
            todo[index] = known
    if todo:
        with ExitStack() as stack:
            client, threads = stack.enter_context(connected(executor, len(todo)))
            probe = stack.enter_context(_probe(store)) if store is not None else None
            path = None if store is None else store.path.resolve()
            job = _Job(
                recipe, dict(methods), recorder.steps, recorder.scorer.settings(), needs_curve, recorder.model_key,
                code_fingerprint(), path, probe, threads,
            )  # fmt: skip
            for index, records in _run(client, job, samples, todo, store):
                results[index] = records
                bar.update(len(methods))
    return [record for index in range(len(samples)) for record in results[index]]


def _known(recorder: Recorder, store: Store | None, methods: Mapping[str, Method], sample: Sample) -> dict[str, Record]:
    """Stored records of one sample by key."""
    if store is None:
        return {}
    found = {key: store.get(key) for key in (recorder.key(method, sample) for method in methods.values())}
    return {key: record for key, record in found.items() if record is not None}


def _run(
    client, job: _Job, samples: Sequence[Sample], todo: dict[int, dict[str, Record]], store: Store | None
) -> Iterator[tuple[int, list[Record]]]:
    """Submit the samples ``todo``; yield index and records of each as it is done."""
    distributed = import_distributed()
    payload, name = distributed.protocol.pickle.dumps(job), uuid.uuid4().hex  # pickled once, not for every task
    futures = {
        client.submit(_evaluate_sample, name, payload, samples[index], known, pure=False): index
        for index, known in todo.items()
    }
    try:
        for future in distributed.as_completed(list(futures), loop=client.loop):
            index = futures[future]
            try:
                records, new = future.result()
            except distributed.scheduler.KilledWorker as error:
                error.add_note(f"while evaluating sample {samples[index].id}: have the workers memory enough for it?")
                raise
            for key, record in new.items():  # of a worker that cannot reach the store
                store.put(key, record)
            del futures[future]
            yield index, records
    finally:
        if futures:  # an error or an interrupt: what has not begun need not run
            client.cancel(list(futures))


@contextmanager
def _probe(store: Store) -> Iterator[Path]:
    """Leave a file where only who can reach the store will see it."""
    store.parts.mkdir(parents=True, exist_ok=True)
    path = store.parts.resolve() / f".{uuid.uuid4().hex}.tmp.probe"  # compaction sweeps such names up, should we die
    path.touch()
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


# --- a worker

_LOCK = threading.Lock()
_HELD: dict[str, tuple] = {}  # of this process: "job" -> (its name, job, recorder, store), "model" -> (its hash, model)


def _evaluate_sample(
    name: str, payload: bytes, sample: Sample, known: dict[str, Record]
) -> tuple[list[Record], dict[str, Record]]:
    """Records of one sample, and those of them by key that the caller has to store."""
    with _LOCK:
        job, recorder, reached = _prepared(name, payload)
        carried = _Carried(known) if job.store is not None and reached is None else None
        store = reached if carried is None else carried
        records = [recorder.resume(store, *pair, sample, job.needs_curve) for pair in job.methods.items()]
        return records, {} if carried is None else carried.new


def _prepared(name: str, payload: bytes) -> tuple[_Job, Recorder, Store | None]:
    """Job, recorder and store (None where it is out of reach), made by the first task of a job on this process."""
    if _HELD.get("job", (None,))[0] != name:
        from distributed.protocol import pickle

        job: _Job = pickle.loads(payload)
        if job.threads is not None:
            torch.set_num_threads(job.threads)
        if code_fingerprint() != job.code:
            raise ValueError("this worker runs other code of flashtrace_lib than the caller: restart it from the same")
        model = _model(job)
        recorder = Recorder(model, Scorer.from_settings(model, job.scorer), job.steps)
        _HELD["job"] = (name, job, recorder, Store(job.store) if job.probe is not None and job.probe.exists() else None)
    return _HELD["job"][1:]


def _model(job: _Job) -> torch.nn.Module:
    """The model of ``job``, kept from an earlier job where that had the same; ValueError where it is another."""
    from distributed.protocol import pickle

    digest = hashlib.sha256(pickle.dumps((job.recipe, job.model_key))).hexdigest()
    if _HELD.get("model", (None,))[0] != digest:
        _HELD.clear()  # one model at a time fits a device
        made = job.recipe()
        _HELD["model"] = (digest, made[0] if isinstance(made, tuple) else made)
    model = _HELD["model"][1]
    seen = model_fingerprint(model)
    if seen != job.model_key:
        _HELD.clear()
        raise ValueError(
            f"the worker's model ({seen}) is another one than the caller's ({job.model_key}): pass a recipe= that "
            "makes the same weights in the same dtype, adapters and changes in place included"
        )
    return model
