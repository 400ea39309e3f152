"""The process that measures one method, at one size after another, and prints a JSON object for each.

``python -m flashtrace_book.efficiency.worker '{"load": "embedded-base", "method": "flashtrace", "sizes": [[64, 16]]}'``
measures FlashTrace with 64 tokens of input and 16 generated ones. A size that reaches a limit ends the process.
"""

import json
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from flashtrace_lib.attribution import Method
from flashtrace_lib.bench import measure
from flashtrace_lib.load import load_model
from flashtrace_lib.sample import Sample

from ..paths import model_path
from ..profile import read
from . import NEAREST
from .limits import limit_memory, limit_time
from .other_tools import build

# They explain O and follow the mass through T.
THROUGH_REASONING = ("flashtrace", "flashtrace_best", "last_token", "mean_pooling", "positional", "rollout", "cage")
COUNTS = ("forward_passes", "backward_passes", "hop_passes")
START = 600  # longest time until the model is loaded, s
LONG_RUN = 0.25  # a first run that takes a larger share of the limit of time than this is not repeated


@dataclass(frozen=True)
class Job:
    """What a worker measures.

    Parameters
    ----------
    load, dtype, device_map : str
        The model, as ``load_model`` takes it.
    method : str
        Key of ``METHODS`` or of `other_tools.ADAPTERS`.
    options : dict
        Of the method.
    sizes : list of (int, int)
        |I| and |T| + |O|, tokens.
    runs : int
        Runs of each size for its time, and as many for its peak of memory.
    time_limit : float
        Longest run, s.
    memory_limit : float
        Most memory over the loaded model, GiB.
    """

    load: str
    method: str
    sizes: tuple[tuple[int, int], ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    device_map: str | None = None
    runs: int = 3
    time_limit: float = 20
    memory_limit: float = 6


def sweep_sample(method: str, n_input: int, n_generated: int, vocabulary: int) -> Sample:
    """Random tokens of which a method has to explain ``n_generated``."""
    through = NEAREST.get(method, method) in THROUGH_REASONING
    return measure.bench_sample(n_input, n_generated, vocabulary, through_reasoning=through)


def measure_size(model: torch.nn.Module, method: Method, sample: Sample, job: Job) -> dict[str, Any]:
    """Time and memory of one attribution, each run paired with a forward pass of the same tokens.

    Returns
    -------
    dict
        ``forward_s, seconds, ratio, n`` (`measure.medians`), ``runs_s, forward_runs_s`` (each run, s),
        ``peak_gib, forward_peak_gib`` (medians, over the loaded model), ``n_peak`` (runs behind them),
        ``forward_passes, backward_passes, hop_passes``.
    """
    metadata: dict[str, Any] = {}
    first: list[float] = []

    def attribute() -> None:
        limit_time(job.time_limit)
        metadata.update(method.attribute(model, sample).metadata)

    def forward() -> None:
        limit_time(job.time_limit)
        measure.forward_pass(model, sample)

    calls = (attribute, forward)
    # The attribution first: nothing is in the allocator yet that could hide what it takes.
    peaks = [[measure.peak_gib(model, lambda call=call: first.append(measure.timed(call))) for call in calls]]
    times = [first[::-1]]
    if first[0] <= LONG_RUN * job.time_limit:  # apart from the peaks: handing memory back before a run slows it
        peaks += [[measure.peak_gib(model, call) for call in calls] for _ in range(job.runs - 1)]  # [runs][calls]
        times = measure.alternate([forward, attribute], job.runs)
    limit_time(0)
    return {
        **measure.medians(times),
        "runs_s": [run[1] for run in times],
        "forward_runs_s": [run[0] for run in times],
        "peak_gib": statistics.median(run[0] for run in peaks),
        "forward_peak_gib": statistics.median(run[1] for run in peaks),
        "n_peak": len(peaks),
        **{name: int(metadata.get(name, 0)) for name in COUNTS},
    }


def main(argv: list[str]) -> int:
    """Measure the sizes of a `Job`, JSON in the first argument."""
    job = read(Job, json.loads(argv[0]), "the job")
    limit_time(START)
    model, tokenizer = load_model(model_path(job.load), dtype=job.dtype, device_map=job.device_map)
    method = build(job.method, job.options, tokenizer)
    measure.warm_up(model, method)
    limit_memory(job.memory_limit)
    vocabulary = model.get_input_embeddings().num_embeddings
    for size in job.sizes:
        sample = sweep_sample(job.method, *size, vocabulary)
        print(json.dumps({"size": size, **measure_size(model, method, sample, job)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
