"""The audit of a profile as a whole: files against the manifest, stored results against what is computed again."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from flashtrace_lib import files
from flashtrace_lib.evaluation import audit as audit_records
from flashtrace_lib.fingerprints import model_fingerprint
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store

from . import paths
from .audit_measures import audit_measures
from .audit_sources import rebuild_method, rebuild_samples
from .efficiency import audit, sweep
from .experiments import reasoning_tasks
from .manifest import data_hashes, read_models
from .notebooks import without_audit
from .profiles import Profile
from .run import Run

COLUMNS = ("part", "name", "check", "stored", "found", "agrees")
FILES, NOTEBOOKS, RESULTS, RESPONSES, TIMES = "files", "notebooks", "results", "responses", "times"
_SIX_DIGITS = 2e-5  # relative; tables keep six digits


def audit_files(profile: Profile) -> list[dict[str, Any]]:
    """Every figure and table, and the book's data, against the hashes of the profile's manifest; no model needed.

    Returns
    -------
    list of dict
        ``COLUMNS``; one row a file that is missing, changed or not listed, and one for all that agree.
    """
    path = paths.results_dir(profile.name) / "manifest.json"
    if not path.is_file():
        return [_row(FILES, "manifest.json", "is there", "", "missing: run the book", False)]
    try:
        manifest = files.read_json(path)
    except ValueError as error:
        return [_row(FILES, "manifest.json", "can be read", "", str(error), False)]
    rows = compare_hashes(manifest.get("outputs", {}), files.hash_tree(paths.figures_dir(profile.name)), "figures")
    for name, hashes in data_hashes(profile).items():
        rows += compare_hashes(manifest.get("data", {}).get(name, {}), hashes, name)
    return rows


def compare_hashes(listed: Mapping[str, str], found: Mapping[str, str], what: str) -> list[dict[str, Any]]:
    """One row a difference between two sets of hashes, and one for the files that agree."""
    rows = [
        _row(FILES, f"{what}: {name}", "SHA-256", _short(listed.get(name, "not listed")),
             _short(found.get(name, "missing")), False)
        for name in sorted({*listed, *found}) if listed.get(name) != found.get(name)
    ]  # fmt: skip
    same = sum(listed[name] == found.get(name) for name in listed)
    return [*rows, _row(FILES, f"{what}: {same} files", "SHA-256", "listed", "the same", True)] if same else rows


def audit_notebooks(folder: Path | None = None) -> list[dict[str, Any]]:
    """Every notebook ends in an audit cell."""
    lacking = without_audit(folder)
    rows = [_row(NOTEBOOKS, name, "ends in an audit cell", "yes", "no", False) for name in lacking]
    return rows or [_row(NOTEBOOKS, "all", "ends in an audit cell", "yes", "yes", True)]


def audit_profile(
    profile: Profile,
    model: torch.nn.Module,
    tokenizer: Any,
    k: int = 1,
    seed: int = 0,
    samples: Mapping[str, Sample] | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """``k`` rows of every stored table of results, chosen at random, computed again from nothing.

    Attributions and curves must agree within the tolerance of `evaluation.audit`; responses must be the text of their
    tokens. Times cannot be repeated: a sweep goes through `audit.audit`, other times must be positive and
    give the medians that are printed. Works on a copy, so that nothing stored is changed.

    Parameters
    ----------
    profile : Profile
    model : transformers.PreTrainedModel
        The profile's. Records of another model are counted and left alone; it must be one that a notebook has noted.
    tokenizer : transformers.PreTrainedTokenizerBase
    k, seed : int
        How many rows, and what chooses them.
    samples : mapping of str to Sample, optional
        By `fingerprints.sample_fingerprint`. Default: `audit_sources.rebuild_samples`.
    tell : callable, optional
        Takes a line after every store: an audit may take long.

    Returns
    -------
    list of dict
        ``COLUMNS``.
    """
    folder = paths.results_dir(profile.name)
    rows: list[dict[str, Any]] = []
    with _copied(folder):
        known, failed = (samples, []) if samples is not None else rebuild_samples(Run(profile), model, tokenizer)
        rows += [_row(RESULTS, name, "samples are rebuilt", "", error, False) for name, error in failed]
        tell(f"{len(known)} samples rebuilt")
        for path in sorted(paths.results_dir(profile.name).glob("*.parquet")):
            before, started = len(rows), time.perf_counter()
            try:
                rows += _audit_store(path, profile, model, tokenizer, known, k, random.Random(f"{seed} {path.stem}"))
            except ValueError as error:  # a damaged file, a method that is unknown here
                rows.append(_row(RESULTS, path.stem, "can be read", "", str(error), False))
            agree = "agrees" if all(row["agrees"] for row in rows[before:]) else "DISAGREES"
            tell(f"{path.stem}: {agree} ({time.perf_counter() - started:.0f} s)")
    return rows


def _audit_store(
    path: Path,
    profile: Profile,
    model: torch.nn.Module,
    tokenizer: Any,
    known: Mapping[str, Sample],
    k: int,
    chance: random.Random,
) -> list[dict[str, Any]]:
    """Rows of one store, by what it holds."""
    store = Store(path)
    records = store.records()
    if "sample_key" in records:
        return _audit_results(store, records, profile, model, tokenizer, known, k, chance)
    chosen = [records.iloc[i] for i in chance.sample(range(len(records)), min(k, len(records)))]
    if "ids" in records:
        return [_row(RESPONSES, f"{path.stem}: {r['example']}", "text of its tokens", "", "",
                     tokenizer.decode(list(r["ids"])) == r["text"]) for r in chosen]  # fmt: skip
    if "axes" in records:
        return _audit_sweep(store, profile, model, k)
    if "seconds" in records:
        return [*(_positive(path.stem, r) for r in chosen), *printed_times(path.stem, records, profile.name)]
    checks = audit_measures(store, profile, model, tokenizer, known.values(), k, chance)
    return [_row(RESULTS, *check) for check in checks]


def _audit_results(
    store: Store,
    records: pd.DataFrame,
    profile: Profile,
    model: torch.nn.Module,
    tokenizer: Any,
    known: Mapping[str, Sample],
    k: int,
    chance: random.Random,
) -> list[dict[str, Any]]:
    """Attributions and curves again, ``k`` of those whose model and sample are at hand."""
    name, scorer, key = store.path.stem, Scorer(model, precision="auto"), model_fingerprint(model)
    of_model = records[records["model_key"] == key]
    mine = of_model[of_model["sample_key"].isin(list(known))]
    rows = []
    if len(mine) < len(records):
        listed = {facts["fingerprint"] for facts in read_models(profile.name).values()} | {key}
        unlisted = int((~records["model_key"].isin(list(listed))).sum())
        rest = (
            f"{len(records) - len(of_model)} of {len(records)} are of another model ({unlisted} of one that "
            f"models.json does not list), {len(of_model) - len(mine)} of samples that are no longer used"
        )
        good = not unlisted and (len(mine) > 0 or of_model.empty)
        rows.append(_row(RESULTS, name, "rebuilt", len(records), rest, good))
    for i in chance.sample(range(len(mine)), min(k, len(mine))):
        record = mine.iloc[i]
        label = f"{name}: {record['method']} on {record['sample']}"
        try:
            checked = audit_records(
                {record["method"]: rebuild_method(record["method_name"], json.loads(record["options"]), tokenizer)},
                [known[record["sample_key"]]], model, store, k=1, steps=int(record["steps"]), scorer=scorer,
            )  # fmt: skip
        except ValueError as error:
            rows.append(_row(RESULTS, label, "computed again", "", str(error), False))
            continue
        rows += [
            _row(RESULTS, label, r.quantity, r.stored, r.recomputed, False)
            for r in checked.itertuples()
            if not r.agrees
        ]
        rows += (
            [_row(RESULTS, label, f"{len(checked)} quantities", "", "agree", True)] if checked["agrees"].all() else []
        )
    return rows


def _audit_sweep(store: Store, profile: Profile, model: torch.nn.Module, k: int) -> list[dict[str, Any]]:
    """Counts and arithmetic of a sweep of time and memory."""
    checked = audit.audit(sweep.load_sweep(store), profile, model, k)
    rows = [
        _row(TIMES, f"{store.path.stem}: {r.method} at {r.size}", r.check, r.stored, r.recomputed, False)
        for r in checked[~checked["agrees"]].itertuples()
    ]
    return rows or [_row(TIMES, store.path.stem, f"{len(checked)} counts and medians", "", "agree", True)]


def _positive(name: str, record: pd.Series) -> dict[str, Any]:
    seconds = np.atleast_1d(np.asarray(record["seconds"], dtype=float))
    good = bool(len(seconds) and np.isfinite(seconds).all() and (seconds > 0).all())
    return _row(TIMES, f"{name}: {record['method']}", "positive seconds", "", np.round(seconds, 3).tolist(), good)


def printed_times(name: str, records: pd.DataFrame, profile: str) -> list[dict[str, Any]]:
    """The medians of a printed table again, from its stored runs; only of stores that a table is made of."""
    if name != "rollout_cost":
        return []
    path = paths.figures_dir(profile) / "table3_seconds.csv"
    if not path.is_file():
        return [_row(TIMES, path.name, "is there", "", "missing", False)]
    each = records.assign(seconds=[float(np.median(runs)) for runs in records["seconds"]])
    ours = reasoning_tasks.median_seconds(each).set_index("method")
    rows = []
    for row in pd.read_csv(path).itertuples():
        found = float(ours["median"].get(row.method, math.nan))
        agrees = math.isclose(row.median, found, rel_tol=_SIX_DIGITS)
        rows.append(
            _row(TIMES, f"table3_seconds: {row.method}", "median of the stored runs", row.median, found, agrees)
        )
    return rows


@contextmanager
def _copied(folder: Path) -> Iterator[None]:
    """Results are read from a copy while this lasts: what reads them may compact or add to them."""
    before = os.environ.get("FLASHTRACE_RESULTS_DIR")
    with tempfile.TemporaryDirectory() as temporary:
        if folder.is_dir():
            shutil.copytree(folder, Path(temporary) / folder.name)
        os.environ["FLASHTRACE_RESULTS_DIR"] = temporary
        try:
            yield
        finally:
            os.environ.pop("FLASHTRACE_RESULTS_DIR")
            if before is not None:
                os.environ["FLASHTRACE_RESULTS_DIR"] = before


def report(rows: list[dict[str, Any]]) -> str:
    """What an audit found, for readers: what disagrees, line by line, and the count of every part."""
    lines = [f"DISAGREES  {r['part']}: {r['name']}, {r['check']}: stored {r['stored']}, found {r['found']}"
             for r in rows if not r["agrees"]]  # fmt: skip
    for part in dict.fromkeys(r["part"] for r in rows):
        mine = [r["agrees"] for r in rows if r["part"] == part]
        lines.append(f"{part:10} {sum(mine)} of {len(mine)} checks agree")
    lines += [f"  {r['name']}: {r['found']}" for r in rows if r["agrees"] and r["check"] == "rebuilt"]
    return "\n".join(lines)


def _row(part: str, name: str, check: str, stored: Any, found: Any, agrees: bool) -> dict[str, Any]:
    return dict(zip(COLUMNS, (part, name, check, stored, found, bool(agrees)), strict=True))


def _short(digits: str) -> str:
    return digits[:12]
