"""Stored records that no notebook uses any more: list and remove them.

Settings change, samples are drawn again, timed code is rewritten: the records under the old keys remain, and whoever
reads a store as a whole (the claims, a reader with pandas) would take them for results. While the book runs, every
store notes the keys that are read or written; ``used.json`` beside the results keeps them by notebook.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from flashtrace_lib import files
from flashtrace_lib.store import USED_LOG, Store, names_in

from . import paths
from .manifest import only_writer
from .notebooks import find_notebooks, kernel_environment, notebook_dir
from .profiles import Profile

USED = "used.json"
Keys = dict[str, list[str]]  # name of a store -> keys, sorted


@contextmanager
def noting_use(profile: str, notebook: str, book: list[str]) -> Iterator[list[bool]]:
    """Note which keys of a profile's stores are used inside, and keep them as the notebook's if it succeeds.

    Until then they stand in a log beside the results, and count as used beside those of the last success: a notebook
    that runs, failed or was interrupted keeps what it has computed. Its next success removes the logs.

    Parameters
    ----------
    profile, notebook : str
    book : list of str
        Names of all notebooks: entries of others are dropped.

    Yields
    ------
    list of bool
        Append whether the notebook succeeded. A failed one may not have reached all records that it needs.
    """
    succeeded: list[bool] = []
    log = _logs(profile) / f"{notebook}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tsv"
    with files.writing(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
    with kernel_environment(**{USED_LOG: str(log)}):
        yield succeeded
    if succeeded and all(succeeded):
        with only_writer(profile):
            used = {name: keys for name, keys in _last_successes(profile).items() if name in book}
            used[notebook] = _of_profile(profile, log.read_text(encoding="utf-8"))
            text = json.dumps(dict(sorted(used.items())), indent=1) + "\n"
            files.write_text(paths.results_dir(profile) / USED, text)
        for path in _logs(profile).glob("*.tsv"):
            if path.name.startswith(f"{notebook}.") and not _runs_elsewhere(path):
                path.unlink(missing_ok=True)


def _logs(profile: str) -> Path:
    """Folder of the logs of notebooks that run, failed or were interrupted: ``<notebook>.<process>.<number>.tsv``."""
    return paths.results_dir(profile) / ".using"


def _runs_elsewhere(log: Path) -> bool:
    """Whether another process that opened a log is alive."""
    process = int(log.name.split(".")[-3])
    return process != os.getpid() and psutil.pid_exists(process)


def _of_profile(profile: str, log: str) -> Keys:
    """Keys by store in a log of use; stores outside the profile's folder are left out."""
    folder = paths.results_dir(profile).resolve()
    used: dict[str, set[str]] = {}
    for line in log.splitlines():
        path, _, key = line.partition("\t")
        if Path(path).parent == folder:
            used.setdefault(Path(path).stem, set()).add(key)
    return {name: sorted(keys) for name, keys in sorted(used.items())}


def used_keys(profile: str) -> dict[str, Keys]:
    """Keys that each notebook used when it last succeeded, and since then; empty where none has run yet."""
    used = _last_successes(profile)
    for log in sorted(_logs(profile).glob("*.tsv")):
        own = used.setdefault(log.name.rsplit(".", 3)[0], {})
        for store, keys in _of_profile(profile, log.read_text(encoding="utf-8")).items():
            own[store] = sorted({*own.get(store, ()), *keys})
    return used


def _last_successes(profile: str) -> dict[str, Keys]:
    path = paths.results_dir(profile) / USED
    return files.read_json(path) if path.is_file() else {}


def unused(profile: Profile, book: list[str] | None = None) -> Keys:
    """Keys of the profile's stored records that no notebook used when it last ran, by store.

    Parameters
    ----------
    profile : Profile
    book : list of str, optional
        Names of all notebooks of the profile. Default: the book's.

    Raises
    ------
    ValueError
        If the keys that a notebook of the profile uses were never noted: its records would count as unused.
    """
    if book is None:
        book = [path.stem for path in find_notebooks(notebook_dir(), list(profile.notebooks or ()))]
    by_notebook = used_keys(profile.name)
    missing = [name for name in book if name not in by_notebook]
    if missing:
        raise ValueError(
            f"it is not known which records {', '.join(missing)} uses: run "
            f"`python -m flashtrace_lib book --profile {profile.name}` first"
        )
    used: dict[str, set[str]] = {}
    for stores in by_notebook.values():
        for name, keys in stores.items():
            used.setdefault(name, set()).update(keys)
    unused_keys = {}
    for name in names_in(paths.results_dir(profile.name)):
        keys = set(Store(paths.results_dir(profile.name) / name).column("key")) - used.get(name, set())
        if keys:
            unused_keys[name] = sorted(keys)
    return unused_keys


def remove(profile: Profile, book: list[str] | None = None) -> Keys:
    """Remove the records that `unused` lists, each store atomically, and return their keys.

    A store that becomes empty is deleted.
    """
    removed = unused(profile, book)
    for name, keys in removed.items():
        store = Store(paths.results_dir(profile.name) / name)
        store.drop(keys)
        if not len(store):
            store.path.unlink()
            shutil.rmtree(store.more, ignore_errors=True)
    return removed
