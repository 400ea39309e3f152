"""The audit of a profile: its files against the manifest, its stored results against what is computed again."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from flashtrace_lib import files
from flashtrace_lib.fingerprints import sample_fingerprint
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store, names_in

from . import paths
from .manifest import data_hashes
from .notebooks import without_audit
from .profiles import Profile
from .recompute import RESULTS, Check, Source, Subject, how_audited
from .run import Run

FILES, NOTEBOOKS = "files", "notebooks"


# --- files and notebooks --------------------------------------------------------------------------------------


def audit_files(profile: Profile) -> list[Check]:
    """Compare every figure and table, and the book's data, with the hashes of the profile's manifest; needs no model.

    Returns
    -------
    list of Check
        One for each file that is missing, changed or not listed, and one for all that agree.
    """
    path = paths.results_dir(profile.name) / "manifest.json"
    if not path.is_file():
        return [Check(FILES, "manifest.json", "is there", "", "missing: run the book", False)]
    try:
        manifest = files.read_json(path)
    except ValueError as error:
        return [Check(FILES, "manifest.json", "can be read", "", str(error), False)]
    checks = compare_hashes("figures", manifest.get("outputs", {}), files.hash_tree(paths.figures_dir(profile.name)))
    for name, hashes in data_hashes(profile).items():
        listed = manifest.get("data", {}).get(name, {})
        checks += compare_hashes(name, listed, hashes) if hashes or not listed else [_no_data(profile, name, listed)]
    return checks


def _no_data(profile: Profile, name: str, listed: Mapping[str, str]) -> Check:
    """One check that says what to do where none of the listed files of a folder is there."""
    hint = "set FLASHTRACE_DATA_DIR to the folder that has them" if name == "data_dir" else "check the book out again"
    return Check(FILES, f"{name} of profile {profile.name}", "is there", f"{len(listed)} files", f"none: {hint}", False)


def compare_hashes(folder: str, listed: Mapping[str, str], found: Mapping[str, str]) -> list[Check]:
    """One check for each difference between two sets of hashes, and one for the files that agree."""
    differing = [name for name in sorted({*listed, *found}) if listed.get(name) != found.get(name)]
    checks = [
        Check(FILES, f"{folder}: {name}", "SHA-256", listed.get(name, "not listed")[:12],
              found.get(name, "missing")[:12], False)
        for name in differing
    ]  # fmt: skip
    same = len(listed.keys() - differing)
    return [*checks, Check(FILES, f"{folder}: {same} files", "SHA-256", "listed", "the same", True)] if same else checks


def audit_notebooks(folder: Path | None = None) -> list[Check]:
    """Check that every notebook ends in an audit cell."""
    lacking = without_audit(folder)
    checks = [Check(NOTEBOOKS, name, "ends in an audit cell", "yes", "no", False) for name in lacking]
    return checks or [Check(NOTEBOOKS, "all", "ends in an audit cell", "yes", "yes", True)]


# --- stored results -------------------------------------------------------------------------------------------


def audit_profile(
    profile: Profile,
    model: torch.nn.Module,
    tokenizer: Any,
    k: int = 1,
    seed: int = 0,
    samples: Mapping[str, Sample] | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> list[Check]:
    """Compute ``k`` records of every store again from scratch, chosen at random.

    Attributions and curves must agree within the tolerance of `evaluation.audit`; responses must be the text of their
    tokens. Times cannot be repeated: a sweep goes through `efficiency.audit`, other times must be positive and give the
    medians that are printed. Works on a copy, so that nothing stored is changed.

    Parameters
    ----------
    profile : Profile
    model : transformers.PreTrainedModel
        The profile's. Records of another model are counted and left alone; it must be one that a notebook has noted.
    tokenizer : transformers.PreTrainedTokenizerBase
    k, seed : int
        Number of records, and the seed that chooses them.
    samples : mapping of str to Sample, optional
        By `fingerprints.sample_fingerprint`, for every store. Default: those that the chapters make.
    log : callable, optional
        Takes a line after every store: an audit may take long.

    Returns
    -------
    list of Check
    """
    with _copied(paths.results_dir(profile.name)):
        stores = {
            name: Store(paths.results_dir(profile.name) / name) for name in names_in(paths.results_dir(profile.name))
        }
        sources = {name: audited.sources if (audited := how_audited(name)) else () for name in stores}
        needed = list(dict.fromkeys(chain.from_iterable(sources.values())))
        if samples is None:
            built, checks = rebuild_samples(needed, Run(profile), model, tokenizer)
        else:
            built, checks = dict.fromkeys(needed, samples), []
        log(f"{len(set().union(*built.values()))} samples rebuilt")
        for name, store in stores.items():
            started, rng = time.perf_counter(), random.Random(f"{seed} {name}")
            known = {key: sample for source in sources[name] for key, sample in built.get(source, {}).items()}
            found = _audit_store(Subject(store, profile, model, tokenizer, known, k, rng))
            agree = "agrees" if all(check.agrees for check in found) else "DISAGREES"
            log(f"{name}: {agree} ({time.perf_counter() - started:.0f} s)")
            checks += found
    return checks


def rebuild_samples(
    sources: Iterable[Source], run: Run, model: torch.nn.Module, tokenizer: Any
) -> tuple[dict[Source, dict[str, Sample]], list[Check]]:
    """Build samples again from the stored responses; a source whose responses are not stored is left out.

    Returns
    -------
    built : dict of Source to dict of str to Sample
        The samples of each source by their fingerprints.
    failed : list of Check
        One for each source that cannot be built.
    """
    built, failed = {}, []
    for source in sources:
        if not Store(run.store(source.responses)).path.is_file():
            continue
        try:
            built[source] = {sample_fingerprint(sample): sample for sample in source.build(run, model, tokenizer)}
        except ValueError as error:
            failed.append(Check(RESULTS, source.responses, "samples are rebuilt", "", str(error), False))
    return built, failed


def _audit_store(subject: Subject) -> list[Check]:
    """Checks of one store; one that disagrees where the store cannot be read or nobody says how to audit it."""
    try:
        if audited := how_audited(subject.name):
            return audited.check(subject)
        columns = ", ".join(subject.store.records().columns)
        problem = f"no chapter says how to audit it: add it to recompute.RECOMPUTE (its columns are {columns})"
    except KeyError as error:
        problem = f"its records have no {error}"
    except ValueError as error:  # a damaged file
        problem = str(error)
    return [Check(RESULTS, subject.name, "can be read", "", problem, False)]


@contextmanager
def _copied(folder: Path) -> Iterator[None]:
    """Results are read from a copy meanwhile: to read them may compact them or add to them."""
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


# --- the report -----------------------------------------------------------------------------------------------


def report(checks: list[Check]) -> str:
    """An audit for readers: each check that disagrees on a line of its own, and the count of every part."""
    lines = [
        f"DISAGREES  {c.part}: {c.name}, {c.check}: stored {c.stored}, found {c.found}" for c in checks if not c.agrees
    ]
    for part in dict.fromkeys(c.part for c in checks):
        verdicts = [c.agrees for c in checks if c.part == part]
        lines.append(f"{part:10} {sum(verdicts)} of {len(verdicts)} checks agree")
    lines += [f"  {c.name}: {c.found}" for c in checks if c.agrees and c.check == "rebuilt"]
    return "\n".join(lines)
