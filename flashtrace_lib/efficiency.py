"""Time and memory of every method against the length of the input and of the generation (section 5.1, Fig. 4).

Each method is measured in a process of its own, under a limit of time and one of memory (`limits`); what came of it is
stored size by size, so that an interrupted sweep goes on where it stopped. A size at a limit ends its row: larger ones
are recorded as beyond it, untried.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from . import paths
from .experiments import method_options
from .fingerprints import fingerprint
from .limits import ERROR, OK, OUT_OF_MEMORY, TIME_OUT, Ended, Limits, supervise
from .manifest import cpu_name
from .methods import METHODS
from .profiles import EfficiencyProfile, Profile, load_profile
from .store import Store

BEYOND = "beyond"  # not tried: a smaller size was at a limit
AT_LIMIT = (OUT_OF_MEMORY, TIME_OUT)
AXES = ("input", "generation")
ATTENTION = "attention"  # the sizes of Table 9
MODES = ("cached", "recompute", "fused")
ENOUGH = 0.25  # share of the time limit from which one run of a size is enough
VARIANTS = {"ifr_one_by_one": ("ifr", {"batch_size": 1})}  # label -> name of the method, options
COLUMNS = (
    "axis", "method", "n_input", "n_generated", "length", "outcome", "seconds", "forward_s", "ratio", "peak_gib",
    "forward_peak_gib", "n", "forward_passes", "backward_passes", "hop_passes", "runs_s", "forward_runs_s", "detail",
    "time_limit", "memory_limit", "model", "dtype", "hardware",
)  # fmt: skip

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


def contestants(profile: Profile) -> list[Contestant]:
    """The methods of the profile's sweep, with its options; ValueError for one that there is not."""
    found = []
    for label in profile.efficiency.methods:
        name, options = VARIANTS.get(label, (label, {}))
        if name not in METHODS:
            known = ", ".join([*METHODS, *VARIANTS])
            raise ValueError(f"profile {profile.name}: efficiency.methods: no method {label!r}; known are {known}")
        found.append(Contestant(label, name, method_options(profile, name) | options))
    return found


def chains(settings: EfficiencyProfile) -> dict[str, list[Size]]:
    """Sizes of either axis, ascending: the other length is held."""
    return {
        "input": [(n, settings.fixed_generation) for n in settings.inputs],
        "generation": [(settings.fixed_input, n) for n in settings.generations],
    }


def sweep(profile: Profile, store: Store, run: Supervise = supervise) -> pd.DataFrame:
    """Measure every method along both axes, as far as that is not stored.

    Parameters
    ----------
    profile : Profile
        Its section ``efficiency`` says what.
    store : Store
        Where to resume from and write to.
    run : callable
        Runs a worker, as `limits.supervise` does.

    Returns
    -------
    pandas.DataFrame
        ``COLUMNS``, one row an axis, method and size; ``length`` is the one that varies. Where ``outcome`` is not
        ``"ok"`` there are no times.
    """
    return _measure(profile, store, contestants(profile), chains(profile.efficiency), run)


def sweep_attention(profile: Profile, store: Store, run: Supervise = supervise) -> pd.DataFrame:
    """Measure FlashTrace with each way to the sums of attention (appendix L, Table 9); as `sweep`."""
    options = method_options(profile, "flashtrace")
    modes = [Contestant(f"flashtrace_{mode}", "flashtrace", {**options, "attention": mode}) for mode in MODES]
    settings = profile.efficiency
    sizes = {ATTENTION: [(n, settings.fixed_generation) for n in settings.attention_inputs]}
    return _measure(profile, store, modes, sizes, run)


def load_sweep(store: Store) -> pd.DataFrame:
    """A sweep measured elsewhere, as `sweep` gives it, rows of `sweep_attention` included; empty where none is stored.

    Parameters
    ----------
    store : Store
        ``Store(folder / "efficiency")``.
    """
    rows = [
        _row(record, axis) for record in store.records().to_dict("records") for axis in json.loads(record["axes"])
    ]
    return _framed(rows).sort_values(["hardware", "axis", "method", "length"], ignore_index=True)


def _measure(
    profile: Profile, store: Store, methods: Iterable[Contestant], sizes: dict[str, list[Size]], run: Supervise
) -> pd.DataFrame:
    """Measure what is missing and return the rows of all."""
    sweeper = _Sweeper(store, conditions(profile), profile.efficiency, sizes, run)
    rows = []
    for method in tqdm(list(methods), desc="efficiency"):
        sweeper.fill(method)
        rows += [_row(sweeper.known[sweeper.identity(method, size)], axis) for axis in sizes for size in sizes[axis]]
    store.compact()
    return _framed(rows)


def _framed(rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = list(COLUMNS[COLUMNS.index("seconds") : COLUMNS.index("runs_s")])
    frame[numbers] = frame[numbers].apply(pd.to_numeric)  # a size at a limit has none: nan
    return frame


def _row(record: dict[str, Any], axis: str) -> dict[str, Any]:
    length = record["n_generated"] if axis == "generation" else record["n_input"]
    return {name: record.get(name) for name in COLUMNS} | {"axis": axis, "length": length}


class _Sweeper:
    """Fills a store with the records of some chains of sizes, under one set of conditions."""

    def __init__(
        self, store: Store, where: Conditions, settings: EfficiencyProfile, sizes: dict[str, list[Size]], run: Supervise
    ):
        self.store, self.where, self.settings, self.sizes, self.run = store, where, settings, sizes, run
        records = store.records().to_dict("records")
        # What another machine has measured stands until it is measured afresh; our own goes first.
        records.sort(key=lambda record: record["hardware"] == where.hardware)
        self.known = {record["identity"]: record for record in records}

    def identity(self, method: Contestant, size: Size) -> str:
        """What is measured, whatever the machine's name."""
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
            "time_limit": float(self.settings.time_limit),
            "memory_limit": float(self.settings.memory_limit),
            **result,
        }
        self.store.put(f"{identity}-{fingerprint(self.where.hardware)[:8]}", record)
        self.known[identity] = record


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
    return [sys.executable, "-m", "flashtrace_lib.efficiency_worker", json.dumps(job)]


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``python -m flashtrace_lib efficiency``: fill the store of a profile, or a folder of your own."""
    parser = argparse.ArgumentParser(prog="python -m flashtrace_lib efficiency", description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="laptop")
    parser.add_argument("--folder", type=Path, help="where the results go, such as data/results/gpu")
    args = parser.parse_args(argv)
    profile = load_profile(args.profile)
    store = Store((args.folder or paths.results_dir(profile.name)) / "efficiency")
    frame = pd.concat([sweep(profile, store), sweep_attention(profile, store)], ignore_index=True)
    print(frame[["axis", "method", "length", "outcome", "seconds", "ratio", "peak_gib", "n"]].round(3).to_string())
    return int((frame["outcome"] == ERROR).any())
