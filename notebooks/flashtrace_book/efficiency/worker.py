"""The process that measures one method: time and memory at one size after another, smallest first.

`efficiency` starts it under limits and reads what it prints. A size that goes over a limit takes the process with it,
never the sweep. What one size leaves behind is given back to the system before the next is measured (`memory`).
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from flashtrace_lib.attribution import Attribution, Method
from flashtrace_lib.bench import measure
from flashtrace_lib.load import load_model
from flashtrace_lib.sample import Sample

from .other_tools import ADAPTERS, build

THROUGH_REASONING = ("flashtrace", "rollout", "cage")  # explain O and follow the mass through T


def sweep_sample(name: str, n_input: int, n_generated: int, vocabulary: int) -> Sample:
    """What a method of that name has to do to explain ``n_generated`` tokens.

    A method that follows the reasoning gets T and a short O; one that does not has to explain all of T and O as its
    target, else the length of the generation would cost it nothing.

    Parameters
    ----------
    name : str
        A key of ``METHODS`` or of ``ADAPTERS``.
    n_input, n_generated : int
        |I| and |T| + |O|, tokens.
    vocabulary : int
        Ids are drawn below it.
    """
    if (ADAPTERS[name].nearest if name in ADAPTERS else name) in THROUGH_REASONING:
        n_output = min(measure.OUTPUT_TOKENS, max(1, n_generated // 2))  # a T to follow, however little is generated
        return measure.random_sample(n_input, n_generated - n_output, n_output, vocabulary)
    return measure.random_sample(n_input, 0, n_generated, vocabulary)


def measured(
    model: torch.nn.Module, method: Method, sample: Sample, runs: int, enough: float, step: Callable[[], None]
) -> dict[str, Any]:
    """Time and memory of one attribution, each run paired with a forward pass of the same tokens.

    Parameters
    ----------
    runs : int
        Pairs of runs.
    enough : float
        Where the first run, whose peak is measured, takes longer than this, s, it is the only one.
    step : callable
        Called after every attribution and forward pass.

    Returns
    -------
    dict
        ``forward_s, seconds, ratio, n`` (`measure.medians`), ``runs_s, forward_runs_s`` (each run, s),
        ``peak_gib, forward_peak_gib`` (over the loaded model), ``forward_passes, backward_passes, hop_passes``.
    """
    last: list[Attribution] = []

    def work() -> None:
        last[:] = [method.attribute(model, sample)]
        step()

    def forward() -> None:
        measure.forward_pass(model, sample)
        step()

    first: list[float] = []
    peak = measure.peak_gib(model, lambda: first.append(measure.timed(work)))
    forward_peak = measure.peak_gib(model, lambda: first.insert(0, measure.timed(forward)))
    times = [first] if first[1] > enough else measure.alternate([forward, work], runs)
    passes = {name: int(last[0].metadata.get(name, 0)) for name in ("forward_passes", "backward_passes", "hop_passes")}
    return {
        **measure.medians(times),
        "runs_s": [t[1] for t in times],
        "forward_runs_s": [t[0] for t in times],
        "peak_gib": peak,
        "forward_peak_gib": forward_peak,
        **passes,
    }


def say(**message: Any) -> None:
    """Print one message for `supervised_process.supervise`."""
    print(json.dumps(message), flush=True)


def main(argv: list[str]) -> int:
    """Measure what the job, JSON in the first argument, says (`efficiency.worker_command`)."""
    job = json.loads(argv[0])
    model, tokenizer = load_model(job["model"], dtype=job["dtype"], device_map=job["device_map"])
    method = build(job["name"], job["options"], tokenizer)
    measure.warm_up(model, method)
    say(ready=True)
    vocabulary = model.get_input_embeddings().num_embeddings
    for size in job["sizes"]:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        say(start=size)
        sample = sweep_sample(job["name"], *size, vocabulary)
        result = measured(model, method, sample, job["runs"], job["enough"], lambda: say(step=True))
        say(done=size, **result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
