"""Run the book: every notebook in reading order with papermill, then the manifest."""

from __future__ import annotations

import shutil
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tqdm import tqdm

from flashtrace_lib import files
from flashtrace_lib.arguments import check_folder

from . import paths, stale
from .efficiency.core_hours import forecast
from .manifest import cpu_name, git_state, write_manifest
from .methods import check_methods
from .notebooks import find_notebooks, kernel_environment, notebook_dir, report_failure, showing
from .profiles import Profile, load_profile

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # papermill's imports warn of deprecations the reader can do nothing about
    import papermill


@dataclass(frozen=True)
class Outcome:
    """Result of one notebook: its name without suffix, wall-clock seconds, and the last line of its error if any."""

    name: str
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class BookResult:
    """Outcomes of the notebooks, in order, the path of the manifest, and the notebooks that store an earlier table.

    The last are notebooks of any profile that show tables of this one which the run has changed.
    """

    outcomes: tuple[Outcome, ...]
    manifest: Path
    outdated: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 where every notebook ran to its end, else 1."""
        return int(any(outcome.error is not None for outcome in self.outcomes))


def run_book(
    profile: str | Path = "laptop",
    notebooks: list[str] | None = None,
    fresh: bool = False,
    folder: Path | None = None,
    parameters: dict[str, Any] | None = None,
) -> BookResult:
    """Execute the notebooks of the book and write the manifest.

    Before it starts it prints the core-hours that the chapters' evaluations take (`core_hours.forecast`). Executed
    copies stand under ``build/executed/<profile>/``; the committed notebooks are never touched. A notebook that fails
    is reported and does not keep the others from running.

    Parameters
    ----------
    profile : str or Path
        Name or path of the profile; each notebook gets it as its parameter ``profile``.
    notebooks : list of str, optional
        Notebooks to run, by name or number. Default: those of the profile, all of the book where it names none.
    fresh : bool
        Use no stored result: results go to ``build/reproduce/<profile>`` and replace the stored ones when the whole
        book has succeeded. The next fresh run resumes an interrupted or failed one.
    folder : Path, optional
        Folder of the notebooks. Default: the book's.
    parameters : dict, optional
        Further papermill parameters.

    Raises
    ------
    ValueError
        If the profile or a notebook is unknown, a notebook does not declare a parameter, ``fresh`` is asked for a part
        of the book, or a folder that it writes is read-only. No notebook has been run then.
    """
    if fresh and notebooks:
        raise ValueError("a fresh run replaces all stored results, so it takes the whole book: name no notebooks")
    if "profile" in (parameters or {}):
        raise ValueError("the parameter profile follows from the profile that is run: choose that one instead")
    loaded = load_profile(profile)
    folder = notebook_dir() if folder is None else folder
    book = find_notebooks(folder, list(loaded.notebooks or ()))
    selected = find_notebooks(folder, notebooks) if notebooks else book
    is_file = str(profile).endswith((".yaml", ".yml"))
    # Kernels run in another folder, so a file is named by its absolute path.
    parameters = {"profile": str(Path(profile).resolve() if is_file else profile), **(parameters or {})}
    for path in selected:
        check_parameters(path, parameters)
    check_methods(loaded)
    _check_folders(loaded.name)
    restore(paths.results_dir(loaded.name))
    for line in forecast(loaded, [path.stem for path in selected]):
        print(line, flush=True)

    results_root = files.build_root() / "reproduce"
    with kernel_environment(FLASHTRACE_RESULTS_DIR=str(results_root)) if fresh else nullcontext():
        # All chapters, not the profile's alone: one that was run by name keeps its entries.
        result = _run_all(loaded, selected, parameters, book=[path.stem for path in find_notebooks(folder)])
    if fresh and result.exit_code == 0:
        manifest = promote(results_root / loaded.name, paths.results_dir(loaded.name)) / result.manifest.name
        return replace(result, manifest=manifest)
    return result


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


def _check_folders(profile: str) -> None:
    """ValueError where a folder that the book writes takes no file: a chapter would find out at its end."""
    folders = {
        "FLASHTRACE_RESULTS_DIR": paths.results_dir(profile),
        "FLASHTRACE_FIGURES_DIR": paths.figures_dir(profile),
        "FLASHTRACE_BUILD_DIR": paths.executed_dir(profile),
    }
    for variable, folder in folders.items():
        try:
            check_folder(folder)
        except ValueError as error:
            raise ValueError(f"{error}: make it writable, or let {variable} name another folder") from error


def promote(new: Path, old: Path) -> Path:
    """Replace folder ``old`` by folder ``new`` and return ``old``; what it held is deleted after the replacement.

    Until ``old`` is replaced ``new`` stays as it is, so that an interrupted call is made good by another; only between
    two renames ``old`` is missing, see `restore`.

    Raises
    ------
    ValueError
        If ``new`` cannot be copied beside ``old``.
    """
    restore(old)
    copy, aside = old.with_name(f".{old.name}.new"), _aside(old)
    for left in (copy, aside):
        shutil.rmtree(left, ignore_errors=True)
    try:
        shutil.copytree(new, copy)  # on the same disk, where a rename does the rest at once
    except shutil.Error as error:
        shutil.rmtree(copy, ignore_errors=True)
        _, _, why = error.args[0][0]
        raise ValueError(f"{new} cannot be copied to {old} ({why}): mend that, and run the same again") from error
    if old.exists():
        old.rename(aside)
    copy.rename(old)
    for left in (new, aside):
        shutil.rmtree(left, ignore_errors=True)
    return old


def restore(old: Path) -> None:
    """Put a folder back that a `promote` which was killed had moved aside."""
    if not old.exists() and _aside(old).exists():
        _aside(old).rename(old)


def _aside(old: Path) -> Path:
    return old.with_name(f".{old.name}.replaced")


def _run_all(profile: Profile, notebooks: list[Path], parameters: dict[str, Any], book: list[str]) -> BookResult:
    """Run the notebooks; write the manifest after each, so that an interrupted run leaves a true one."""
    results = paths.results_dir(profile.name)
    from_nothing = not (results.is_dir() and any(results.iterdir()))
    extra = {name: value for name, value in parameters.items() if name != "profile"}
    outcomes, manifest, before = [], None, _tables(profile.name)
    for path in tqdm(notebooks, desc=f"book ({profile.name})", unit="notebook"):
        with stale.noting_use(profile.name, path.stem, book) as finished:
            outcome = _run_one(path, paths.executed_dir(profile.name) / path.name, parameters)
            finished.append(outcome.error is None)
        outcomes.append(outcome)
        record = {
            "seconds": round(outcome.seconds, 1),
            "from_nothing": from_nothing,  # otherwise it may have read stored results
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "error": outcome.error,
            "sha256": files.sha256(path),
            "git": git_state(),  # of this notebook's run; those of the manifest are of the last one
            "cpu": cpu_name(),
        }
        manifest = write_manifest(profile, {path.stem: record}, book, extra)
    changed = {name for name, table in _tables(profile.name).items() if before.get(name) != table}
    return BookResult(tuple(outcomes), manifest, tuple(showing(profile.name, changed, notebooks[0].parent)))


def _tables(profile: str) -> dict[str, str]:
    """Hash of each table that stands among a profile's figures, by its name."""
    return {path.stem: files.sha256(path) for path in paths.figures_dir(profile).glob("*.csv")}


def _run_one(path: Path, executed: Path, parameters: dict[str, Any]) -> Outcome:
    executed.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    error = None
    try:
        with kernel_environment():
            bar = {"desc": path.stem, "leave": False}
            options = {"cwd": str(path.parent), "kernel_name": "python3", "progress_bar": bar}
            papermill.execute_notebook(str(path), str(executed), parameters=parameters, **options)
    except Exception as failure:  # a dead kernel, a timeout, an error in a cell: the next notebook is run all the same
        error = report_failure(path.stem, failure)
    return Outcome(path.stem, time.perf_counter() - start, error)
