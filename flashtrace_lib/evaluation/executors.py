"""Who runs the tasks of `cluster`: a given client, the scheduler at an address, or worker processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from ..bench.memory import KEEP_PAGES

CONNECT_SECONDS = 60  # for a scheduler to answer and its first worker to register


def import_distributed():
    """The module `distributed`; ValueError where it is not installed."""
    try:
        import distributed
    except ImportError as error:
        raise ValueError("executor needs Dask: `pip install -e .[cluster]`, or leave executor out") from error
    return distributed


def check_executor(executor: Any) -> None:
    """Raise ValueError unless Dask is there and `connected` can take ``executor``."""
    distributed = import_distributed()
    whole = isinstance(executor, int) and not isinstance(executor, bool) and executor > 0
    client = isinstance(executor, distributed.Client) and not executor.asynchronous
    if not (whole or client or isinstance(executor, str)):
        raise ValueError(
            "executor is a number of worker processes, the address of a scheduler or a synchronous "
            f"distributed.Client, got {executor!r}"
        )


@contextmanager
def connected(executor: Any, n_tasks: int) -> Iterator[tuple[Any, int | None]]:
    """A client with at least one worker, and the threads of each where these are ours; closed unless it was given."""
    distributed = import_distributed()
    with ExitStack() as stack:
        if isinstance(executor, int):
            n_workers = min(executor, n_tasks)
            cluster = stack.enter_context(_local_workers(n_workers))
            client = stack.enter_context(distributed.Client(cluster, set_as_default=False))
            yield client, max(1, torch.get_num_threads() // n_workers)
            return
        try:
            if isinstance(executor, str):
                connecting = distributed.Client(executor, timeout=CONNECT_SECONDS, set_as_default=False)
                executor = stack.enter_context(connecting)
            executor.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except (OSError, TimeoutError, ValueError) as error:
            raise ValueError(
                f"no scheduler with a worker answers at {executor}: start `dask scheduler` and `dask worker ADDRESS`, "
                "or give a number of local processes"
            ) from error
        yield executor, None


@contextmanager
def _local_workers(n_workers: int) -> Iterator[Any]:
    """Worker processes of this machine, restarted should they die, each with its share of the GPUs."""
    import dask

    distributed = import_distributed()
    # the default port of the dashboard may be somebody else's
    quiet = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    options = {**quiet, "nthreads": 1, "memory_limit": 0}
    shares = gpu_shares(n_workers)
    workers = {i: {"cls": distributed.Nanny, "options": {**options, "env": shares[i]}} for i in range(n_workers)}
    scheduler = {"cls": distributed.Scheduler, "options": quiet}
    before = dict(os.environ)
    try:
        with (
            dask.config.set({"distributed.nanny.pre-spawn-environ": KEEP_PAGES}),
            distributed.SpecCluster(workers=workers, scheduler=scheduler) as cluster,
        ):
            yield cluster
    finally:
        for name in (*KEEP_PAGES, "PYTHONHASHSEED", "__DASK_PARENT_PID"):  # set here for the workers to inherit
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
