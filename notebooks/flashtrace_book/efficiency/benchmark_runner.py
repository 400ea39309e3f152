"""Fill a store with measurements of time and memory, worker by worker, so that nothing is measured twice."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from flashtrace_lib.bench.measured_code import code_of
from flashtrace_lib.fingerprints import fingerprint
from flashtrace_lib.methods import METHODS
from flashtrace_lib.store import Store

from ..manifest import cpu_name
from ..profiles import EfficiencyProfile, Profile
from .supervised_process import ERROR, OK, OUT_OF_MEMORY, TIME_OUT, Ended, Limits

BEYOND = "beyond"  # not tried: a smaller size was at a limit
AT_LIMIT = (OUT_OF_MEMORY, TIME_OUT)
ENOUGH = 0.25  # share of the time limit from which one run of a size is enough

Size = tuple[int, int]  # |I|, |T| + |O|
Supervise = Callable[[list[str], Callable[[dict], None], Limits], Ended]


@dataclass(frozen=True)
class Contestant:
    """A method with options, under the label of the figures; ``name`` is its key in ``METHODS``."""

    label: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Conditions:
    """What beside the method and the size decides a measurement."""

    model: str
    dtype: str
    device_map: str | None
    hardware: str

    @property
    def device(self) -> str:
        """``"cpu"`` or ``"cuda"``."""
        return "cpu" if self.device_map in (None, "cpu") else "cuda"


def conditions(profile: Profile) -> Conditions:
    """Model, arithmetic and machine of a profile's measurements."""
    device = Conditions("", "", profile.device_map, "").device
    return Conditions(profile.efficiency.model, profile.dtype, profile.device_map, hardware_name(device))


def hardware_name(device: str) -> str:
    """What a device is called: the GPU, or the processor with the number of threads used."""
    if device == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name(0)
    return f"{cpu_name()}, {torch.get_num_threads()} threads"


class Sweeper:
    """Fills a store with the records of some chains of sizes, under one set of conditions.

    Parameters
    ----------
    store : Store
        One record a method, size, model, dtype and machine.
    where : Conditions
    settings : EfficiencyProfile
        Limits and runs.
    sizes : dict of str to list of (int, int)
        Chains by name, each ascending: what lies behind a size at a limit is not tried.
    run : callable
        Runs a worker, as `supervised_process.supervise` does.
    """

    def __init__(
        self, store: Store, where: Conditions, settings: EfficiencyProfile, sizes: dict[str, list[Size]], run: Supervise
    ):
        self.store, self.where, self.settings, self.sizes, self.run = store, where, settings, sizes, run
        records = store.records().to_dict("records")
        # What another machine has measured stands until it is measured afresh; our own goes first.
        records.sort(key=lambda record: record["hardware"] == where.hardware)
        self.known = {record["identity"]: record for record in records}

    def identity(self, method: Contestant, size: Size) -> str:
        """What is measured, whatever the machine's name.

        Not its code: a sweep takes half an hour; `sweep.of_earlier_code` finds what a change of code leaves.
        """
        where = self.where
        return fingerprint([method.name, method.options, size, where.model, where.dtype, where.device])

    def fill(self, method: Contestant) -> None:
        """Measure the sizes that are not settled; a worker that dies is followed by one for what remains."""
        tried: set[Size] = set()
        while True:
            for sizes in self.sizes.values():
                self._close(method, sizes)
            every = dict.fromkeys(size for sizes in self.sizes.values() for size in sizes)
            todo = [size for size in every if size not in tried and not self._settled(method, size)]
            if not todo:
                return
            tried |= self._work(method, todo)

    def _close(self, method: Contestant, sizes: list[Size]) -> None:
        """Record what lies behind a size at a limit as beyond it."""
        at_limit = [s for s in sizes if self._settled(method, s) and self._record(method, s)["outcome"] in AT_LIMIT]
        behind = sizes[sizes.index(at_limit[0]) + 1 :] if at_limit else []
        for size in behind:
            if not self._settled(method, size):
                detail = f"{at_limit[0][0]}+{at_limit[0][1]} is at a limit"
                self._put(method, size, {"outcome": BEYOND, "detail": detail})

    def _work(self, method: Contestant, todo: list[Size]) -> set[Size]:
        """One worker on the sizes ``todo``; the sizes it took up."""
        taken: list[Size] = []
        done: set[Size] = set()

        def hear(message: dict[str, Any]) -> None:
            if "start" in message:
                taken.append(tuple(message["start"]))
            elif "done" in message:
                size = tuple(message.pop("done"))
                self._put(method, size, {"outcome": OK, "detail": "", **message})
                done.add(size)

        limits = Limits(self.settings.time_limit, self.settings.memory_limit)
        ended = self.run(worker_command(self.where, method, todo, self.settings), hear, limits)
        if not taken:  # it never got ready: no size is to blame
            for size in todo:
                self._put(method, size, {"outcome": ERROR, "detail": ended.detail or "the worker measured nothing"})
            return set(todo)
        if taken[-1] not in done:
            outcome = ERROR if ended.outcome == OK else ended.outcome
            self._put(method, taken[-1], {"outcome": outcome, "detail": ended.detail})
        return set(taken)

    def _settled(self, method: Contestant, size: Size) -> bool:
        """Whether a record stands: a measurement does, a limit only against limits no wider, an error never."""
        record = self._record(method, size)
        if record is None or record["outcome"] in (OK, ERROR):
            return record is not None and record["outcome"] == OK
        limits = self.settings
        return record["time_limit"] >= limits.time_limit and record["memory_limit"] >= limits.memory_limit

    def use(self, method: Contestant, size: Size) -> dict[str, Any]:
        """The record of a size that is settled or was tried, for a table."""
        record = self.known[self.identity(method, size)]
        self.store.note_use(self._key(record))
        return record

    def _key(self, record: dict[str, Any]) -> str:
        return f"{record['identity']}-{fingerprint(record['hardware'])[:8]}"

    def _record(self, method: Contestant, size: Size) -> dict[str, Any] | None:
        return self.known.get(self.identity(method, size))

    def _put(self, method: Contestant, size: Size, result: dict[str, Any]) -> None:
        identity = self.identity(method, size)
        record = {
            "identity": identity,
            "method": method.label,
            "options": json.dumps(method.options),
            "n_input": size[0],
            "n_generated": size[1],
            "axes": json.dumps([axis for axis, sizes in self.sizes.items() if size in sizes]),
            "model": self.where.model,
            "dtype": self.where.dtype,
            "hardware": self.where.hardware,
            "code": measured_code(method.name),
            "time_limit": float(self.settings.time_limit),
            "memory_limit": float(self.settings.memory_limit),
            **result,
        }
        self.store.put(self._key(record), record)
        self.known[identity] = record


def measured_code(name: str) -> str:
    """Hash of the code of a method that is timed (`measured_code.code_of`); empty for a tool of another package."""
    return code_of(METHODS[name]) if name in METHODS else ""


def worker_command(where: Conditions, method: Contestant, sizes: list[Size], settings: EfficiencyProfile) -> list[str]:
    """Command of the process that measures ``method`` at ``sizes``, in that order."""
    job = {
        "model": where.model,
        "dtype": where.dtype,
        "device_map": where.device_map,
        "name": method.name,
        "options": method.options,
        "sizes": sizes,
        "runs": settings.runs,
        "enough": ENOUGH * settings.time_limit,
    }
    return [sys.executable, "-m", "flashtrace_book.efficiency.worker", json.dumps(job)]
