"""Measure whether two versions of the code take the same time, and note the methods that do.

Stored times are of the code that they were measured of (`flashtrace_lib.bench.measured_code`): a change to a check or a
name would have them all measured again, on a machine that must be idle for hours. A method whose time in this version
differs from that in an earlier one by less than 3 %, in the median of pairs of runs that follow each other, keeps its
times:

    python scripts/same_times.py CHECKOUT_OF_THE_EARLIER_VERSION

writes ``flashtrace_lib/bench/same_times.json``: the ratio of each method, and the two hashes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "flashtrace_lib" / "bench" / "same_times.json"
LIMIT = 0.03
PAIRS = 9
# What every version of the library has; methods that take a pass per unit or step are given few of them. Each line
# that the worker reads is a method's name, and is answered by the seconds that one run of it took the processor.
WORKER = """
import json, sys, time
import torch
from flashtrace_lib import load_model
from flashtrace_lib.bench.measure import bench_sample
from flashtrace_lib.bench.measured_code import code_of
from flashtrace_lib.methods import METHODS
FEW = {"reagent": {"runs": 1, "max_steps": 2}, "contextcite": {"n_masks": 8}, "at2": {"weights": "uniform"}}
FEW |= dict.fromkeys(("ig", "ig_attn"), {"steps": 20})
torch.set_num_threads(1)
print(json.dumps({name: code_of(kind) for name, kind in METHODS.items()}), flush=True)
model, _ = load_model("embedded-base")
sample = bench_sample(12, 12, model.get_input_embeddings().num_embeddings)
sample.sentences = [(0, 6), (6, 12), (12, 18), (18, 24)]
for line in sys.stdin:
    method = METHODS[line.strip()](**FEW.get(line.strip(), {}))
    begun = time.process_time()
    method.attribute(model, sample)
    print(json.dumps(time.process_time() - begun), flush=True)
"""


class Worker:
    """A process of one version that times what it is asked for."""

    def __init__(self, checkout: Path):
        environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER], cwd=checkout, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.codes: dict[str, str] = self._read()

    def seconds(self, method: str) -> float:
        """Of one run."""
        self._process.stdin.write(f"{method}\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self):
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a worker has ended, see above")
        return json.loads(line)


def main() -> None:
    """Measure, print a line for each method, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("earlier", type=Path, help="checkout of the version that the stored times are of")
    earlier, now = Worker(parser.parse_args().earlier.resolve()), Worker(ROOT)
    noted = json.loads(TARGET.read_text(encoding="utf-8"))
    changed = [name for name, code in now.codes.items() if earlier.codes.get(name, code) != code]
    for name in tqdm(changed, desc="methods"):
        ratios = []
        for i in range(PAIRS + 1):  # the first pair warms up; each version goes first in turn
            pair = [now, earlier] if i % 2 else [earlier, now]
            seconds = {worker: worker.seconds(name) for worker in pair}
            ratios.append(seconds[now] / seconds[earlier])
        ratio = statistics.median(ratios[1:])
        kept = abs(ratio - 1) < LIMIT
        tqdm.write(
            f"{name:16} {ratio:.3f} [{min(ratios[1:]):.3f}, {max(ratios[1:]):.3f}] {'kept' if kept else 'AGAIN'}"
        )
        if kept:
            noted[now.codes[name]] = {"method": name, "as": earlier.codes[name], "ratio": round(ratio, 4)}
    TARGET.write_text(json.dumps(noted, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
