"""Measure whether two versions of the code take the same time, and note the methods that do.

Stored times are of the code that they were measured of (`flashtrace_lib.bench.measured_code`): a change to a check or a
name would have them all measured again, on a machine that must be idle for hours. Where both versions, one after the
other in turn on the same machine, differ by less than 3 %, the times of the earlier one are kept:

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
TURNS = 2  # processes of each version, in turn
# What every version of the library has; methods that take a pass per unit or step are given few of them.
WORKER = """
import json, sys, time
import torch
from flashtrace_lib import load_model
from flashtrace_lib.bench.measure import bench_sample
from flashtrace_lib.bench.measured_code import code_of
from flashtrace_lib.methods import METHODS
FEW = {"reagent": {"runs": 1, "max_steps": 3}, "contextcite": {"n_masks": 8}}
FEW |= dict.fromkeys(("ig", "ig_attn"), {"steps": 20})
torch.set_num_threads(1)
names = json.loads(sys.argv[1])
if names is None:
    print(json.dumps({name: code_of(kind) for name, kind in METHODS.items()}))
    sys.exit()
model, _ = load_model("embedded-base")
sample = bench_sample(12, 12, model.get_input_embeddings().num_embeddings)
sample.sentences = [(0, 6), (6, 12), (12, 18), (18, 24)]
found = {}
for name in names:
    try:
        method = METHODS[name](**FEW.get(name, {}))
        method.attribute(model, sample)
    except ValueError as error:
        print(name, error, file=sys.stderr)
        continue
    found[name] = []
    for _ in range(3):
        begun = time.process_time()
        method.attribute(model, sample)
        found[name].append(time.process_time() - begun)
print(json.dumps(found))
"""


def worker(checkout: Path, names: list[str] | None) -> dict:
    """What one process of a version prints: the hashes of all methods, or the seconds of some."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    command = [sys.executable, "-c", WORKER, json.dumps(names)]
    done = subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure, print a line for each method, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("earlier", type=Path, help="checkout of the version that the stored times are of")
    earlier = parser.parse_args().earlier.resolve()
    versions = {"earlier": earlier, "now": ROOT}
    codes = {name: worker(path, None) for name, path in versions.items()}
    changed = [name for name, code in codes["now"].items() if codes["earlier"].get(name, code) != code]
    seconds: dict[str, dict[str, list[float]]] = {name: {} for name in versions}
    for _ in tqdm(range(TURNS), desc="turns"):
        for version, path in versions.items():
            for name, values in worker(path, changed).items():
                seconds[version].setdefault(name, []).extend(values)
    same = json.loads(TARGET.read_text(encoding="utf-8")) if TARGET.is_file() else {}
    for name in changed:
        if name not in seconds["now"]:
            print(f"{name:16} not measured")
            continue
        ratio = statistics.median(seconds["now"][name]) / statistics.median(seconds["earlier"][name])
        kept = abs(ratio - 1) < LIMIT
        print(f"{name:16} {ratio:.3f} {'kept' if kept else 'MEASURE AGAIN'}")
        if kept:
            before = codes["earlier"][name]
            same[codes["now"][name]] = {
                "method": name,
                "as": same.get(before, {}).get("as", before),
                "ratio": round(ratio, 4),
            }
    TARGET.write_text(json.dumps(same, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
