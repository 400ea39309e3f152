"""Measure time and memory of methods at the sizes of some grids, each method in a process of its own, and store them.

A benchmark that was interrupted goes on where it stopped: a size that has a valid record is not measured again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from flashtrace_lib.bench.measured_code import code_of
from flashtrace_lib.fingerprints import fingerprint
from flashtrace_lib.methods import METHODS
from flashtrace_lib.store import Store

from ..manifest import cpu_name
from ..profiles import Profile
from .supervised_process import ERROR, OK, OUT_OF_MEMORY, TIME_OUT, Ended, Limits

SKIPPED = "beyond"  # as it is stored: not tried, because a smaller size of its grid reached a limit
AT_LIMIT = (OUT_OF_MEMORY, TIME_OUT)
LONG_RUN = 0.25  # a first run that takes a larger share of the time limit than this is not repeated

Size = tuple[int, int]  # |I|, |T| + |O|
Supervise = Callable[[list[str], Callable[[dict], None], Limits], Ended]


@dataclass(frozen=True)
class BenchmarkedMethod:
    """A method with options.

    Parameters
    ----------
    label : str
        Its name in tables and figures.
    name : str
        Key of ``METHODS`` or of `other_tools.ADAPTERS`.
    options : dict
        Passed to the method.
    """

    label: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)


class BenchmarkRunner:
    """Measures methods at every size of some grids and keeps one record a method, size, model, dtype and machine.

    Parameters
    ----------
    profile : Profile
        Gives model, dtype and device, and in its section ``efficiency`` the limits and the number of runs.
    store : Store
        Earlier records are read from it, new ones written to it.
    size_grids : mapping of str to list of (int, int)
        Sizes by axis, each list ascending: where a size reaches a limit, the larger ones of its grid are skipped.
    supervise : callable
        Runs a worker, as `supervised_process.supervise` does.

    Attributes
    ----------
    records : dict of str to dict
        The record that counts for each identity.
    """

    def __init__(self, profile: Profile, store: Store, size_grids: Mapping[str, list[Size]], supervise: Supervise):
        self.settings, self.store, self.size_grids, self.supervise = profile.efficiency, store, size_grids, supervise
        self.model, self.dtype, self.device_map = profile.efficiency.model, profile.dtype, profile.device_map
        self.device = "cpu" if profile.device_map in (None, "cpu") else "cuda"
        self.hardware = hardware_name(self.device)
        # A record of another machine counts until this machine has one; the last of equal identities wins.
        records = sorted(store.records().to_dict("records"), key=lambda record: record["hardware"] == self.hardware)
        self.records = {record["identity"]: record for record in records}

    def run(self, method: BenchmarkedMethod) -> None:
        """Measure ``method`` at every size that has no valid record.

        A worker stops at the first size that fails. Another one goes on with the sizes that are left, so that each
        size is attempted once.
        """
        attempted: set[Size] = set()
        while True:
            self._skip_after_limits(method)
            missing = [s for s in self._sizes() if s not in attempted and self._valid_record(method, s) is None]
            if not missing:
                return
            attempted |= self._run_worker(method, missing)

    def record(self, method: BenchmarkedMethod, size: Size) -> dict[str, Any]:
        """The record of a size, after `run`."""
        record = self.records[self.identity(method, size)]
        self.store.note_use(_key(record))
        return record

    def identity(self, method: BenchmarkedMethod, size: Size) -> str:
        """Hash of all that a measurement depends on but the machine's name and the code of the method.

        The code is left out because a benchmark takes half an hour: `sweep.of_earlier_code` lists the records that a
        change of the code has made outdated.
        """
        return fingerprint([method.name, method.options, size, self.model, self.dtype, self.device])

    def _sizes(self) -> Iterable[Size]:
        """Sizes of all grids, each once."""
        return dict.fromkeys(size for grid in self.size_grids.values() for size in grid)

    def _skip_after_limits(self, method: BenchmarkedMethod) -> None:
        """Record every size that follows one at a limit on its grid as skipped."""
        for grid in self.size_grids.values():
            at_limit: Size | None = None
            for size in grid:
                record = self._valid_record(method, size)
                if record is None and at_limit is not None:
                    detail = f"{at_limit[0]}+{at_limit[1]} is at a limit"
                    self._put(method, size, {"outcome": SKIPPED, "detail": detail})
                elif record is not None and record["outcome"] in AT_LIMIT and at_limit is None:
                    at_limit = size

    def _valid_record(self, method: BenchmarkedMethod, size: Size) -> dict[str, Any] | None:
        """The record of a size that need not be measured: none of an error, nor of a limit that is wider today."""
        record = self.records.get(self.identity(method, size))
        if record is None or record["outcome"] == OK:
            return record
        limits = self.settings
        as_wide = record["time_limit"] >= limits.time_limit and record["memory_limit"] >= limits.memory_limit
        return record if record["outcome"] != ERROR and as_wide else None

    def _run_worker(self, method: BenchmarkedMethod, sizes: list[Size]) -> set[Size]:
        """Measure sizes in one worker, in this order, and return those that were attempted."""
        started: list[Size] = []
        finished: set[Size] = set()

        def on_message(message: dict[str, Any]) -> None:
            if "start" in message:
                started.append(tuple(message["start"]))
            elif "done" in message:
                size = tuple(message.pop("done"))
                self._put(method, size, {"outcome": OK, "detail": "", **message})
                finished.add(size)

        limits = Limits(self.settings.time_limit, self.settings.memory_limit)
        ended = self.supervise(self._worker_command(method, sizes), on_message, limits)
        if not started:  # the worker failed before it measured: it would fail at every size
            for size in sizes:
                self._put(method, size, {"outcome": ERROR, "detail": ended.detail or "the worker measured nothing"})
            return set(sizes)
        if started[-1] not in finished:
            outcome = ERROR if ended.outcome == OK else ended.outcome
            self._put(method, started[-1], {"outcome": outcome, "detail": ended.detail})
        return set(started)

    def _worker_command(self, method: BenchmarkedMethod, sizes: list[Size]) -> list[str]:
        """Command of the process that measures ``method`` at ``sizes``; `worker.main` reads the job."""
        job = {
            "model": self.model,
            "dtype": self.dtype,
            "device_map": self.device_map,
            "name": method.name,
            "options": method.options,
            "sizes": sizes,
            "runs": self.settings.runs,
            "long_run": LONG_RUN * self.settings.time_limit,
        }
        return [sys.executable, "-m", "flashtrace_book.efficiency.worker", json.dumps(job)]

    def _put(self, method: BenchmarkedMethod, size: Size, result: dict[str, Any]) -> None:
        """Store the result of one size."""
        record = {
            "identity": self.identity(method, size),
            "method": method.label,
            "options": json.dumps(method.options),
            "n_input": size[0],
            "n_generated": size[1],
            "axes": json.dumps([axis for axis, grid in self.size_grids.items() if size in grid]),
            "model": self.model,
            "dtype": self.dtype,
            "hardware": self.hardware,
            "code": method_code(method.name),
            "time_limit": float(self.settings.time_limit),
            "memory_limit": float(self.settings.memory_limit),
            **result,
        }
        self.store.put(_key(record), record)
        self.records[record["identity"]] = record


def _key(record: Mapping[str, Any]) -> str:
    """Key in the store: one record an identity and machine."""
    return f"{record['identity']}-{fingerprint(record['hardware'])[:8]}"


def method_code(name: str) -> str:
    """Hash of the code of a method (`measured_code.code_of`); empty for a tool of another package."""
    return code_of(METHODS[name]) if name in METHODS else ""


def hardware_name(device: str) -> str:
    """Name of a device, ``"cpu"`` or ``"cuda"``: the GPU, or the processor with its instructions and threads in use.

    Virtual machines name processors that differ by a factor of two alike; what vectors they multiply tells them apart.
    """
    if device == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name(0)
    return f"{cpu_name()} ({torch.backends.cpu.get_cpu_capability()}), {torch.get_num_threads()} threads"
