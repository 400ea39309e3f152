"""An evaluation that is killed goes on from its store."""

import importlib.util
import os
import signal
import subprocess
import sys
import time

from flashtrace_lib.store import Store
from tests.environment import ROOT

KILLED = """
import sys, time
from dataclasses import dataclass
from pathlib import Path
sys.path.insert(0, {tests!r})
from tests.oracles.tiny import tiny_model, tiny_sample
from flashtrace_lib.attribution import Attribution, Method
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.store import Store

HERE = Path(__file__).parent

@dataclass
class Slow(Method):
    name = "slow"

    def _attribute(self, model, sample):
        with open(HERE / "calls.txt", "a") as file:
            file.write(sample.id + "\\n")
        time.sleep(SLEEP)
        return Attribution(sample.prompt_ids.float(), self.name)

def main():
    model = tiny_model("llama")
    samples = [tiny_sample(seed=seed) for seed in range(8)]
    store = Store(HERE / "results")
    return evaluate([Slow()], samples, model, store=store, scorer=Scorer(model), progress=False)

SLEEP = 0.0
if __name__ == "__main__":
    SLEEP = 0.3
    main()
"""


def test_killed_run_loses_at_most_the_record_in_flight(tmp_path):
    script, calls = tmp_path / "killed.py", tmp_path / "calls.txt"
    script.write_text(KILLED.format(tests=str(ROOT)))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, str(script)], env=environment)
    deadline = time.time() + 90
    while time.time() < deadline and process.poll() is None:
        if calls.exists() and len(calls.read_text().split()) >= 4:
            break
        time.sleep(0.01)
    assert process.poll() is None, "the run ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    begun = calls.read_text().split()
    stored = Store(tmp_path / "results").records()["sample"].tolist()
    assert 3 <= len(stored) < 8 and len(begun) - len(stored) <= 1
    spec = importlib.util.spec_from_file_location("killed", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    frame = module.main()
    assert frame["sample"].nunique() == 8 and len(frame) == 24
    again = calls.read_text().split()[len(begun) :]
    assert sorted(again) == sorted({f"tiny-{i}" for i in range(8)} - set(stored))
