"""Run a worker process under a time and a memory limit, and say how it ended.

The worker prints one JSON object a line: the first when it is ready, then one after each piece of work. A limit on time
holds for a piece, a limit on memory for what the process takes over what it held when it was ready, so that neither
depends on how long a model takes to load or how large it is.
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

OK, OUT_OF_MEMORY, TIME_OUT, ERROR = "ok", "out of memory", "time-out", "error"
_POLL = 0.02  # seconds between two looks at the memory: a core fills about a tenth of a GiB in it
_NO_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "memoryerror", "bad_alloc")
_KILLED = -9  # by the kernel, where the machine itself runs out


@dataclass(frozen=True)
class Limits:
    """What a worker may take.

    Parameters
    ----------
    seconds : float
        Longest piece of work, s.
    gib : float
        Most memory over that of the ready worker, GiB of resident pages. A device's memory is the device's to limit.
    start_seconds : float
        Longest time until the worker is ready, s.
    """

    seconds: float
    gib: float
    start_seconds: float = 600.0


@dataclass(frozen=True)
class Ended:
    """How a worker ended: ``"ok"``, ``"out of memory"``, ``"time-out"`` or ``"error"``, and the words for it."""

    outcome: str
    detail: str = ""


def supervise(command: Sequence[str], on_message: Callable[[dict[str, Any]], None], limits: Limits) -> Ended:
    """Run ``command`` to its end, or kill it when it passes a limit.

    Parameters
    ----------
    command : sequence of str
        A program that prints JSON objects, one a line; the first says that it is ready. Other lines are ignored.
    on_message : callable
        Gets every object as soon as it is printed.
    limits : Limits

    Returns
    -------
    Ended
    """
    with tempfile.TemporaryFile("w+") as errors:  # a file: a full pipe would stop the worker
        worker = subprocess.Popen(
            list(command), stdout=subprocess.PIPE, stderr=errors, text=True, env=plain_environment()
        )
        lines: queue.Queue[str | None] = queue.Queue()
        reader = threading.Thread(target=_read, args=(worker.stdout, lines), daemon=True)
        reader.start()
        try:
            passed = _watch(worker, lines, on_message, limits)
        finally:
            worker.kill()  # does nothing to one that has ended
            worker.wait()
            reader.join()
            worker.stdout.close()
        errors.seek(0)
        return passed or _ended(worker.returncode, errors.read())


def _read(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _watch(
    worker: subprocess.Popen, lines: queue.Queue[str | None], on_message: Callable, limits: Limits
) -> Ended | None:
    """Pass messages on until the worker closes its output (None) or passes a limit."""
    start, ready_rss = time.monotonic(), None
    while True:
        try:
            line = lines.get(timeout=_POLL)
        except queue.Empty:
            line = ""
        if line is None:
            worker.wait()
            return None
        message = _parsed(line)
        if message is not None:
            ready_rss = _rss(worker) if ready_rss is None else ready_rss
            on_message(message)
            start = time.monotonic()
        allowed = limits.start_seconds if ready_rss is None else limits.seconds
        if time.monotonic() - start > allowed:
            what = "to start" if ready_rss is None else "a run"
            return Ended(TIME_OUT if ready_rss is not None else ERROR, f"over {allowed:g} s {what}")
        if ready_rss is not None and _rss(worker) - ready_rss > limits.gib * 2**30:
            return Ended(OUT_OF_MEMORY, f"over {limits.gib:g} GiB more than the loaded model")


def _parsed(line: str) -> dict[str, Any] | None:
    """The JSON object of a line; None for any other text."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def _rss(worker: subprocess.Popen) -> int:
    """Resident memory, bytes; 0 for a process that is gone."""
    try:
        return psutil.Process(worker.pid).memory_info().rss
    except psutil.Error:
        return 0


def _ended(code: int, errors: str) -> Ended:
    """Outcome of a worker that ended by itself, by its exit code and the last of what it complained of."""
    if code == 0:
        return Ended(OK)
    last = (errors.strip().splitlines() or [""])[-1]
    if code == _KILLED or any(words in errors.lower() for words in _NO_MEMORY):
        return Ended(OUT_OF_MEMORY, last or "killed by the system")
    return Ended(ERROR, f"exit {code}: {last or 'no message'}")
