"""The two halves of a notebook: ``notebooks/py/NAME.py`` is edited, ``notebooks/NAME.ipynb`` carries the outputs."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from tqdm import tqdm

from flashtrace_lib import files
from flashtrace_lib.bench.memory import KEEP_PAGES

from . import paths

_KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
_NEW_CELL = {kind: getattr(nbformat.v4, f"new_{kind}_cell") for kind in ("markdown", "code", "raw")}
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def notebook_dir() -> Path:
    """Folder of the book's notebooks."""
    return files.root() / "notebooks"


def find_notebooks(folder: Path, names: list[str] | None = None, suffix: str = ".ipynb") -> list[Path]:
    """Notebooks of ``folder`` in reading order.

    Parameters
    ----------
    names : list of str, optional
        Only these: the full name, with or without its suffix, or its number (``"05"``).
    suffix : str
        ``.ipynb``, or ``.py`` for the edited halves.

    Raises
    ------
    ValueError
        If the folder has no notebook, or none of a given name.
    """
    known = sorted(path for path in folder.glob(f"*{suffix}") if not path.name.startswith("."))
    if not known:
        raise ValueError(f"no notebook (*{suffix}) in {folder}: run inside the book's checkout")
    if not names:
        return known
    selected = set()
    for name in names:
        stem = Path(name).name.removesuffix(".ipynb").removesuffix(".py")
        matches = [path for path in known if path.stem == stem or path.stem.split("_")[0] == stem]
        if not matches:
            raise ValueError(f"no notebook {name!r} in {folder}: known are {', '.join(path.stem for path in known)}")
        selected.update(matches)
    return sorted(selected)


def read_source(path: Path) -> NotebookNode:
    """Notebook without outputs, from its edited half.

    Cell ids follow from name and position, and the only metadata are the kernel and the cells' tags: two runs of one
    notebook differ only where their outputs do.
    """
    notebook, cells = jupytext.read(path, fmt="py:percent"), []
    for index, cell in enumerate(notebook.cells):
        tags = cell.metadata.get("tags")
        metadata = {"tags": tags} if tags else {}
        cells.append(_NEW_CELL[cell.cell_type](cell.source, id=f"{path.stem}-{index}"[:64], metadata=metadata))
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": dict(_KERNEL)})


def execute(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Run a notebook in ``folder`` and keep its outputs, without times or widget states.

    Kernel and language stay as JupyterLab would write them: a tab that is opened is not marked as modified.
    """
    kept = {"record_timing": False, "store_widget_state": False, "resources": {"metadata": {"path": str(folder)}}}
    client = NotebookClient(notebook, timeout=None, kernel_name="python3", **kept)
    with kernel_environment(TQDM_DISABLE="1"):  # a progress bar's last state holds a time
        client.execute()
    notebook.metadata = NotebookNode(kernelspec=dict(_KERNEL), language_info=notebook.metadata.language_info)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    nbformat.validate(notebook)
    return notebook


def refresh_notebooks(names: list[str] | None = None, folder: Path | None = None) -> list[str]:
    """Regenerate the committed ``.ipynb`` from their ``.py`` halves and execute them.

    Parameters
    ----------
    names : list of str, optional
        As for `find_notebooks`. Default: all.
    folder : Path, optional
        Folder of the ``.ipynb``; the ``.py`` lie in its ``py/``. Default: the book's.

    Returns
    -------
    list of str
        Names of the notebooks that failed. Their ``.ipynb`` are left as they were.

    Raises
    ------
    ValueError
        If a name is unknown.
    """
    folder = notebook_dir() if folder is None else folder
    failed = []
    for source in tqdm(find_notebooks(folder / "py", names, suffix=".py"), desc="notebooks"):
        try:
            notebook = execute(read_source(source), folder)
        except Exception as error:  # whatever stops one notebook, the next one runs
            report_failure(source.stem, error)
            failed.append(source.stem)
            continue
        files.write_text(folder / f"{source.stem}.ipynb", nbformat.writes(notebook) + "\n")
    return failed


def report_failure(name: str, error: BaseException) -> str:
    """Print the error of a notebook without colour codes, and return its last line."""
    text = _ANSI.sub("", f"{type(error).__name__}: {error}").strip()
    tqdm.write(f"\n{name} failed\n{text}\n", file=sys.stderr)
    return text.splitlines()[-1].strip()


@contextmanager
def kernel_environment(**changes: str) -> Iterator[None]:
    """Environment in which kernels import this checkout, installed or not, keep memory, and see ``changes``."""
    before = dict(os.environ)
    changes = {name: value for name, value in KEEP_PAGES.items() if name not in before} | changes
    os.environ.update(changes, PYTHONPATH=paths.python_path())
    try:
        yield
    finally:
        for name in ("PYTHONPATH", *changes):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]
