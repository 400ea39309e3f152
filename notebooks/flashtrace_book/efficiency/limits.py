"""Limits of time and memory that a process sets itself, and the process that starts it and reads what it printed.

The operating system enforces both, so that nothing has to watch: the alarm of `limit_time` ends the process, and beyond
`limit_memory` an allocation fails. Linux and macOS have both limits.
"""

import json
import resource
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import psutil
import torch

from flashtrace_lib.bench.memory import plain_environment

from .. import paths
from . import ERROR, OK, OUT_OF_MEMORY, TIME_OUT

_MEMORY_ERRORS = ("out of memory", "can't allocate memory", "cannot allocate memory", "memoryerror", "bad_alloc")


def limit_time(seconds: float) -> None:
    """End this process ``seconds`` from now, unless this is called again before; 0 ends no process."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def limit_memory(gib: float) -> None:
    """Let this process grow by ``gib`` GiB of addresses and no further. A GPU has the limit of its own memory."""
    if not torch.cuda.is_available():  # whose driver reserves more addresses than there is memory
        most = psutil.Process().memory_info().vms + int(gib * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def run_worker(command: Sequence[str], on_line: Callable[[dict[str, Any]], None]) -> tuple[str, str]:
    """Run a program that prints JSON objects, one a line, and pass each on as soon as it is printed.

    Parameters
    ----------
    command : sequence of str
        It imports the packages of this checkout, installed or not. Other lines that it prints are ignored.
    on_line : callable

    Returns
    -------
    outcome : str
        How it ended: `OK`, `TIME_OUT`, `OUT_OF_MEMORY` or `ERROR`.
    detail : str
        The reason in words.
    """
    environment = plain_environment() | {"PYTHONPATH": paths.python_path()}
    with tempfile.TemporaryFile("w+") as errors:  # a file, because a full pipe would block the worker
        streams = {"stdout": subprocess.PIPE, "stderr": errors, "text": True, "env": environment}
        with subprocess.Popen(list(command), **streams) as worker:  # waited for, also where `on_line` raises
            for line in worker.stdout:
                if line.startswith("{"):
                    on_line(json.loads(line))
        errors.seek(0)
        return _ended(worker.returncode, errors.read().strip())


def _ended(code: int, errors: str) -> tuple[str, str]:
    """Outcome and reason, from an exit code and what was printed as an error."""
    last = errors.rpartition("\n")[2]
    if code == 0:
        return OK, ""
    if code == -signal.SIGALRM:
        return TIME_OUT, "over the limit of time"
    if code == -signal.SIGKILL or any(words in errors.lower() for words in _MEMORY_ERRORS):
        return OUT_OF_MEMORY, last or "killed by the system"
    return ERROR, f"exit {code}: {last or 'no message'}"
