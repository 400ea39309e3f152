"""Time and memory of every method against the length of the input and of the generation (section 5.1, Fig. 4).

A row of sizes is measured in a process of its own (`efficiency.worker`), the smallest size first. A size that reaches a
limit of time or memory ends its row: larger ones are recorded as beyond it and not tried.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from tqdm import tqdm

from flashtrace_lib.bench.measure import hardware_name
from flashtrace_lib.fingerprints import fingerprint
from flashtrace_lib.methods import METHODS
from flashtrace_lib.store import Store

from .. import paths
from ..efficiency import BEYOND, ERROR, NEAREST, OK
from ..efficiency.limits import run_worker
from ..efficiency.other_tools import available
from ..efficiency.worker import Job
from ..profile import Profile, read
from .timing import span_rows

HEADLINE_METHODS = ("flashtrace", "attnlrp", "ifr", "ifr_one_by_one")  # the short runs first
VARIANTS = {  # labels that mean a method with options, here alone
    "ifr_one_by_one": {"method": "ifr", "batch_size": 1},  # as the paper runs it
    "at2": {"method": "at2", "weights": "uniform"},  # costs what learned weights do, which belong to one model
    "reagent": {"method": "reagent", "runs": 1, "max_steps": 8},
    **{f"flashtrace_{mode}": {"method": "flashtrace", "attention": mode} for mode in ("cached", "recompute", "fused")},
}

Size = tuple[int, int]  # |I|, |T| + |O|


@dataclass(frozen=True)
class Efficiency:
    """Settings of the measurements (section 5.1, Fig. 4, appendices C and L).

    Parameters
    ----------
    model : str
        Of the profile's ``models``; its weights do not matter, its shape does.
    inputs, generations : tuple of int
        Lengths of the input and of the generation, ascending; the other one is fixed.
    fixed_input, fixed_generation : int
        The length that stays fixed; 100 in the paper.
    methods : tuple of str
        Labels: of ``METHODS``, of the profile's ``methods`` or of `VARIANTS`.
    runs : int
        Runs of each size.
    time_limit : float
        Longest run, s.
    memory_limit : float
        Most memory over the loaded model, GiB.
    headline_generations : tuple of int
        Lengths at which FlashTrace, AttnLRP and IFR are run once, under ``headline_limit`` and twice the memory: the
        paper's headline is of 5,000 tokens, where IFR takes most of an hour.
    headline_limit : float
        Longest run there, s.
    attention_inputs : tuple of int
        Lengths of the input at which ways to form the sums of attention are compared (Table 9).
    tools : tuple of str
        Published tools, of `other_tools.ADAPTERS`, along ``inputs``; those that are not installed are left out.
    pareto_input : int
        Length of the input of Fig. 4e, one of ``inputs``.
    pareto_methods : tuple of str
        Methods that Fig. 4e has beside ``methods``.
    span_sizes : tuple of (int, int)
        Pairs of |I| and |O| of chapter 02.
    """

    model: str
    inputs: tuple[int, ...]
    generations: tuple[int, ...]
    fixed_input: int
    fixed_generation: int
    methods: tuple[str, ...]
    pareto_input: int
    runs: int = 3
    time_limit: float = 20
    memory_limit: float = 6
    headline_generations: tuple[int, ...] = ()
    headline_limit: float = 7200
    attention_inputs: tuple[int, ...] = ()
    tools: tuple[str, ...] = ()
    pareto_methods: tuple[str, ...] = ()
    span_sizes: tuple[Size, ...] = ()


def make(profile: Profile, name: str, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of part ``sweep``, one a method and size, and of part ``span_cost`` (`timing.span_rows`).

    The column ``axes`` is a JSON list of the comparisons that a size belongs to, see `comparisons`.
    """
    chosen = read(Efficiency, settings, f"results.{name}.efficiency")
    if chosen.pareto_input not in chosen.inputs:
        raise ValueError(f"results.{name}.efficiency: pareto_input must be one of inputs {chosen.inputs}")
    store = Store(paths.working_store(profile.name, name))
    rows: dict[str, dict[str, Any]] = {}
    for axis, label, sizes, own in tqdm(list(comparisons(chosen)), desc=name):
        for key, row in measured(profile, replace(chosen, **own), label, sizes, store).items():
            rows.setdefault(key, {"part": "sweep", **row, "axes": []})["axes"].append(axis)
    return [{**row, "axes": json.dumps(row["axes"])} for row in rows.values()] + span_rows(profile, name, chosen)


def comparisons(chosen: Efficiency) -> Iterator[tuple[str, str, list[Size], dict[str, Any]]]:
    """Axis, label and ascending sizes of everything that is measured, and the settings that differ there."""
    along = {
        "generation": [(chosen.fixed_input, n) for n in chosen.generations],
        "input": [(n, chosen.fixed_generation) for n in chosen.inputs],
    }
    for label in chosen.methods:
        for axis, sizes in along.items():
            yield axis, label, sizes, {}
    once = {"runs": 1, "time_limit": chosen.headline_limit, "memory_limit": 2 * chosen.memory_limit}
    for label in HEADLINE_METHODS if chosen.headline_generations else ():
        yield "headline", label, [(chosen.fixed_input, n) for n in chosen.headline_generations], once
    for mode in ("cached", "recompute", "fused"):
        yield "attention", f"flashtrace_{mode}", [(n, chosen.fixed_generation) for n in chosen.attention_inputs], {}
    for label in chosen.pareto_methods:
        yield "pareto", label, [(chosen.pareto_input, chosen.fixed_generation)], {}
    for label in available(chosen.tools):
        yield "tools", label, along["input"], {}


def measured(profile: Profile, chosen: Efficiency, label: str, sizes: list[Size], store: Store) -> dict[str, dict]:
    """Rows of one method, by their key; what is in the store is not measured again."""
    model = profile.models[chosen.model]
    name, options = named(profile, label)
    shared = {"dtype": model.dtype, "time_limit": chosen.time_limit, "memory_limit": chosen.memory_limit}
    about = {"method": label, "options": json.dumps(options), "model": chosen.model, **shared}
    about["hardware"] = hardware_name(model.device_map)
    keys = {size: fingerprint([name, options, size, model.load, model.dtype, about["hardware"]]) for size in sizes}
    found = {size: store.get(key) for size, key in keys.items() if key in store}
    for size in [size for size, row in found.items() if row["outcome"] != OK]:
        if any(found[size][limit] < about[limit] for limit in ("time_limit", "memory_limit")):
            del found[size]  # what failed under lower limits is tried again
    missing = [size for size in sizes if size not in found]

    def keep(size: Size, outcome: str, detail: str, **numbers: Any) -> None:
        place = {"n_input": size[0], "n_generated": size[1]}
        found[size] = {**about, **place, "outcome": outcome, "detail": detail, **numbers}
        if outcome != ERROR:  # which may not happen again
            store.put(keys[size], found[size])

    if missing:
        job = Job(model.load, name, tuple(missing), options, device_map=model.device_map, runs=chosen.runs, **shared)
        command = [sys.executable, "-m", "flashtrace_book.efficiency.worker", json.dumps(asdict(job))]
        outcome, detail = run_worker(command, lambda line: keep(tuple(line.pop("size")), OK, "", **line))
        left = [size for size in missing if size not in found]
        for place, size in enumerate(left):
            at_limit = place and outcome != ERROR
            keep(size, *((BEYOND, f"{left[0][0]}+{left[0][1]} is at a limit") if at_limit else (outcome, detail)))
    return {keys[size]: {k: v for k, v in found[size].items() if k != "key"} for size in sizes}


def named(profile: Profile, label: str) -> tuple[str, dict[str, Any]]:
    """Name and options of a method. Units are always sentences, so that a curve is of one algorithm."""
    options = dict(VARIANTS.get(label) or profile.methods.get(label) or {"method": label})
    name = options.pop("method")
    if name not in METHODS and name not in NEAREST:
        raise ValueError(f"profile {profile.name}: no method {label!r}; known are {', '.join([*METHODS, *VARIANTS])}")
    return name, options | ({"units": "sentence"} if hasattr(METHODS.get(name), "units") else {})
