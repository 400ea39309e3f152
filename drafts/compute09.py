"""Fill the stores of 09_generalisation: run it twice at once, each with OMP_NUM_THREADS=1.

    CLAIMS=/tmp/x/claims09 BOOK_PROFILE=laptop [SECOND=gemma3-270m] python compute09.py

Claim files let two workers share the work. A worker that dies leaves claims without ``.done``: a new run takes these up
when their worker's process is gone. Stores are compacted by the notebook.
"""

import os
import time

from flashtrace_lib import experiments, generalisation, load_model
from flashtrace_lib.deletion import Scorer
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.methods import Random
from flashtrace_lib.recorder import labelled
from flashtrace_lib.report import output
from flashtrace_lib.store import Store

Store.compact = lambda self: None  # two workers read the parts while they work
PROFILE = os.environ.get("BOOK_PROFILE", "laptop")
CLAIMS = os.environ.get("CLAIMS", "/tmp/x/claims09")
os.makedirs(CLAIMS, exist_ok=True)
run = output.start(PROFILE)
NAME = generalisation.second_name(run, os.environ.get("SECOND"))


def alive(pid):
    """Whether the process that claimed is still there."""
    try:
        os.kill(int(pid), 0)
    except (OSError, ValueError):
        return False
    return True


def claim(name):
    """Path of the claim for the one worker that is to do ``name``; None where it is done, or another one is at it."""
    path = os.path.join(CLAIMS, f"{PROFILE}-{NAME}-{name}".replace("/", "_"))
    if os.path.exists(path + ".done"):
        return None
    for _ in range(2):
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            os.write(handle, str(os.getpid()).encode())
            os.close(handle)
            return path
        except FileExistsError:
            time.sleep(0.2)  # its owner may not have written its id yet
            if alive(open(path).read()):
                return None
            try:
                os.rename(path, f"{path}.stale{os.getpid()}")
            except FileNotFoundError:
                pass  # the other worker was faster
    return None


def done(path):
    """Mark a claim as done."""
    open(path + ".done", "w").close()


def shared(name, make):
    """The first worker generates and fills the store; the other waits, and reads what is stored."""
    path = os.path.join(CLAIMS, f"{PROFILE}-{NAME}-{name}".replace("/", "_"))
    while not os.path.exists(path + ".done"):
        if mine := claim(name):
            out = make()
            done(mine)
            return out
        time.sleep(2)
    return make()


def work(stage, model, methods, cells, store):
    """Every pair of sample and method that nobody has claimed."""
    samples, scorer, steps = experiments.all_samples(cells), Scorer(model, precision="auto"), run.profile.steps
    settled = dict(store=store, metrics=generalisation.METRICS, steps=steps, scorer=scorer, progress=False)
    for i, sample in enumerate(samples):  # the first settles the arithmetic, for both workers alike
        for label, method in labelled(methods).items():
            if not (mine := claim(f"{stage}-{i}-{sample.id}-{label}")):
                continue
            if not scorer.settled():
                evaluate({"random": Random()}, samples[:1], model, **{**settled, "store": None})
            began = time.time()
            evaluate({label: method}, [sample], model, **settled)
            done(mine)
            print(f"{time.strftime('%H:%M:%S')} {stage} {sample.id} {label} {time.time() - began:.1f}s", flush=True)


began = time.time()
first, tokenizer = load_model(run.profile.model, dtype=run.profile.dtype, device_map=run.profile.device_map)
cells = shared("collect-first", lambda: generalisation.first_collections(run, first, tokenizer))
methods = generalisation.compared_methods(run, tokenizer)
# What 05_ruler and 06_math have not stored yet is computed by one worker; nothing, where they have run.
shared("first", lambda: generalisation.evaluate_first(run, methods, cells, first))
first = None  # its memory is wanted for the second

model, tokenizer = load_model(NAME, dtype=run.profile.dtype, device_map=run.profile.device_map)
run.record_model(model, NAME)
cells = shared("collect-second", lambda: generalisation.second_collections(run, model, tokenizer))
print({cell: (part.counts, part.kind) for cell, part in cells.items()}, flush=True)
methods = generalisation.compared_methods(run, tokenizer)
work("second", model, methods, cells, Store(run.store("generalisation")))
print(f"done in {time.time() - began:.0f} s", flush=True)
