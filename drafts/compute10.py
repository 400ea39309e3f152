"""Fill the stores of 10_ablations: `python compute10.py [STAGE...]`; two processes beside each other share the work.

Stages, in the order of the notebook: hops, targets, cancellation (default: all). Every pair of sample and method is
claimed by a file under $CLAIMS; an interrupted run goes on with a fresh $CLAIMS, since what is stored is not computed
again. $BOOK_PROFILE names the profile. Compact the stores afterwards by running the notebook.
"""

import os
import sys
import time

from flashtrace_lib import FlashTrace, ablations, cancellation, experiments, load_model, reasoning
from flashtrace_lib.deletion import Scorer
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.report import output
from flashtrace_lib.store import Store

Store.compact = lambda self: None  # the other process may be writing
CLAIMS = os.environ.get("CLAIMS", "/tmp/x/claims10")
PROFILE = os.environ.get("BOOK_PROFILE", "laptop")
os.makedirs(CLAIMS, exist_ok=True)
run = output.start(PROFILE)
model, tokenizer = load_model(run.profile.model, dtype=run.profile.dtype, device_map=run.profile.device_map)
run.record_model(model)
scorer = Scorer(model, precision="auto")
DEFAULT = {"flashtrace": FlashTrace(hops=run.profile.hops)}
CURVES = ("recovery", "rise", "mas")


def claim(name):
    """Whether this process is the first to ask for a piece of work."""
    try:
        os.close(os.open(os.path.join(CLAIMS, name.replace("/", "_")), os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def shared(name, make):
    """The first process makes (and fills the store of responses), the other waits and then reads it."""
    if claim(name):
        made = make()
        claim(f"{name}.done")
        return made
    while not os.path.exists(os.path.join(CLAIMS, f"{name}.done")):
        time.sleep(2)
    return make()


def work(stage, methods, samples, store, metrics=CURVES):
    """Evaluate what the other process has not claimed."""
    for i, sample in enumerate(samples):
        for label, method in methods.items():
            if claim(f"{PROFILE}-{stage}-{i}-{sample.id}-{label}"):
                start = time.time()
                evaluate(
                    {label: method}, [sample], model, store=Store(run.store(store)), metrics=metrics,
                    steps=run.profile.steps, scorer=scorer, progress=False,
                )  # fmt: skip
                print(f"{time.strftime('%H:%M:%S')} {stage} {sample.id} {label} {time.time() - start:.1f}s", flush=True)


def ruler():
    """The samples of Table 1."""
    cells = experiments.ruler_collections(run, model, tokenizer)
    cells["hotpotqa"] = reasoning.hotpotqa_collection(run, model, tokenizer)
    return cells


questions = shared(f"{PROFILE}-morehopqa", lambda: reasoning.task_collection(run, model, tokenizer, "morehopqa"))
cells = shared(f"{PROFILE}-ruler", ruler)
asked, samples = questions.samples[: run.profile.ablations.hop_samples], experiments.all_samples(cells)
few = ablations.first_of_each(cells, run.profile.ablations.curve_samples)
for stage in sys.argv[1:] or ("hops", "targets", "cancellation"):
    if stage == "hops":
        # One hop is the default method: its record is in the store under the name of Table 2, or is made by it here.
        others = {k: m for k, m in ablations.hop_methods(run).items() if m.hops != run.profile.hops}
        work("default", DEFAULT, asked, "morehopqa")
        work("hops", others, asked, "morehopqa")
        if "flashtrace_k3" not in others:  # never the same pair twice: the one without a curve could be stored last
            work("k3", {"flashtrace_k3": FlashTrace(hops=3)}, asked, "morehopqa", ("recovery",))
        thought = [sample for sample in samples if sample.segments.has_reasoning]
        work("recursion", {"flashtrace_k3": FlashTrace(hops=3)}, thought, "recursion", ("recovery",))
    elif stage == "targets":
        targets = ablations.target_methods(run)
        others = {k: targets.pop(k) for k in ("rising", "falling", "sentence")}
        work("ends", targets, samples, "ruler")  # of Table 1, where its methods have them
        work("curves", {"flashtrace_k0": FlashTrace(hops=0)} | others, few, "ruler")
        curved = {sample.id for sample in few}
        work("targets", others, [sample for sample in samples if sample.id not in curved], "ruler", ("recovery",))
    elif stage == "cancellation":
        for i, sample in enumerate([*samples, *asked]):
            if claim(f"{PROFILE}-cancellation-{i}-{sample.id}"):
                cancellation.cancellation(run, model, [sample])
print("done", flush=True)
