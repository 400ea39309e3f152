"""Find and remove stored records that no notebook uses any more.

Settings change, samples are drawn anew, timed code is rewritten: records under the old keys stay behind, and a reader
of a whole store (the claims, a user with pandas) would take them for results. While the book runs, every store logs
the keys that are read or written; ``used.json`` beside the results keeps those of each notebook's last run.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flashtrace_lib import files
from flashtrace_lib.store import USED_LOG, Store

from . import paths
from .notebooks import find_notebooks, kernel_environment, notebook_dir
from .profiles import Profile

USED = "used.json"
Keys = dict[str, list[str]]  # name of a store -> keys, sorted


@contextmanager
def noting_use(profile: str, notebook: str, book: list[str]) -> Iterator[list[bool]]:
    """Log the keys of a profile's stores that are used inside; save them for the notebook if it succeeds.

    Parameters
    ----------
    profile, notebook : str
        Names.
    book : list of str
        Names of all notebooks of the book: entries of others are dropped.

    Yields
    ------
    list of bool
        Append whether the notebook succeeded; a failed one has not used all that it needs.
    """
    succeeded: list[bool] = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "used.tsv"
        log.touch()
        with kernel_environment(**{USED_LOG: str(log)}):
            yield succeeded
        if succeeded and all(succeeded):
            used = {name: keys for name, keys in used_keys(profile).items() if name in book}
            used[notebook] = _of_profile(profile, log.read_text(encoding="utf-8"))
            text = json.dumps(dict(sorted(used.items())), indent=1) + "\n"
            files.write_text(paths.results_dir(profile) / USED, text)


def _of_profile(profile: str, log: str) -> Keys:
    """Keys in a log, of the stores in the profile's folder alone."""
    folder = paths.results_dir(profile).resolve()
    by_store: dict[str, set[str]] = {}
    for line in log.splitlines():
        path, _, key = line.partition("\t")
        if Path(path).parent == folder:
            by_store.setdefault(Path(path).stem, set()).add(key)
    return {name: sorted(keys) for name, keys in sorted(by_store.items())}


def used_keys(profile: str) -> dict[str, Keys]:
    """Keys that each notebook used when it last succeeded, by notebook; empty where none has run yet."""
    path = paths.results_dir(profile) / USED
    return files.read_json(path) if path.is_file() else {}


def unused(profile: Profile, book: list[str] | None = None) -> Keys:
    """Keys of the profile's stored records that no notebook used when it last ran, by store.

    Parameters
    ----------
    book : list of str, optional
        Names of all notebooks of the profile. Default: the book's.

    Raises
    ------
    ValueError
        If a notebook of the profile has not been run since use is noted: its records would count as unused.
    """
    if book is None:
        book = [path.stem for path in find_notebooks(notebook_dir(), list(profile.notebooks or ()))]
    by_notebook = used_keys(profile.name)
    if missing := [name for name in book if name not in by_notebook]:
        raise ValueError(
            f"it is not known which records {', '.join(missing)} uses: run "
            f"`python -m flashtrace_lib book --profile {profile.name}` first"
        )
    used: dict[str, set[str]] = {}
    for stores in by_notebook.values():
        for name, keys in stores.items():
            used.setdefault(name, set()).update(keys)
    unused_keys = {}
    for name in stored(profile.name):
        keys = set(Store(paths.results_dir(profile.name) / name).records()["key"]) - used.get(name, set())
        if keys:
            unused_keys[name] = sorted(keys)
    return unused_keys


def stored(profile: str) -> list[str]:
    """Names of the profile's stores."""
    folder = paths.results_dir(profile)
    parts = [path.stem for path in folder.glob("*.parts") if any(path.glob("*.parquet"))]
    return sorted({path.stem for path in folder.glob("*.parquet")} | set(parts))


def remove(profile: Profile, book: list[str] | None = None) -> Keys:
    """Remove the records that `unused` finds, and return their keys.

    Each store is rewritten atomically; one without records left is deleted.
    """
    removed = unused(profile, book)
    for name, keys in removed.items():
        store = Store(paths.results_dir(profile.name) / name)
        store.drop(keys)
        if not len(store):
            os.unlink(store.path)
    return removed
