"""Run the unit tests of a generated solution where it can do no harm.

A process of its own, in an empty folder that is deleted afterwards, with limits on time, memory, files and output that
the kernel holds; without a network where the kernel allows that, and as *nobody* where the caller is root and nobody
can read this Python. Inside, an audit hook refuses sockets, processes, foreign code and writing outside the folder
(`_sandboxed`). That stops what a language model writes; it is no prison for machine code. Linux only.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_NOBODY = 65534
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_RUNNER = Path(__file__).with_name("_sandboxed.py")


@dataclass(frozen=True)
class Limits:
    """What a solution may use.

    Parameters
    ----------
    seconds : float
        Wall-clock and processor time. Three times what the slowest right solution of an exercise was seen to take on a
        slow core: a verdict should not depend on the machine.
    memory : int
        Address space, bytes.
    file_size : int
        Largest file, its output included, bytes.
    """

    seconds: float = 30.0
    memory: int = 2**30
    file_size: int = 2**20


@dataclass(frozen=True)
class Verdict:
    """What the tests said.

    Parameters
    ----------
    passed : bool
        Whether tests ran and all succeeded.
    outcome : {"passed", "failed", "timeout", "killed", "no tests"}
        ``"killed"``: the process ended without a report (memory, a signal, an exit of its own).
    tests : int
        Tests run.
    detail : str
        End of the output.
    """

    passed: bool
    outcome: str
    tests: int = 0
    detail: str = ""


def run_tests(files: Mapping[str, str], tests: str, limits: Limits = Limits()) -> Verdict:
    """Run the module ``tests`` among ``files``.

    Parameters
    ----------
    files : mapping of str to str
        Text by relative path: the solution, its tests, whatever they import.
    tests : str
        Module of the unit tests, for example ``"hello_world_test"``.
    limits : Limits

    Returns
    -------
    Verdict

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
        return _run(folder, tests, limits)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise ValueError(f"file {name!r} would lie outside the folder of the exercise")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if _can_be_nobody():
        for path in (folder, *folder.rglob("*")):
            os.chown(path, _NOBODY, _NOBODY)


def _run(folder: Path, tests: str, limits: Limits) -> Verdict:
    nonce = secrets.token_hex(16)  # a report without it is the solution's own
    with tempfile.TemporaryFile() as output:  # a file, not a pipe: its size is limited, and nothing blocks
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", str(_RUNNER)],
            stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, cwd=folder, env={"PATH": "/usr/bin:/bin"},
            start_new_session=True, preexec_fn=lambda: _confine(limits, _can_be_nobody()),
        )  # fmt: skip
        try:
            process.communicate(json.dumps([str(folder), tests, nonce]).encode(), timeout=limits.seconds)
            expired = process.returncode == -signal.SIGXCPU
        except subprocess.TimeoutExpired:
            expired = True
        finally:
            _kill_group(process)
        output.seek(0)
        said = output.read().decode("utf-8", "replace")
    report = next((line for line in reversed(said.splitlines()) if line.startswith(nonce)), None)
    detail = "\n".join(line for line in said.splitlines() if nonce not in line)[-2000:]
    if expired or report is None:
        return Verdict(False, "timeout" if expired else "killed", detail=detail)
    count, good = json.loads(report.removeprefix(nonce))
    if not count:
        return Verdict(False, "no tests", detail=detail)
    return Verdict(good, "passed" if good else "failed", count, detail)


def _kill_group(process: subprocess.Popen) -> None:
    """End the process and whatever it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


@cache
def _can_be_nobody() -> bool:
    """Whether we may change to another user and that user can run this Python."""
    if os.geteuid() != 0:
        return False
    needed = {Path(place).resolve() for place in (sys.executable, sys.prefix, sys.base_prefix, os.__file__, _RUNNER)}
    needed |= {parent for place in needed for parent in place.parents} | {Path(sys.executable).parent}
    return all(place.stat().st_mode & (stat.S_IXOTH if place.is_dir() else stat.S_IROTH) for place in needed)


def _confine(limits: Limits, as_nobody: bool) -> None:
    """In the child, before it becomes the runner: no network where the kernel allows that, limits, no privileges."""
    ctypes.CDLL(None).unshare(_CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWUSER | _CLONE_NEWNET)
    seconds = max(1, round(limits.seconds))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))  # SIGXCPU, then, where that is ignored, SIGKILL
    for what, value in (
        (resource.RLIMIT_AS, limits.memory),
        (resource.RLIMIT_FSIZE, limits.file_size),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (value, value))
    if as_nobody:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
