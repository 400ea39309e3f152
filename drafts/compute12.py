"""Fill the stores of 12_open_questions: start it twice, on one thread each; claim files share the work. Resumable.

CLAIMS: folder of the claim files (emptied before a fresh start); BOOK_PROFILE: default laptop. A claim that a killed
worker left is taken again after it is deleted; what is stored is not computed twice. Stages: recovery curves exact
best causal; default: all, in this order.
"""

import os
import sys
import time
from functools import partial

import torch

from flashtrace_lib import FlashTrace, causal, experiments, load_model
from flashtrace_lib import open_questions as oq
from flashtrace_lib.deletion import Scorer
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.frames import frame_from_records
from flashtrace_lib.report import output
from flashtrace_lib.store import Store

Store.compact = lambda self: None
CLAIMS = os.environ.get("CLAIMS", "/tmp/x/claims12")
PROFILE = os.environ.get("BOOK_PROFILE", "laptop")
os.makedirs(CLAIMS, exist_ok=True)
run = output.start(PROFILE)
settings = run.profile.open_questions
model, tok = load_model(run.profile.model, dtype=run.profile.dtype)
run.record_model(model)
store = Store(run.store("open_questions"))
answers = Store(run.store("open_questions_answers"))
scorer = Scorer(model, precision="auto")


def claim(name):
    """Whether this worker is the first to ask for the name."""
    try:
        os.close(os.open(os.path.join(CLAIMS, name), os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def wait(name):
    """Wait for a name to be claimed."""
    while not os.path.exists(os.path.join(CLAIMS, name)):
        time.sleep(1)


def shared(name, make):
    """The first worker makes (fills the store), the other waits and then reads the store."""
    name = f"{PROFILE}-{name}"
    if not claim(name):
        wait(name + ".done")
        return make()
    out = make()
    claim(name + ".done")
    return out


def each(stage, jobs):
    """Run the jobs that nobody has claimed, name -> function; return when all are done, whoever did them."""
    for name, job in jobs.items():
        name = f"{PROFILE}-{stage}-{name}".replace("/", "_")
        if claim(name):
            start = time.time()
            job()
            claim(name + ".done")
            print(f"{time.strftime('%H:%M:%S')} {name} {time.time() - start:.1f}s", flush=True)
    for name in jobs:
        wait(f"{PROFILE}-{stage}-{name}.done".replace("/", "_"))


def work(stage, methods, samples, metrics):
    """Evaluate every method on every sample, one claim a pair."""
    how = {"store": store, "metrics": metrics, "steps": settings.steps, "scorer": scorer, "progress": False}
    each(
        stage,
        {f"{sample.id}-{label}": lambda label=label, method=method, sample=sample: evaluate(
            {label: method}, [sample], model, **how)
         for sample in samples for label, method in methods.items()},
    )  # fmt: skip


def both(n):
    """The n shortest samples of each half."""
    return [s for half in (oq.TUNING, oq.HELD_OUT) for s in oq.in_half(samples, half, n)]


def settle():
    """Let each worker's scorer decide its precision on the sample on which the notebook's does."""
    first = oq.in_half(samples, oq.TUNING, settings.deletion_samples)[0]
    scorer.curve(first, torch.arange(len(first.prompt_ids), dtype=torch.float32), settings.steps)


def stored_frame():
    """All stored results, with their half."""
    return oq.with_half(frame_from_records(store.records(), (*oq.RECOVERY, *oq.DELETION)))


samples = experiments.all_samples(shared("collect", lambda: experiments.ruler_collections(run, model, tok)))
methods = oq.choice_methods(run.profile, tok, model)
for stage in sys.argv[1:] or ["recovery", "curves", "exact", "best", "causal"]:
    if stage == "recovery":
        work(stage, methods, samples, oq.RECOVERY)
    elif stage == "curves":
        settle()
        work(stage, methods, both(settings.deletion_samples), oq.DELETION)
    elif stage == "exact":
        work(stage, oq.by_token_methods(run.profile), both(settings.exact_samples), oq.RECOVERY)
    elif stage == "best":
        names = [c for c in oq.candidates(stored_frame()) if len(c) > 1]
        more = {oq.label(c): oq.setting(c, tok, run.profile.hops) for c in names}
        work("combined", more, oq.in_half(samples, oq.TUNING), oq.RECOVERY)
        found = oq.chosen(stored_frame())
        print("chosen:", found, "-> methods/choices.py: BEST =", repr(found), flush=True)
        # as FlashTrace.best() once BEST is set; the key is the same
        settle()
        best = {oq.label(found) if len(found) < 2 else oq.BEST_LABEL: oq.setting(found, tok, run.profile.hops)}
        work("held-out", best, oq.in_half(samples, oq.HELD_OUT), oq.RECOVERY)
        work("held-out-curves", best, oq.in_half(samples, oq.HELD_OUT, settings.deletion_samples), oq.DELETION)
    elif stage == "causal":
        asked = sorted(samples, key=lambda s: (len(s), s.id))[: settings.causal_samples]
        method = FlashTrace(hops=run.profile.hops)
        ask = partial(causal.causal_frame, model, tok, method=method, store=answers, seed=run.profile.seed)
        each(stage, {sample.id: partial(ask, [sample]) for sample in asked})
print("done", flush=True)
