"""Environment of the tests and of the kernels that nbval starts: imported by the conftest of either folder."""

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing may depend on a network
os.environ["TQDM_DISABLE"] = "1"  # a bar's last state holds a time, which no stored output can match
# Kernels import this checkout, installed or not.
_PATHS = [str(ROOT), str(ROOT / "notebooks"), os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATHS))
# The tests leave the committed figures alone. Each process has a copy of its own: chapters note claims in one file.
_FIGURES = ROOT / "build" / "test" / os.environ.get("PYTEST_XDIST_WORKER", "alone") / "figures"
if os.environ.get("FLASHTRACE_FIGURES_DIR") != str(_FIGURES):  # else this is a process that a test started
    shutil.rmtree(_FIGURES, ignore_errors=True)
    shutil.copytree(ROOT / "figures", _FIGURES)
    os.environ["FLASHTRACE_FIGURES_DIR"] = str(_FIGURES)

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # two processes with two threads each only wait for each other
    import torch

    torch.set_num_threads(1)

from flashtrace_lib.bench.memory import KEEP_PAGES  # noqa: E402 - after the environment above is set

for name, value in KEEP_PAGES.items():
    os.environ.setdefault(name, value)  # for the kernels
