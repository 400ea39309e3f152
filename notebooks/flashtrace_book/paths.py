"""Folders that the book reads and writes.

What profile ``book`` makes is committed: ``data/results`` and ``figures``. What others make goes to ``build``. The
environment may name others: ``FLASHTRACE_RESULTS_DIR`` and ``FLASHTRACE_FIGURES_DIR`` for profile ``book``,
``FLASHTRACE_BUILD_DIR``, and ``FLASHTRACE_DATA_DIR`` for a folder of real records. No folder is created here.
"""

import os
import re
from pathlib import Path

import flashtrace_lib
from flashtrace_lib.files import build_root, in_checkout, path_from_environment

BOOK = "book"  # the profile whose results and figures are committed
_NAME = re.compile(r"[a-z0-9][a-z0-9_]*")


def results_file(profile: str, name: str) -> Path:
    """Stored results of a profile."""
    if profile == BOOK:
        return path_from_environment("FLASHTRACE_RESULTS_DIR", "data/results") / f"{checked(name)}.parquet"
    return build_root() / "results" / profile / f"{checked(name)}.parquet"


def gpu_file() -> Path:
    """Where ``scripts/gpu_bench.sh`` keeps its rows, in a checkout in which it was run."""
    return results_file(BOOK, "gpu").with_suffix(".json")


def working_store(profile: str, name: str) -> Path:
    """Where records of a profile's results are kept while they are made, so that an interrupted run goes on."""
    return build_root() / "working" / profile / checked(name)


def figures_dir(profile: str) -> Path:
    """Figures, tables and claims of a profile."""
    if profile == BOOK:
        return path_from_environment("FLASHTRACE_FIGURES_DIR", "figures")
    return build_root() / "figures" / profile


def executed_dir(profile: str) -> Path:
    """Executed copies of the notebooks of a profile."""
    return build_root() / "executed" / profile


def data_dir(named: str | None = None) -> Path | None:
    """Folder of real records: ``FLASHTRACE_DATA_DIR``, else ``named`` (relative to the checkout), else None."""
    named = os.environ.get("FLASHTRACE_DATA_DIR") or named
    return None if named is None else in_checkout(named)


def model_path(model: str) -> str:
    """What ``load_model`` takes for a model's name in a profile: the path of a folder of the checkout, or the name."""
    folder = in_checkout(model)  # such as an adapter under data/, wherever the notebook runs
    return str(folder) if folder.is_dir() else model


def checked(name: str) -> str:
    """The name of a file without its suffix; ValueError where it cannot be one."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name a file here: use lower-case letters, digits and '_', without a suffix")
    return name


def python_path() -> str:
    """``PYTHONPATH`` with which a process imports this checkout, installed or not; it ends with the present one."""
    own = [str(Path(file).resolve().parents[1]) for file in (flashtrace_lib.__file__, __file__)]
    others = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and part not in own]
    return os.pathsep.join([*own, *others])
