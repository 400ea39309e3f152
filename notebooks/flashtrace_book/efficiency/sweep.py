"""Time and memory of every method against the length of the input and of the generation (section 5.1, Fig. 4).

Here stand the methods and sizes of a profile and the tables of the results; `benchmark_runner` measures. A size that
reaches a limit of time or memory ends its row: larger sizes are recorded as beyond it and not tried.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from flashtrace_lib.methods import METHODS
from flashtrace_lib.store import Store

from .. import paths
from ..methods import method_options, sweep_options
from ..profiles import EfficiencyProfile, Profile, load_profile
from .benchmark_runner import BenchmarkedMethod, BenchmarkRunner, Size, Supervise, method_code
from .other_tools import ADAPTERS, available
from .supervised_process import ERROR, OK, supervise

# Axes beside "input" and "generation": Table 9, published tools, the length of the paper's headline, Fig. 4e alone.
ATTENTION, TOOLS, HEADLINE, PARETO = "attention", "tools", "headline", "pareto"
PAPER_LENGTH = 1024  # tokens of the paper's prompts in Table 1
HEADLINE_METHODS = ("flashtrace", "attnlrp", "ifr", "ifr_one_by_one")  # the short runs first
ATTENTION_MODES = ("cached", "recompute", "fused")
VARIANTS = {  # label -> name of the method, options
    "ifr_one_by_one": ("ifr", {"batch_size": 1}),
    "at2": ("at2", {"weights": "uniform"}),  # costs what learned ones do, which belong to one model
}
COLUMNS = (
    "axis", "method", "n_input", "n_generated", "length", "outcome", "seconds", "forward_s", "ratio", "peak_gib",
    "forward_peak_gib", "n", "n_peak", "forward_passes", "backward_passes", "hop_passes", "runs_s", "forward_runs_s",
    "peak_runs_gib", "detail", "time_limit", "memory_limit", "model", "dtype", "hardware", "code",
)  # fmt: skip
_NUMBERS = COLUMNS[COLUMNS.index("seconds") : COLUMNS.index("runs_s")]


def sweep(profile: Profile, store: Store, run_worker: Supervise = supervise) -> pd.DataFrame:
    """Measure every method along both axes, as far as no result is stored.

    Parameters
    ----------
    profile : Profile
        Its section ``efficiency`` gives methods, sizes, limits and runs.
    store : Store
        Results are read from it and written to it.
    run_worker : callable
        Runs a worker, as `supervised_process.supervise` does.

    Returns
    -------
    pandas.DataFrame
        ``COLUMNS``, one row an axis, method and size; ``length`` is the one that varies. Where ``outcome`` is not
        ``"ok"`` there are no times. ``n`` runs are behind a time, ``n_peak`` behind a peak.
    """
    return _measure(profile, store, swept_methods(profile), size_grids(profile.efficiency), run_worker)


def sweep_attention(profile: Profile, store: Store, run_worker: Supervise = supervise) -> pd.DataFrame:
    """Measure FlashTrace with each way to form the sums of attention (appendix L, Table 9); as `sweep`."""
    settings, options = profile.efficiency, method_options(profile, "flashtrace")
    methods = [
        BenchmarkedMethod(f"flashtrace_{mode}", "flashtrace", {**options, "attention": mode})
        for mode in ATTENTION_MODES
    ]
    grid = [(n, settings.fixed_generation) for n in settings.attention_inputs]
    return _measure(profile, store, methods, {ATTENTION: grid}, run_worker)


def sweep_headline(profile: Profile, store: Store, run_worker: Supervise = supervise) -> pd.DataFrame:
    """Measure FlashTrace, AttnLRP and both forms of IFR at the generations of the paper's headline; as `sweep`.

    One run, since IFR one by one takes most of an hour there, and limits of their own.
    """
    settings = profile.efficiency
    once = {"time_limit": settings.headline_limit, "memory_limit": 2 * settings.memory_limit, "runs": 1}
    patient = replace(profile, efficiency=replace(settings, **once))
    swept = {method.label: method for method in swept_methods(profile)}
    methods = [swept[label] for label in HEADLINE_METHODS if label in swept]
    grid = [(settings.fixed_input, n) for n in settings.headline_generations or ()]
    return _measure(patient, store, methods if grid else [], {HEADLINE: grid}, run_worker)


def sweep_pareto(profile: Profile, store: Store, run_worker: Supervise = supervise) -> pd.DataFrame:
    """Measure the methods that only Fig. 4e has, at its lengths of the input; as `sweep`."""
    settings = profile.efficiency
    grid = [(n, settings.fixed_generation) for n in pareto_inputs(settings)]
    return _measure(profile, store, _named(profile, settings.pareto_methods), {PARETO: grid}, run_worker)


def pareto_inputs(settings: EfficiencyProfile) -> list[int]:
    """Lengths of the input at which cost is drawn against faithfulness: the profile's, and the paper's if swept."""
    return [settings.pareto_input, *({PAPER_LENGTH} & set(settings.inputs) - {settings.pareto_input})]


def sweep_tools(profile: Profile, store: Store, run_worker: Supervise = supervise) -> pd.DataFrame:
    """Measure the published tools that are installed and the library's nearest methods, by length of the input.

    Raises
    ------
    ValueError
        If the profile names a tool that is none of `other_tools.ADAPTERS`.
    """
    names, installed = profile.efficiency.tools, available()[0]
    if unknown := [name for name in names if name not in ADAPTERS]:
        raise ValueError(
            f"profile {profile.name}: efficiency.tools: no tool {unknown[0]!r}; known are {', '.join(ADAPTERS)}"
        )
    tools = [BenchmarkedMethod(name, name, ADAPTERS[name].options) for name in names if name in installed]
    nearest = dict.fromkeys(ADAPTERS[tool.name].nearest for tool in tools)
    methods = [BenchmarkedMethod(name, name, sweep_options(profile, name)) for name in nearest]
    return _measure(profile, store, [*tools, *methods], {TOOLS: size_grids(profile.efficiency)["input"]}, run_worker)


def swept_methods(profile: Profile) -> list[BenchmarkedMethod]:
    """The methods of the profile's sweep, with its options; ValueError for an unknown one."""
    return _named(profile, profile.efficiency.methods)


def _named(profile: Profile, labels: Iterable[str]) -> list[BenchmarkedMethod]:
    """Methods by their labels, with the profile's options; ValueError for an unknown one."""
    methods = []
    for label in labels:
        name, options = VARIANTS.get(label, (label, {}))
        if name not in METHODS:
            known = ", ".join(dict.fromkeys([*METHODS, *VARIANTS]))
            raise ValueError(f"profile {profile.name}: efficiency: no method {label!r}; known are {known}")
        methods.append(BenchmarkedMethod(label, name, sweep_options(profile, name) | options))
    return methods


def size_grids(settings: EfficiencyProfile) -> dict[str, list[Size]]:
    """Sizes along each axis, ascending; the other length is fixed."""
    return {
        "input": [(n, settings.fixed_generation) for n in settings.inputs],
        "generation": [(settings.fixed_input, n) for n in settings.generations],
    }


def load_sweep(store: Store) -> pd.DataFrame:
    """Everything that a store holds, as `sweep` returns it; no rows where nothing is stored.

    Parameters
    ----------
    store : Store
        ``Store(folder / "efficiency")``, of this machine or of another.
    """
    rows = [_row(record, axis) for record in store.records().to_dict("records") for axis in json.loads(record["axes"])]
    return _table(rows).sort_values(["hardware", "axis", "method", "length"], ignore_index=True)


def of_earlier_code(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows whose times were measured with other code of their method than today's (`benchmark_runner.method_code`).

    Parameters
    ----------
    frame : pandas.DataFrame
        From `sweep` or ``Store.records``.
    """
    modes = {f"flashtrace_{mode}": "flashtrace" for mode in ATTENTION_MODES}
    names = frame["method"].replace({label: name for label, (name, _) in VARIANTS.items()} | modes)
    today = {name: method_code(name) for name in names.unique() if name in METHODS}
    code = frame["code"] if "code" in frame else pd.Series(None, frame.index, dtype=object)
    return frame[(frame["outcome"] == OK) & names.isin(today) & (code != names.map(today))]


def forget_earlier_code(store: Store) -> None:
    """Remove the times that `of_earlier_code` lists, of every method and size, so that they are measured again."""
    records = store.records()
    store.drop(of_earlier_code(records)["key"] if len(records) else [])


def _measure(
    profile: Profile,
    store: Store,
    methods: Iterable[BenchmarkedMethod],
    grids: dict[str, list[Size]],
    run_worker: Supervise,
) -> pd.DataFrame:
    """Measure what is missing, and return the rows of all."""
    runner = BenchmarkRunner(profile, store, grids, run_worker)
    rows = []
    for method in tqdm(list(methods), desc="efficiency"):
        runner.run(method)
        rows += [_row(runner.record(method, size), axis) for axis, grid in grids.items() for size in grid]
    store.compact()
    return _table(rows)


def _table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Frame with all columns; a size that did not run has NaN for every number."""
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    frame[list(_NUMBERS)] = frame[list(_NUMBERS)].apply(pd.to_numeric)
    frame.loc[frame["outcome"] == OK, "n_peak"] = frame["n_peak"].fillna(1)  # earlier records have one, and no count
    return frame


def _row(record: dict[str, Any], axis: str) -> dict[str, Any]:
    """Row of a record on one of its axes."""
    length = record["n_generated"] if axis in ("generation", HEADLINE) else record["n_input"]
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
    parts = [measure(profile, store) for measure in (sweep, sweep_headline, sweep_attention, sweep_pareto, sweep_tools)]
    frame = pd.concat(parts, ignore_index=True)
    print(frame[["axis", "method", "length", "outcome", "seconds", "ratio", "peak_gib", "n"]].round(3).to_string())
    return int((frame["outcome"] == ERROR).any())
