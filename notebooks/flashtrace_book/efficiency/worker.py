"""The process that measures one method, at one size after another, and prints what it measured.

`benchmark_runner` starts it under limits, as a process of its own: a size that exceeds a limit ends this process and
not the benchmark. Messages are JSON objects, one a line: ``{"ready": true}``; then for each size ``{"start": size}``,
``{"step": true}`` after every attribution and forward pass, and ``{"done": size}`` with the results.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch

from flashtrace_lib.attribution import Attribution, Method
from flashtrace_lib.bench import measure
from flashtrace_lib.load import load_model
from flashtrace_lib.sample import Sample

from ..paths import model_path
from .other_tools import ADAPTERS, build

# They explain O and follow the mass through T
THROUGH_REASONING = ("flashtrace", "flashtrace_best", "last_token", "mean_pooling", "positional", "rollout", "cage")
COUNTS = ("forward_passes", "backward_passes", "hop_passes")


def sweep_sample(name: str, n_input: int, n_generated: int, vocabulary: int) -> Sample:
    """Sample on which a method has to explain ``n_generated`` tokens.

    A method that follows the reasoning gets T and a short O. One that does not gets all of T and O as its target, else
    the length of the generation would cost it nothing.

    Parameters
    ----------
    name : str
        Key of ``METHODS`` or of ``ADAPTERS``.
    n_input, n_generated : int
        |I| and |T| + |O|, tokens.
    vocabulary : int
        Ids are drawn below it.
    """
    if (ADAPTERS[name].nearest if name in ADAPTERS else name) in THROUGH_REASONING:
        n_output = min(measure.OUTPUT_TOKENS, max(1, n_generated // 2))  # leaves a T, however short the generation
        return measure.random_sample(n_input, n_generated - n_output, n_output, vocabulary)
    return measure.random_sample(n_input, 0, n_generated, vocabulary)


def measure_attribution(
    model: torch.nn.Module, method: Method, sample: Sample, runs: int, long_run: float, on_step: Callable[[], None]
) -> dict[str, Any]:
    """Time and memory of one attribution, each run paired with a forward pass of the same tokens.

    Parameters
    ----------
    runs : int
        Pairs of runs for the times, and as many for the peaks: handing memory back before a run slows it.
    long_run : float
        If the first attribution takes longer than this, s, no other follows.
    on_step : callable
        Called after every attribution and forward pass.

    Returns
    -------
    dict
        ``forward_s, seconds, ratio, n`` (`measure.medians`), ``runs_s, forward_runs_s`` (each run, s),
        ``peak_gib, forward_peak_gib`` (medians, over the loaded model), ``n_peak`` (runs behind them),
        ``peak_runs_gib`` (each run), ``forward_passes, backward_passes, hop_passes``.
    """
    attributions: list[Attribution] = []
    first_seconds: list[float] = []

    def attribute() -> None:
        attributions[:] = [method.attribute(model, sample)]
        on_step()

    def forward() -> None:
        measure.forward_pass(model, sample)
        on_step()

    calls = (attribute, forward)
    # The attribution first: nothing is in the allocator yet that could hide what it takes.
    peaks = [[measure.peak_gib(model, lambda call=call: first_seconds.append(measure.timed(call))) for call in calls]]
    seconds, forward_seconds = first_seconds
    if seconds > long_run:
        times = [[forward_seconds, seconds]]
    else:
        peaks += [[measure.peak_gib(model, call) for call in calls] for _ in range(runs - 1)]  # [runs][calls]
        times = measure.alternate([forward, attribute], runs)
    metadata = attributions[0].metadata
    return {
        **measure.medians(times),
        "runs_s": [t[1] for t in times],
        "forward_runs_s": [t[0] for t in times],
        "peak_gib": statistics.median(peak for peak, _ in peaks),
        "forward_peak_gib": statistics.median(peak for _, peak in peaks),
        "n_peak": len(peaks),
        "peak_runs_gib": [peak for peak, _ in peaks],
        **{name: int(metadata.get(name, 0)) for name in COUNTS},
    }


def send(**message: Any) -> None:
    """Print one message for `supervised_process.supervise`."""
    print(json.dumps(message), flush=True)


def main(argv: list[str]) -> int:
    """Measure the sizes of a job, JSON in the first argument (`BenchmarkRunner` writes it)."""
    job = json.loads(argv[0])
    model, tokenizer = load_model(model_path(job["model"]), dtype=job["dtype"], device_map=job["device_map"])
    method = build(job["name"], job["options"], tokenizer)
    measure.warm_up(model, method)
    send(ready=True)
    vocabulary = model.get_input_embeddings().num_embeddings
    for size in job["sizes"]:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        send(start=size)
        sample = sweep_sample(job["name"], *size, vocabulary)
        result = measure_attribution(
            model, method, sample, job["runs"], job["long_run"], on_step=lambda: send(step=True)
        )
        send(done=size, **result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
