"""Samples and methods behind stored results, rebuilt from stored responses and stored options."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import torch

from flashtrace_lib.attribution import Method
from flashtrace_lib.fingerprints import sample_fingerprint
from flashtrace_lib.methods import METHODS
from flashtrace_lib.sample import Sample

from . import paths
from .experiments import pilot, reasoning_tasks
from .experiments.code_targets import OnCode
from .methods import build_method
from .run import Run
from .samples import all_samples, ruler_collections

Build = Callable[[Run, torch.nn.Module, Any], Iterable[Sample]]


def _pilot(run: Run, model: torch.nn.Module, tokenizer: Any) -> list[Sample]:
    both, _ = pilot.answered_both_ways(run, model, tokenizer)
    growing = all_samples(pilot.growing_reasoning(run, model, tokenizer))
    return [*growing, *(sample for samples in both.values() for sample in samples)]


def _hotpotqa(run: Run, model: torch.nn.Module, tokenizer: Any) -> list[Sample]:
    long = [reasoning_tasks.hotpotqa_collection(run, model, tokenizer, length, filtered=False)
            for length in run.profile.hotpotqa.long_lengths]  # fmt: skip
    return [s for found in (reasoning_tasks.hotpotqa_collection(run, model, tokenizer), *long) for s in found.samples]


def _task(kind: str) -> Build:
    return lambda run, model, tokenizer: reasoning_tasks.task_collection(run, model, tokenizer, kind).samples


# Store of responses -> the samples that notebooks make of it. All of them read responses, and generate none where they
# are stored; a source without its store is left out.
SOURCES: dict[str, Build] = {
    "ruler_responses": lambda run, model, tokenizer: all_samples(ruler_collections(run, model, tokenizer)),
    "hotpotqa_responses": _hotpotqa,
    "pilot_responses": _pilot,
    **{f"{kind}_responses": _task(kind) for kind in ("gsm8k", "math500", "morehopqa", "exercism")},
}


def rebuild_samples(
    run: Run, model: torch.nn.Module, tokenizer: Any
) -> tuple[dict[str, Sample], list[tuple[str, str]]]:
    """Every sample that the profile's stored responses give.

    Returns
    -------
    samples : dict of str to Sample
        By their fingerprints.
    failed : list of (str, str)
        Sources that could not be rebuilt, and why.
    """
    samples, failed = {}, []
    for name, build in SOURCES.items():
        if not (paths.results_dir(run.profile.name) / f"{name}.parquet").is_file():
            continue
        try:
            samples |= {sample_fingerprint(sample): sample for sample in build(run, model, tokenizer)}
        except ValueError as error:
            failed.append((name, str(error)))
    return samples, failed


def rebuild_method(name: str, options: dict[str, Any], tokenizer: Any = None) -> Method:
    """The method of a stored record, from its name and its options.

    Raises
    ------
    ValueError
        If there is no such method, it has no such option, or its algorithm is another one by now.
    """
    if name == OnCode.name:
        return OnCode(rebuild_method(options["method"], options["options"], tokenizer), options["target"])
    if name not in METHODS:
        raise ValueError(f"no method {name!r} here; known are {', '.join(sorted(METHODS))}, {OnCode.name}")
    revision = options.get("revision", 1)
    if revision != METHODS[name].revision:
        raise ValueError(f"method {name} is of revision {METHODS[name].revision} here, the record of {revision}")
    # What a subclass has settled for itself is among its options, and no argument of its own.
    settled = {f.name: f.default for f in fields(METHODS[name]) if not f.init}
    settled["revision"] = revision
    given = {key: value for key, value in options.items() if key not in settled or settled[key] != value}
    return build_method(name, given, tokenizer)
