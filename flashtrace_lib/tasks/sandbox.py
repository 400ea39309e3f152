"""Run the unit tests of a generated solution where it can do no harm.

A process of its own, in an empty folder that is deleted afterwards, with limits on time, memory, files and output that
the kernel holds; without a network where the kernel allows that. Inside, an audit hook refuses sockets, processes,
foreign code and writing outside the folder (`_sandboxed`). That stops what a language model writes; it is no prison for
machine code. Linux only.
"""

import ctypes
import json
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_RUNNER = Path(__file__).with_name("_sandboxed.py")


def run_tests(files: Mapping[str, str], tests: str, seconds: float = 30.0) -> bool:
    """Run the module ``tests`` among ``files``: whether there were tests and all succeeded.

    Parameters
    ----------
    files : mapping of str to str
        Text by relative path: the solution, its tests, whatever they import.
    tests : str
        Module of the unit tests, for example ``"hello_world_test"``.
    seconds : float
        Wall-clock and processor time. Three times what the slowest right solution of an exercise was seen to take on a
        slow core: the answer should not depend on the machine.

    Raises
    ------
    ValueError
        If a path leaves the folder, or the test module is not among the files.
    """
    if f"{tests}.py" not in files:
        raise ValueError(f"no file {tests}.py among {', '.join(sorted(files))}")
    folder = Path(tempfile.mkdtemp(prefix="sandbox-"))
    try:
        _write(folder, files)
        return _run(folder, tests, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise ValueError(f"file {name!r} would lie outside the folder of the exercise")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _run(folder: Path, tests: str, seconds: float) -> bool:
    nonce = secrets.token_hex(16)  # a report without it is the solution's own
    with tempfile.TemporaryFile() as output:  # a file, not a pipe: its size is limited, and nothing blocks
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", str(_RUNNER)],
            stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, cwd=folder, env={"PATH": "/usr/bin:/bin"},
            start_new_session=True, preexec_fn=lambda: _confine(seconds),
        )  # fmt: skip
        try:
            process.communicate(json.dumps([str(folder), tests, nonce]).encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        finally:
            _kill_group(process)
        output.seek(0)
        said = output.read().decode("utf-8", "replace")
    report = next((line for line in reversed(said.splitlines()) if line.startswith(nonce)), None)
    n_tests, good = (0, False) if report is None else json.loads(report.removeprefix(nonce))
    return bool(n_tests and good)


def _kill_group(process: subprocess.Popen) -> None:
    """End the process and whatever it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _confine(seconds: float) -> None:
    """In the child, before it becomes the runner: no network where the kernel allows that, and limits."""
    ctypes.CDLL(None).unshare(_CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWUSER | _CLONE_NEWNET)
    limits = {resource.RLIMIT_CPU: max(1, round(seconds)), resource.RLIMIT_AS: 2**30, resource.RLIMIT_FSIZE: 2**20}
    for what, value in {**limits, resource.RLIMIT_NOFILE: 64, resource.RLIMIT_CORE: 0}.items():
        resource.setrlimit(what, (value, value))
