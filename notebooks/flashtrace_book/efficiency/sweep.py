"""Time and memory of every method against the length of the input and of the generation (section 5.1, Fig. 4).

Each method is measured in a process of its own, under a limit of time and one of memory (`limits`); what came of it is
stored size by size, so that an interrupted sweep goes on where it stopped. A size at a limit ends its row: larger ones
are recorded as beyond it, untried.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from flashtrace_lib.methods import METHODS
from flashtrace_lib.store import Store

from .. import paths
from ..methods import method_options, sweep_options
from ..profiles import EfficiencyProfile, Profile, load_profile
from .benchmark_runner import AT_LIMIT, BEYOND, Contestant, Size, Supervise, Sweeper, conditions, measured_code
from .other_tools import ADAPTERS, available
from .supervised_process import ERROR, OK, OUT_OF_MEMORY, TIME_OUT, Ended, supervise

__all__ = [
    "AT_LIMIT", "ATTENTION", "AXES", "BEYOND", "COLUMNS", "ERROR", "Ended", "MODES", "OK", "OUT_OF_MEMORY", "TIME_OUT",
    "TOOLS", "VARIANTS", "chains", "contestants", "load_sweep", "of_earlier_code", "sweep", "sweep_attention",
    "sweep_tools",
]  # fmt: skip

AXES = ("input", "generation")
ATTENTION, TOOLS = "attention", "tools"  # the sizes of Table 9, and those of the input
MODES = ("cached", "recompute", "fused")
VARIANTS = {"ifr_one_by_one": ("ifr", {"batch_size": 1})}  # label -> name of the method, options
COLUMNS = (
    "axis", "method", "n_input", "n_generated", "length", "outcome", "seconds", "forward_s", "ratio", "peak_gib",
    "forward_peak_gib", "n", "forward_passes", "backward_passes", "hop_passes", "runs_s", "forward_runs_s", "detail",
    "time_limit", "memory_limit", "model", "dtype", "hardware", "code",
)  # fmt: skip


def contestants(profile: Profile) -> list[Contestant]:
    """The methods of the profile's sweep, with its options; ValueError for one that there is not."""
    found = []
    for label in profile.efficiency.methods:
        name, options = VARIANTS.get(label, (label, {}))
        if name not in METHODS:
            known = ", ".join([*METHODS, *VARIANTS])
            raise ValueError(f"profile {profile.name}: efficiency.methods: no method {label!r}; known are {known}")
        found.append(Contestant(label, name, sweep_options(profile, name) | options))
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
        Runs a worker, as `supervised_process.supervise` does.

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
    return _measure(profile, store, modes, {ATTENTION: _attention_sizes(profile.efficiency)}, run)


def sweep_tools(profile: Profile, store: Store, run: Supervise = supervise) -> pd.DataFrame:
    """Measure the published tools that are installed and the library's nearest methods, by length of the input."""
    asked, installed = profile.efficiency.tools, available()[0]
    if unknown := [name for name in asked if name not in ADAPTERS]:
        raise ValueError(
            f"profile {profile.name}: efficiency.tools: no tool {unknown[0]!r}; known are {', '.join(ADAPTERS)}"
        )
    tools = [Contestant(name, name, ADAPTERS[name].options) for name in asked if name in installed]
    nearest = dict.fromkeys(ADAPTERS[tool.name].nearest for tool in tools)
    ours = [Contestant(name, name, sweep_options(profile, name)) for name in nearest]
    return _measure(profile, store, [*tools, *ours], {TOOLS: chains(profile.efficiency)["input"]}, run)


def _attention_sizes(settings: EfficiencyProfile) -> list[Size]:
    return [(n, settings.fixed_generation) for n in settings.attention_inputs]


def of_earlier_code(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of a sweep whose times are of other code of the method than today's (`benchmark_runner.measured_code`).

    Parameters
    ----------
    frame : pandas.DataFrame
        From `sweep` or ``Store.records``.
    """
    labels = {label: name for label, (name, _) in VARIANTS.items()} | {f"flashtrace_{m}": "flashtrace" for m in MODES}
    names = frame["method"].replace(labels)
    today = {name: measured_code(name) for name in names.unique() if name in METHODS}
    code = frame["code"] if "code" in frame else pd.Series(None, frame.index, dtype=object)
    return frame[(frame["outcome"] == OK) & names.isin(today) & (code != names.map(today))]


def load_sweep(store: Store) -> pd.DataFrame:
    """A sweep measured elsewhere, as `sweep` gives it, rows of `sweep_attention` included; empty where none is stored.

    Parameters
    ----------
    store : Store
        ``Store(folder / "efficiency")``.
    """
    rows = [_row(record, axis) for record in store.records().to_dict("records") for axis in json.loads(record["axes"])]
    return _framed(rows).sort_values(["hardware", "axis", "method", "length"], ignore_index=True)


def forget_earlier_code(store: Store) -> None:
    """Remove the times that `of_earlier_code` finds, of every method and size, so that they are measured again."""
    records = store.records()
    store.drop(of_earlier_code(records)["key"] if len(records) else [])


def _measure(
    profile: Profile, store: Store, methods: Iterable[Contestant], sizes: dict[str, list[Size]], run: Supervise
) -> pd.DataFrame:
    """Measure what is missing and return the rows of all."""
    sweeper = Sweeper(store, conditions(profile), profile.efficiency, sizes, run)
    rows = []
    for method in tqdm(list(methods), desc="efficiency"):
        sweeper.fill(method)
        rows += [_row(sweeper.use(method, size), axis) for axis in sizes for size in sizes[axis]]
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


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``python -m flashtrace_lib efficiency``: fill the store of a profile, or a folder of your own."""
    parser = argparse.ArgumentParser(prog="python -m flashtrace_lib efficiency", description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="laptop")
    parser.add_argument("--folder", type=Path, help="where the results go, such as data/results/gpu")
    parser.add_argument("--again", action="store_true", help="measure times of earlier code again")
    args = parser.parse_args(argv)
    profile = load_profile(args.profile)
    store = Store((args.folder or paths.results_dir(profile.name)) / "efficiency")
    if args.again:
        forget_earlier_code(store)
    parts = [measure(profile, store) for measure in (sweep, sweep_attention, sweep_tools)]
    frame = pd.concat(parts, ignore_index=True)
    print(frame[["axis", "method", "length", "outcome", "seconds", "ratio", "peak_gib", "n"]].round(3).to_string())
    return int((frame["outcome"] == ERROR).any())
