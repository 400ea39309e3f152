"""Measure what seconds `make figure` takes in each chapter: ``python -m scripts.chapter_seconds [CHAPTER …]``.

Each chapter is run from stored results in a process of its own, start included, as `make figure` does; its figures go
to a copy. The seconds, rounded to 5, are written beside ``claims.yaml`` with the machine; the claims page has them.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "notebooks" / "flashtrace_book" / "chapter_seconds.json"


def seconds_of(chapter: str, folder: str) -> int:
    """Wall seconds of one chapter, rounded to 5."""
    figures = Path(folder) / "figures"
    shutil.copytree(ROOT / "figures", figures, dirs_exist_ok=True)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "notebooks")])
    environment = {"PYTHONPATH": paths, "FLASHTRACE_FIGURES_DIR": str(figures), "FLASHTRACE_BUILD_DIR": folder}
    start = time.perf_counter()
    command = [sys.executable, "-m", "flashtrace_lib", "book", chapter]
    subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=True, stdout=subprocess.DEVNULL)
    return max(5, 5 * round((time.perf_counter() - start) / 5))


def machine() -> str:
    """Cores and name of the processor."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", info.read_text(encoding="utf-8")) if info.exists() else None
    return f"{os.cpu_count()} cores, {found[1] if found else platform.machine()}"


def main() -> None:
    """Measure the chapters that are named, or all, and write the file."""
    known = json.loads(FILE.read_text(encoding="utf-8"))["seconds"] if FILE.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for chapter in sys.argv[1:] or sorted(path.stem for path in (ROOT / "notebooks" / "py").glob("*.py")):
            known[chapter] = seconds_of(chapter, folder)
            print(chapter, known[chapter], flush=True)
    text = json.dumps({"machine": machine(), "seconds": dict(sorted(known.items()))}, indent=1)
    FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
