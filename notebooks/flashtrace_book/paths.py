"""Folders that the book reads and writes.

All lie in the checkout unless the environment names others: ``FLASHTRACE_RESULTS_DIR``, ``FLASHTRACE_FIGURES_DIR`` and
``FLASHTRACE_BUILD_DIR`` are roots that hold one folder per profile, ``FLASHTRACE_DATA_DIR`` is a folder of real
records, ``FLASHTRACE_ROOT`` is the checkout. No folder is created here.
"""

from __future__ import annotations

import os
from pathlib import Path

import flashtrace_lib
from flashtrace_lib.files import build_root, in_checkout, path_from_environment


def results_root() -> Path:
    """Root of stored results, one folder per profile."""
    return path_from_environment("FLASHTRACE_RESULTS_DIR", "data/results")


def figures_root() -> Path:
    """Root of generated figures and tables, one folder per profile."""
    return path_from_environment("FLASHTRACE_FIGURES_DIR", "figures")


def results_dir(profile: str) -> Path:
    """Stored results of a profile."""
    return results_root() / profile


def figures_dir(profile: str) -> Path:
    """Figures and tables of a profile."""
    return figures_root() / profile


def stored_table(profile: str, name: str) -> Path | None:
    """File of a profile's table; where figures are sent elsewhere, as by tests, the checkout's own file stands in."""
    folders = (figures_dir(profile), in_checkout("figures") / profile)
    return next((path for folder in folders if (path := folder / f"{name}.csv").is_file()), None)


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


def is_adapter(model: str) -> bool:
    """Whether a model's name is a folder of the checkout that holds an adapter of the embedded model."""
    from flashtrace_lib.model.embedded import CONFIG  # the paths alone load no torch

    return (in_checkout(model) / CONFIG).is_file()


def python_path() -> str:
    """``PYTHONPATH`` with which a process imports this checkout, installed or not; it ends with the present one."""
    own = [str(Path(file).resolve().parents[1]) for file in (flashtrace_lib.__file__, __file__)]
    others = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and part not in own]
    return os.pathsep.join([*own, *others])
