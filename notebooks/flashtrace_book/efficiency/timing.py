"""Seconds of attributions, measured once and stored; `bench.measure` compares them to a plain forward pass.

The key of a stored time has a hash of the code that was timed (`measured_code`): other code is timed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.attribution import Method
from flashtrace_lib.bench.measure import attribution_seconds, random_sample
from flashtrace_lib.bench.measured_code import code_of
from flashtrace_lib.fingerprints import fingerprint, model_fingerprint, sample_fingerprint
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store

from ..run import Run


def span_cost(
    run: Run, model: torch.nn.Module, methods: Mapping[str, Method], sizes: Iterable[tuple[int, int]], runs: int = 3
) -> pd.DataFrame:
    """Time of each method against the length of the target span O, the input fixed; measured once and stored.

    Parameters
    ----------
    methods : mapping of label to Method
    sizes : iterable of (int, int)
        Pairs of |I| and |O|, tokens.
    runs : int
        Repetitions of each.

    Returns
    -------
    pandas.DataFrame
        ``method, n_input, n_output, run, seconds``; one row a run.
    """
    store = Store(run.store("span_cost"))
    rows = []
    pairs = [(label, method, size) for size in sizes for label, method in methods.items()]
    for label, method, (n_input, n_output) in tqdm(pairs, desc="span cost"):
        shaped_by = {"model": model_fingerprint(model), "size": [n_input, n_output], "runs": runs}
        key = fingerprint({**shaped_by, **timed_method(method)})
        if key not in store:
            sample = random_sample(n_input, 0, n_output, model.get_input_embeddings().num_embeddings)
            method.attribute(model, sample)  # warm-up
            seconds = attribution_seconds(model, {label: method}, sample, runs)[label]
            store.put(key, {"method": label, "n_input": n_input, "n_output": n_output, "seconds": seconds})
        record = store.get(key)
        rows += [
            {"method": label, "n_input": n_input, "n_output": n_output, "run": i, "seconds": float(s)}
            for i, s in enumerate(record["seconds"])
        ]
    store.compact()
    return pd.DataFrame(rows)


def timed_method(method: Method) -> dict[str, object]:
    """The part of a key that stands for a method: its name, its options and the code that it runs."""
    return {"method": [method.name, method.options()], "code": code_of(type(method))}


def paired_seconds(
    run: Run, model: torch.nn.Module, methods: Mapping[str, Method], samples: Iterable[Sample], name: str, runs: int = 3
) -> pd.DataFrame:
    """Time of one attribution of each method on each sample, the methods run in turn; measured once and stored.

    The seconds that `evaluate` stores may have been measured while other work ran; these are for tables of times.

    Parameters
    ----------
    methods : mapping of label to Method
    samples : iterable of Sample
    name : str
        Of the store.
    runs : int
        Repetitions; the median counts.

    Returns
    -------
    pandas.DataFrame
        ``method, sample, cell, seconds``.
    """
    store, samples = Store(run.store(name)), list(samples)
    rows, warmed_up = [], False
    for sample in tqdm(samples, desc="seconds"):
        keys = {
            label: fingerprint({"model": model_fingerprint(model), "sample": sample_fingerprint(sample), "runs": runs,
                                **timed_method(method)})
            for label, method in methods.items()
        }  # fmt: skip
        if not all(key in store for key in keys.values()):
            if not warmed_up:
                for method in methods.values():
                    method.attribute(model, min(samples, key=len))
                warmed_up = True
            seconds = attribution_seconds(model, methods, sample, runs)
            for label, key in keys.items():
                store.put(key, {"method": label, "sample": sample.id, "seconds": seconds[label]})
        rows += [
            {"method": label, "sample": sample.id, "cell": str(sample.metadata.get("cell", "")),
             "seconds": float(pd.Series(store.get(key)["seconds"]).median())}
            for label, key in keys.items()
        ]  # fmt: skip
    store.compact()
    return pd.DataFrame(rows)


def positive_seconds(record: Mapping[str, Any]) -> tuple[str, Any, Any, bool]:
    """Check that all stored seconds of a record are positive; what is checked, stored, found, and whether it holds."""
    seconds = np.atleast_1d(np.asarray(record["seconds"], dtype=float))
    good = bool(len(seconds) and np.isfinite(seconds).all() and (seconds > 0).all())
    return "positive seconds", "", np.round(seconds, 3).tolist(), good


def speedup(seconds: pd.DataFrame, slow: str, fast: str) -> pd.DataFrame:
    """Seconds of one method over those of another, sample by sample: ``sample, speedup``.

    Parameters
    ----------
    seconds : pandas.DataFrame
        From `paired_seconds`.
    slow, fast : str
        Labels of the methods.
    """
    wide = seconds.pivot(index="sample", columns="method", values="seconds")
    return (wide[slow] / wide[fast]).rename("speedup").reset_index()
