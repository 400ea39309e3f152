"""Time and memory of attribution, each paired with a plain forward pass of the same tokens in the same process.

A ratio to the forward pass says more than seconds: it carries over between machines. Every size runs in a process of
its own, so that memory which one size leaves behind cannot hide what the next one takes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from ..attribution import Method
from ..load import DTYPES, load_model
from ..methods import METHODS
from ..model.context import vocabulary_size
from ..sample import Sample, Segments, Span
from .memory import peak_memory, plain_environment

SIZES = ("256+94", "1024+100", "1024+512", "1024+1024")  # |I|+|T ∪ O|
SENTENCE = 20  # tokens of a unit that is masked or replaced
MASK = 0  # token id that stands for a masked token
OUTPUT_TOKENS = 16  # |O| in every size; the rest of the generated part is T


def random_sample(n_prompt: int, n_reasoning: int, n_output: int, vocabulary: int) -> Sample:
    """Random tokens: time and memory do not depend on what they are. Sentences have twenty of them.

    Parameters
    ----------
    n_prompt, n_reasoning, n_output : int
        |I|, |T| and |O|.
    vocabulary : int
        Ids are drawn below it.
    """
    answer = n_prompt + n_reasoning
    n = answer + n_output
    ids = torch.randint(vocabulary, (n,), generator=torch.Generator().manual_seed(0))
    segments = Segments((0, n_prompt), (n_prompt, answer), (answer, n))
    return Sample(ids, segments, sentences=_sentences(segments), mask_token_id=MASK)


def _sentences(segments: Segments) -> list[Span]:
    """Tile every segment by ranges of ``SENTENCE`` tokens; the last of each may be shorter."""
    return [
        (first, min(first + SENTENCE, stop))
        for _, (start, stop) in segments.named()
        for first in range(start, stop, SENTENCE)
    ]


def bench_sample(n_prompt: int, n_generated: int, vocabulary: int) -> Sample:
    """Random tokens with |T| + |O| = ``n_generated``, of which O has at most ``OUTPUT_TOKENS``."""
    n_output = min(OUTPUT_TOKENS, n_generated)
    return random_sample(n_prompt, n_generated - n_output, n_output, vocabulary)


def measure(model: torch.nn.Module, method: Method, sample: Sample, runs: int = 3) -> dict[str, float]:
    """Median time of ``method`` and of an sdpa forward pass, ``runs`` times in turn, and the peak memory of each.

    Returns
    -------
    dict
        ``forward_s``, ``seconds`` (medians, s), ``ratio`` (median of the paired ratios), ``peak_gib`` and
        ``forward_peak_gib`` (GiB over the loaded model), ``n``.
    """
    forward, work = partial(forward_pass, model, sample), partial(method.attribute, model, sample)
    warm_up(model, method)
    # first: nothing in the allocator that could hide what it takes
    peak, forward_peak = peak_gib(model, work), peak_gib(model, forward)
    return {**medians(alternate([forward, work], runs)), "peak_gib": peak, "forward_peak_gib": forward_peak}


def warm_up(model: torch.nn.Module, method: Method) -> None:
    """One small attribution: code and buffers that libraries load on first use belong to the model, not to a size."""
    method.attribute(model, bench_sample(32, 32, vocabulary_size(model)))


def peak_gib(model: torch.nn.Module, work: Callable[[], object]) -> float:
    """Peak memory of ``work()`` over what was in use before, GiB."""
    with peak_memory(model.device) as peak:
        work()
    return peak.over_start / 2**30


def alternate(calls: Sequence[Callable[[], object]], runs: int) -> list[list[float]]:
    """Seconds of every call, run in turn ``runs`` times, shape [runs][calls]; what slows one run slows its pair."""
    return [[timed(call) for call in calls] for _ in range(runs)]


def attribution_seconds(
    model: torch.nn.Module, methods: Mapping[str, Method], sample: Sample, runs: int = 1
) -> dict[str, list[float]]:
    """Seconds of one attribution by each method, the methods run in turn (`alternate`).

    Parameters
    ----------
    methods : mapping of label to Method
    sample : Sample
    runs : int
        Attributions by each method.

    Returns
    -------
    dict of str to list of float
        By label; one value a run.
    """
    calls = [partial(method.attribute, model, sample) for method in methods.values()]
    times = alternate(calls, runs)  # [runs][methods]
    return {label: [run[i] for run in times] for i, label in enumerate(methods)}


def medians(times: Sequence[Sequence[float]]) -> dict[str, float]:
    """``forward_s, seconds, ratio, n`` of (forward, attribution, …) seconds; ``ratio`` is the median of the pairs'."""
    return {
        "forward_s": statistics.median(t[0] for t in times),
        "seconds": statistics.median(t[1] for t in times),
        "ratio": statistics.median(t[1] / t[0] for t in times),
        "n": len(times),
    }


@torch.inference_mode()
def forward_pass(model: torch.nn.Module, sample: Sample) -> None:
    """One forward pass with the model's own attention, logits of every position as `model(ids)` gives them."""
    model(sample.input_ids[None].to(model.device), use_cache=False)


def timed(call: Callable[[], object]) -> float:
    """Wall-clock seconds of ``call()``, device work included."""
    start = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def run_sizes(sizes: Sequence[str], methods: Sequence[str], *, model: str, dtype: str, runs: int) -> pd.DataFrame:
    """Measure every size and method in a process of its own; a process that fails becomes a row that says so."""
    rows = []
    for size in tqdm(sizes, desc="bench"):
        for method in methods:
            command = [sys.executable, "-m", "flashtrace_lib", "bench", "--worker", "--sizes", size]
            command += ["--methods", method, "--model", model, "--dtype", dtype, "--runs", str(runs)]
            done = subprocess.run(command, capture_output=True, text=True, env=plain_environment())
            rows.append({"size": size, "method": method, **_result(done)})
    return pd.DataFrame(rows)


def _result(done: subprocess.CompletedProcess) -> dict[str, Any]:
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    lines = done.stderr.strip().splitlines()
    return {"error": f"exit {done.returncode}: {lines[-1] if lines else 'no message (out of memory?)'}"}


def parse_size(text: str) -> tuple[int, int]:
    """Read ``"1024+100"`` as (|I|, |T| + |O|)."""
    try:
        n_prompt, n_generated = (int(x) for x in text.split("+"))
    except ValueError:
        raise ValueError(f"size {text!r} is not of the form I+G, for example 1024+100") from None
    if n_prompt < 1 or n_generated < 1:
        raise ValueError(f"size {text!r}: both lengths must be at least 1")
    return n_prompt, n_generated


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``flashtrace bench``."""
    parser = argparse.ArgumentParser(prog="flashtrace bench", description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="I+G", help="tokens of prompt and generation")
    parser.add_argument("--methods", nargs="+", default=["flashtrace"], choices=sorted(METHODS), metavar="METHOD")
    parser.add_argument("--model", default="embedded-base", help="as for `trace` (default: embedded-base)")
    parser.add_argument("--dtype", default="float32", choices=DTYPES, help="of the weights (default: float32)")
    parser.add_argument("--runs", type=int, default=3, help="of each size; medians are shown (default: 3)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.runs < 1:
        parser.error("--runs must be at least 1")
    sizes = [parse_size(size) for size in args.sizes]
    if args.worker:
        model, _ = load_model(args.model, dtype=args.dtype)
        sample = bench_sample(*sizes[0], vocabulary_size(model))
        print(json.dumps(measure(model, METHODS[args.methods[0]](), sample, args.runs)))
        return 0
    frame = run_sizes(args.sizes, args.methods, model=args.model, dtype=args.dtype, runs=args.runs)
    print(f"{args.model}, {args.dtype}, {torch.get_num_threads()} threads; forward = one sdpa forward, same tokens")
    print(frame.round(3).to_string(index=False))
    return int("error" in frame and frame["error"].notna().any())
