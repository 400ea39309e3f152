"""Figures and tables drawn again from stored rows, under other threads and instructions: not a byte differs."""

import os
import subprocess
import sys

import pytest

from tests.environment import ROOT

DRAW = """
import sys
import matplotlib
matplotlib.use("Agg")
from flashtrace_book.notebooks import notebook_dir, read_source
for name in sys.argv[1:]:
    space = {"display": lambda *shown: None}
    for cell in read_source(notebook_dir() / "py" / f"{name}.py").cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, name, "exec"), space)
assert not any(name.startswith("transformers.models.llama") for name in sys.modules)
"""
SETTINGS = {
    "one thread": {"OMP_NUM_THREADS": "1"},
    "two threads, AVX2": {"OMP_NUM_THREADS": "2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
                          "MKL_CBWR": "AVX2"},
    "no vectors": {"OMP_NUM_THREADS": "2", "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41",
                   "MKL_CBWR": "COMPATIBLE", "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3"},
}  # fmt: skip
CHAPTERS = ("05_ruler", "06_math", "10_ablations")


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_figures_do_not_depend_on_the_processor(name, tmp_path):
    folder = tmp_path / "figures"
    environment = os.environ | SETTINGS[name] | {"FLASHTRACE_FIGURES_DIR": str(folder)}
    command = [sys.executable, "-W", "ignore", "-c", DRAW, *CHAPTERS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    drawn = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".png", ".csv")}
    claims = drawn.pop("claims.csv").decode().splitlines()
    assert len([n for n in drawn if n.endswith(".png")]) >= 4
    differ = [n for n, data in drawn.items() if data != (ROOT / "figures" / n).read_bytes()]
    assert not differ, f"{differ} are not what the chapters make: run `make book`"
    assert set(claims) <= set((ROOT / "figures" / "claims.csv").read_text(encoding="utf-8").splitlines())
