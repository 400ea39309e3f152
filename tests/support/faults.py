"""Faults at a chosen moment: a forked process that is killed, or whose disk refuses, at its n-th change of a file."""

import errno
import mmap
import os
import resource
import signal
import sys
import threading
import traceback
from dataclasses import dataclass

import torch

SECONDS = 600  # after which a process that hangs is killed
_MOVES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir")


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code (negative: the signal), what it printed, its changes of files."""

    code: int
    text: str
    changes: int


def attempt(work, folder, *, kill_at=None, refuse=None, after=0, largest=None):
    """Run ``work()`` in a forked process, and let a fault happen to it.

    Parameters
    ----------
    work : callable
        Returns an exit code, or anything else for 0.
    folder : Path
        Only changes of what lies in it count: files opened for writing, renamed, removed, folders made.
    kill_at : int, optional
        Kill it (SIGKILL) just before its change of this number, counted from 1.
    refuse : int, optional
        An errno, such as that of a full disk, for every change but a removal after the first ``after``.
    largest : int, optional
        Bytes that a file may have (RLIMIT_FSIZE): the kernel itself refuses the rest.
    """
    counted = mmap.mmap(-1, 8)
    read, write = os.pipe()
    sys.stdout.flush(), sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(read)
        code = 1
        try:
            signal.alarm(SECONDS)
            sys.stdout = sys.stderr = os.fdopen(write, "w", buffering=1)
            torch.set_num_threads(1)  # a pool of threads does not survive a fork
            if largest is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
            sys.addaudithook(_hook(str(folder), counted, kill_at, refuse, after))
            returned = work()
            code = returned if type(returned) is int else 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, errors="replace") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return Ended(os.waitstatus_to_exitcode(status), text, int.from_bytes(counted[:8], "little"))


def _hook(folder, counted, kill_at, refuse, after):
    """An audit hook that counts changes in the folder, and makes one of them fail."""
    lock = threading.RLock()

    def hook(event, arguments):
        if event == "open":
            path, mode, flags = arguments
            changes = bool(set(mode or "") & set("wax+")) or bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        elif event in _MOVES:
            path, changes = arguments[0], True
        else:
            return
        if not changes or not isinstance(path, str | os.PathLike) or not os.fspath(path).startswith(folder):
            return
        with lock:
            number = int.from_bytes(counted[:8], "little") + 1
            counted[:8] = number.to_bytes(8, "little")
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if refuse is not None and number > after and event not in ("os.remove", "os.rmdir"):
            raise OSError(refuse, os.strerror(refuse), os.fspath(path))

    return hook


def moments(changes, at_most=6):
    """Numbers of changes to be killed at: the first, the last, and some between."""
    count = min(changes, at_most)
    return sorted({1 + round(i * (changes - 1) / max(1, count - 1)) for i in range(count)})


def content(folder):
    """Bytes of each file of a folder by its path; hidden files, such as what a killed process leaves, are left out."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    named = {path.relative_to(folder): path for path in paths}
    return {str(name): path.read_bytes() for name, path in named.items() if not any(p[0] == "." for p in name.parts)}


FULL, READ_ONLY = errno.ENOSPC, errno.EROFS
