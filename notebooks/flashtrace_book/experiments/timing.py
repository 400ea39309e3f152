"""Seconds of attributions, the methods run in turn: the rollout beside FlashTrace (07), and the length of O (02)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from flashtrace_lib import IFR, FlashTrace
from flashtrace_lib.attribution import Method
from flashtrace_lib.bench.measure import attribution_seconds, random_sample, warm_up
from flashtrace_lib.fingerprints import fingerprint
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store

from .. import paths
from ..profile import Profile, read
from .groups import Group, group_collections, method_named, model_of


@dataclass(frozen=True)
class Timed:
    """What is timed.

    Parameters
    ----------
    model : str
        Of the profile's ``models``.
    methods : tuple of str
        Labels: of ``METHODS`` or of the profile's ``methods``.
    samples : int
        The first ones of the section's first group.
    runs : int
        Attributions by each method.
    """

    model: str
    methods: tuple[str, ...]
    samples: int
    runs: int = 3


def make(profile: Profile, name: str, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of part ``rollout_cost``: ``sample, method, run_seconds``."""
    chosen = read(Timed, settings, f"results.{name}.rollout_cost")
    group = read(Group, profile.results[name]["groups"][0], f"results.{name}.groups[0]")
    samples = [sample for found in group_collections(profile, group).values() for sample in found.samples]
    methods = {label: method_named(profile, label) for label in chosen.methods}
    work = [({"part": "rollout_cost", "sample": sample.id}, sample) for sample in samples[: chosen.samples]]
    return _in_turn(profile, name, chosen, methods, work)


def span_rows(profile: Profile, name: str, chosen: Any) -> list[dict[str, Any]]:
    """Rows of part ``span_cost``: ``n_input, n_output, method, run_seconds``, for each pair of |I| and |O|."""
    if not chosen.span_sizes:
        return []
    methods = {"flashtrace": FlashTrace(hops=0), "ifr": IFR(), "ifr_one_by_one": IFR(batch_size=1)}
    words = model_of(profile, chosen.model)[0].get_input_embeddings().num_embeddings
    about = [{"part": "span_cost", "n_input": n_input, "n_output": n_output} for n_input, n_output in chosen.span_sizes]
    work = [(size, random_sample(size["n_input"], 0, size["n_output"], words)) for size in about]
    return _in_turn(profile, name, chosen, methods, work)


def _in_turn(
    profile: Profile, name: str, chosen: Any, methods: Mapping[str, Method], work: list[tuple[dict[str, Any], Sample]]
) -> list[dict[str, Any]]:
    """One row a sample and method, ``chosen.runs`` times each; what is in the working store is not timed again."""
    store, (model, _) = Store(paths.working_store(profile.name, name)), model_of(profile, chosen.model)
    options = {label: [method.name, method.options()] for label, method in methods.items()}
    for method in methods.values():
        warm_up(model, method)
    rows = []
    for about, sample in tqdm(work, desc="seconds"):
        key = fingerprint([about, profile.models[chosen.model].load, options, chosen.runs])
        if key not in store:
            store.put(key, attribution_seconds(model, methods, sample, chosen.runs))
        timed = store.get(key)
        rows += [{**about, "method": label, "run_seconds": timed[label]} for label in methods]
    return rows
