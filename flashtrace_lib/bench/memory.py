"""Peak memory of a piece of work, in bytes, on the CPU (Linux) or a CUDA device."""

import ctypes
import gc
import os
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

# For a process that makes and drops large tensors: glibc keeps their pages, where by default it gives each of them back
# to the kernel, which has to clear them again (6 rows of 400 tokens on one core: 7.2 s, not 8.1 s). Read at its start.
KEEP_PAGES = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**34), "MALLOC_TOP_PAD_": str(2**28)}

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of ru_maxrss


def plain_environment() -> dict[str, str]:
    """The environment of a process whose memory is measured: without `KEEP_PAGES`, which hide what work takes.

    Progress bars are off: nobody sees them, and what the process writes last is to be its error.
    """
    return {name: value for name, value in os.environ.items() if name not in KEEP_PAGES} | {"TQDM_DISABLE": "1"}


@dataclass
class Peak:
    """Result of `peak_memory`.

    Parameters
    ----------
    over_start : int
        Highest use minus the use when the block was entered, bytes. Where the kernel keeps no mark that can be set
        back, the highest since the process began.
    """

    over_start: int = 0


@contextmanager
def peak_memory(device: torch.device | str = "cpu") -> Iterator[Peak]:
    """Measure the peak over the start of the block.

    On the CPU, freed memory is first given back to the system, else memory that an earlier allocation left in the
    allocator would hide what the block takes.
    """
    peak = Peak()
    gc.collect()
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        start = torch.cuda.memory_allocated(device)
        yield peak
        torch.cuda.synchronize(device)
        peak.over_start = torch.cuda.max_memory_allocated(device) - start
        return
    import psutil  # what a GPU does not need

    _trim()
    start, reset = psutil.Process().memory_info().rss, _reset_high_water_mark()
    yield peak
    highest = _high_water_mark() if reset else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
    peak.over_start = highest - start


def _trim() -> None:
    """Give freed heap memory back to the system where the C library can."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):  # not glibc: the measurement is then an upper bound of nothing worse than noise
        pass


def _reset_high_water_mark() -> bool:
    """Set VmHWM back to the present RSS; False where the kernel does not offer it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _high_water_mark() -> int:
    """VmHWM, bytes."""
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) * 1024
