"""Run the book: every chapter in reading order with papermill, then the claims' page and a manifest."""

import json
import platform
import subprocess
import time
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm import tqdm

from flashtrace_lib import files

from . import claims_page, paths
from .notebooks import find_notebooks, kernel_environment, notebook_dir, report_failure
from .profile import load_profile

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # papermill's imports warn of deprecations the reader can do nothing about
    import papermill

_PACKAGES = ("torch", "transformers", "numpy", "pandas", "matplotlib")


@dataclass(frozen=True)
class Outcome:
    """Result of one chapter: its name without suffix, wall-clock seconds, and the last line of its error if any."""

    name: str
    seconds: float
    error: str | None = None


def run_book(
    profile: str | Path = paths.BOOK,
    notebooks: list[str] | None = None,
    folder: Path | None = None,
    parameters: dict[str, Any] | None = None,
) -> list[Outcome]:
    """Execute chapters; their figures and tables follow from stored results where there are any.

    Executed copies stand under ``build/executed/<profile>/``, the committed notebooks are left alone. A chapter that
    fails is reported and does not keep the others from running. After the whole of profile ``book`` the claims are
    judged and written. ``build/manifest.json`` says when, where and by which code the run was made.

    Parameters
    ----------
    profile : str or Path
        Name or path of the profile; each chapter gets it as its parameter ``profile``.
    notebooks : list of str, optional
        Chapters by name or number. Default: all.
    folder : Path, optional
        Folder of the notebooks. Default: the book's.
    parameters : dict, optional
        Further parameters of papermill.

    Raises
    ------
    ValueError
        If the profile or a chapter is unknown, or a chapter does not declare a parameter. Nothing has been run then.
    """
    loaded = load_profile(profile)
    selected = find_notebooks(notebook_dir() if folder is None else folder, notebooks)
    given = str(Path(profile).resolve()) if str(profile).endswith((".yaml", ".yml")) else str(profile)
    parameters = {"profile": given, **(parameters or {})}
    for path in selected:
        check_parameters(path, parameters)
    outcomes = []
    for path in tqdm(selected, desc=f"book ({loaded.name})", unit="chapter"):
        outcomes.append(_run_one(path, paths.executed_dir(loaded.name) / path.name, parameters))
        tqdm.write(f"{path.stem:24}{outcomes[-1].seconds:7.1f} s  {outcomes[-1].error or 'ok'}")
        _write_manifest(loaded.name, outcomes)
    if loaded.name == paths.BOOK and not notebooks and not failed(outcomes):
        claims_page.write(paths.figures_dir(loaded.name))
    return outcomes


def failed(outcomes: list[Outcome]) -> list[str]:
    """Names of the chapters that ended in an error."""
    return [outcome.name for outcome in outcomes if outcome.error is not None]


def check_parameters(notebook: Path, parameters: dict[str, Any]) -> None:
    """Raise ValueError unless the notebook's ``parameters`` cell declares every one of ``parameters``.

    papermill only warns, and would then run the notebook with its defaults under the wrong name.
    """
    declared = papermill.inspect_notebook(str(notebook))
    unknown = [name for name in parameters if name not in declared]
    if unknown:
        raise ValueError(
            f"{notebook.name} has no parameter {', '.join(unknown)}: it declares {', '.join(declared) or 'none'}; "
            "add it to the cell tagged `parameters`"
        )


def _run_one(path: Path, executed: Path, parameters: dict[str, Any]) -> Outcome:
    executed.parent.mkdir(parents=True, exist_ok=True)
    start, error = time.perf_counter(), None
    try:
        with kernel_environment():
            bar = {"desc": path.stem, "leave": False}
            options = {"cwd": str(path.parent), "kernel_name": "python3", "progress_bar": bar}
            papermill.execute_notebook(str(path), str(executed), parameters=parameters, **options)
    except Exception as failure:  # a dead kernel, a timeout, an error in a cell: the next chapter is run all the same
        error = report_failure(path.stem, failure)
    return Outcome(path.stem, time.perf_counter() - start, error)


def _write_manifest(profile: str, outcomes: list[Outcome]) -> None:
    record = {
        "profile": profile,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len(_git("status", "--porcelain").splitlines()),
        "chapters": {o.name: {"seconds": round(o.seconds, 1), "error": o.error} for o in outcomes},
    }
    files.write_text(files.build_root() / "manifest.json", json.dumps(record, indent=1) + "\n")


def _git(*arguments: str) -> str:
    """Output of git in the checkout; empty where there is no git or no repository."""
    try:
        found = subprocess.run(
            ["git", "-C", str(files.root()), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return found.stdout.strip()
