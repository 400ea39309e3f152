"""Run a worker process under a time limit and a memory limit, and report how it ended.

The worker prints one JSON object a line: the first when it is ready, then one after each step of its work. The time
limit holds for one step. The memory limit holds for the growth since the worker was ready. So neither limit depends on
how long a model takes to load, or how large it is.
"""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

import psutil

from flashtrace_lib.bench.memory import plain_environment

from .. import paths

OK, OUT_OF_MEMORY, TIME_OUT, ERROR = "ok", "out of memory", "time-out", "error"
_POLL_SECONDS = 0.02  # between two checks of the memory: a core fills about a tenth of a GiB in it
_MEMORY_ERRORS = ("out of memory", "can't allocate memory", "cannot allocate memory", "memoryerror", "bad_alloc")
_SIGKILL = -9  # exit code of a process that the kernel killed, as it does where the machine runs out of memory


@dataclass(frozen=True)
class Limits:
    """Time and memory that a worker may take.

    Parameters
    ----------
    seconds : float
        Longest step, s.
    gib : float
        Largest growth since the worker was ready, GiB of resident memory. Memory of a GPU is not limited here: the
        GPU has its own limit.
    start_seconds : float
        Longest time until the worker is ready, s.
    """

    seconds: float
    gib: float
    start_seconds: float = 600.0


@dataclass(frozen=True)
class Ended:
    """How a worker ended: ``"ok"``, ``"out of memory"``, ``"time-out"`` or ``"error"``, and the reason in words."""

    outcome: str
    detail: str = ""


def supervise(command: Sequence[str], on_message: Callable[[dict[str, Any]], None], limits: Limits) -> Ended:
    """Run ``command`` to its end, or kill it when it exceeds a limit.

    Parameters
    ----------
    command : sequence of str
        A program that prints JSON objects, one a line; the first means that it is ready. Other lines are ignored. It
        imports the packages of this checkout, installed or not.
    on_message : callable
        Called with each object as soon as it is printed.
    limits : Limits

    Returns
    -------
    Ended
    """
    environment = plain_environment() | {"PYTHONPATH": paths.python_path()}
    with tempfile.TemporaryFile("w+") as errors:  # a file, because a full pipe would block the worker
        worker = subprocess.Popen(list(command), stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        lines: queue.Queue[str | None] = queue.Queue()
        reader = threading.Thread(target=_read_lines, args=(worker.stdout, lines), daemon=True)
        reader.start()
        try:
            exceeded = _watch(worker, lines, on_message, limits)
        finally:  # also where `on_message` raises: no worker outlives this call
            worker.kill()  # does nothing to a process that has ended
            worker.wait()
            reader.join()
            worker.stdout.close()
        errors.seek(0)
        return exceeded or _ended(worker.returncode, errors.read())


def _read_lines(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    """Put every line into the queue, and None at the end."""
    for line in stream:
        lines.put(line)
    lines.put(None)


def _watch(
    worker: subprocess.Popen, lines: queue.Queue[str | None], on_message: Callable, limits: Limits
) -> Ended | None:
    """Pass messages on until the worker closes its output (None) or exceeds a limit."""
    step_start, ready_bytes = time.monotonic(), None
    while True:
        try:
            line = lines.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            line = ""
        if line is None:
            worker.wait()
            return None
        message = _json_object(line)
        if message is not None:
            ready_bytes = _resident_bytes(worker) if ready_bytes is None else ready_bytes
            on_message(message)
            step_start = time.monotonic()
        elapsed = time.monotonic() - step_start
        if ready_bytes is None:
            if elapsed > limits.start_seconds:
                return Ended(ERROR, f"over {limits.start_seconds:g} s to start")
        elif elapsed > limits.seconds:
            return Ended(TIME_OUT, f"over {limits.seconds:g} s a run")
        elif _resident_bytes(worker) - ready_bytes > limits.gib * 2**30:
            return Ended(OUT_OF_MEMORY, f"over {limits.gib:g} GiB more than the loaded model")


def _json_object(line: str) -> dict[str, Any] | None:
    """The JSON object of a line; None for any other text."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def _resident_bytes(worker: subprocess.Popen) -> int:
    """Resident memory; 0 for a process that has ended."""
    try:
        return psutil.Process(worker.pid).memory_info().rss
    except psutil.Error:
        return 0


def _ended(exit_code: int, errors: str) -> Ended:
    """Outcome of a worker that ended by itself, from its exit code and its standard error."""
    if exit_code == 0:
        return Ended(OK)
    last_line = (errors.strip().splitlines() or [""])[-1]
    if exit_code == _SIGKILL or any(words in errors.lower() for words in _MEMORY_ERRORS):
        return Ended(OUT_OF_MEMORY, last_line or "killed by the system")
    return Ended(ERROR, f"exit {exit_code}: {last_line or 'no message'}")
