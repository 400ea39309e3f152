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
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from ..attribution import Method
from ..load import DTYPES, load_model
from ..methods import METHODS
from ..sample import Sample, Segments, Span
from .memory import peak_memory, plain_environment

SENTENCE = 20  # tokens of a unit that is masked or replaced
MASK = 0  # token id that stands for a masked token
OUTPUT_TOKENS = 16  # |O| in every size; the rest of the generated part is T


@dataclass(frozen=True)
class Target:
    """What the library promises of one size, in float32 on a CPU.

    Parameters
    ----------
    size : str
        ``I+G``, see `parse_size`.
    column : str
        Of the measured row; must not exceed ``limit``.
    limit : float
        Forward passes, attributions or GiB.
    spans : int
        Target spans; 0 for the one output.
    runs : int
        Pairs of runs; 1 where no time is asked for.
    """

    size: str
    column: str
    limit: float
    spans: int = 0
    runs: int = 3


TARGETS = (
    Target("1024+1024", "ratio", 1.3),
    Target("7168+1024", "peak_gib", 1.0, runs=1),
    Target("1024+1024", "over_one", 3.0, spans=64),
)


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


def equal_spans(span: Span, n: int) -> list[Span]:
    """Cut ``span`` into n spans of about equal length; ValueError where it has fewer tokens."""
    start, stop = span
    if not 1 <= n <= stop - start:
        raise ValueError(f"{stop - start} tokens cannot be cut into {n} spans: ask for 1 to {stop - start}")
    cuts = [start + (stop - start) * i // n for i in range(n + 1)]
    return list(zip(cuts, cuts[1:], strict=False))


def measure(model: torch.nn.Module, method: Method, sample: Sample, runs: int = 3, spans: int = 0) -> dict[str, float]:
    """Median time of ``method`` and of an sdpa forward pass, alternating, and the peak memory of each.

    Parameters
    ----------
    runs : int
        Pairs of an attribution and a forward pass.
    spans : int
        0 for the sample's output; n for ``attribute_many`` of as many equal spans of what was generated, each of
        whose runs is also paired with one attribution.

    Returns
    -------
    dict
        ``forward_s``, ``seconds`` (medians, s), ``ratio`` (median of the paired ratios), ``peak_gib`` and
        ``forward_peak_gib`` (GiB over the loaded model), ``n``; with spans also ``over_one``, the median ratio to one
        attribution.
    """
    cut = equal_spans(sample.segments.generated, spans) if spans else []

    def forward() -> None:
        forward_pass(model, sample)

    def one() -> None:
        method.attribute(model, sample)

    def many() -> None:
        method.attribute_many(model, sample, cut)

    work = many if spans else one
    warm_up(model, method)
    # first: nothing in the allocator that could hide what it takes
    peak, forward_peak = peak_gib(model, work), peak_gib(model, forward)
    times = alternate([forward, work, one] if spans else [forward, work], runs)
    result = {**medians(times), "peak_gib": peak, "forward_peak_gib": forward_peak}
    return {**result, "over_one": statistics.median(t[1] / t[2] for t in times)} if spans else result


def warm_up(model: torch.nn.Module, method: Method) -> None:
    """One small attribution: code and buffers that libraries load on first use belong to the model, not to a size."""
    method.attribute(model, bench_sample(32, 32, model.get_input_embeddings().num_embeddings))


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


def run_sizes(
    sizes: list[str], methods: list[str], *, model: str, dtype: str, runs: int, spans: int = 0
) -> pd.DataFrame:
    """Measure every size and method in a process of its own; a process that fails becomes a row that says so."""
    rows = []
    for size in tqdm(sizes, desc="bench"):
        for method in methods:
            rows.append({"size": size, "method": method, **_measured(size, method, model, dtype, runs, spans)})
    return pd.DataFrame(rows)


def run_targets(model: str) -> pd.DataFrame:
    """Measure every promise of `TARGETS`, each in a process of its own.

    Returns
    -------
    pandas.DataFrame
        ``size, spans, column, measured, limit, met`` and what else was measured; ``met`` is False where the process
        failed.
    """
    rows = []
    for target in tqdm(TARGETS, desc="targets"):
        result = _measured(target.size, "flashtrace", model, "float32", target.runs, target.spans)
        measured = result.get(target.column, float("nan"))
        head = {"size": target.size, "spans": target.spans, "column": target.column}
        rows.append({**head, "measured": measured, "limit": target.limit, "met": measured <= target.limit, **result})
    return pd.DataFrame(rows)


def _measured(size: str, method: str, model: str, dtype: str, runs: int, spans: int) -> dict[str, Any]:
    """`measure` in a process of its own: its columns, or ``error``."""
    command = [sys.executable, "-m", "flashtrace_lib", "bench", "--worker", "--sizes", size, "--spans", str(spans)]
    command += ["--methods", method, "--model", model, "--dtype", dtype, "--runs", str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, env=plain_environment())
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"error": _reason(done)}


def _reason(done: subprocess.CompletedProcess) -> str:
    lines = done.stderr.strip().splitlines()
    return f"exit {done.returncode}: {lines[-1] if lines else 'no message (out of memory?)'}"


def parse_size(text: str) -> tuple[int, int]:
    """Read ``"1024+100"`` as (|I|, |T| + |O|)."""
    try:
        n_prompt, n_generated = (int(x) for x in text.split("+"))
    except ValueError:
        raise ValueError(f"size {text!r} is not of the form I+G, for example 1024+100") from None
    if n_prompt < 1 or n_generated < 1:
        raise ValueError(f"size {text!r}: both lengths must be at least 1")
    return n_prompt, n_generated


SIZES = ["256+94", "1024+100", "1024+512", "1024+1024"]


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``python -m flashtrace_lib bench``."""
    parser = argparse.ArgumentParser(prog="python -m flashtrace_lib bench", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes",
        nargs="+",
        default=SIZES,
        metavar="I+G",
        help=f"tokens of prompt and generation (default: {' '.join(SIZES)})",
    )
    parser.add_argument(
        "--methods", nargs="+", default=["flashtrace"], choices=sorted(METHODS), help="default: flashtrace"
    )
    parser.add_argument("--model", default="embedded-base", help="as for `trace` (default: embedded-base)")
    parser.add_argument("--dtype", default="float32", choices=DTYPES, help="of the weights (default: float32)")
    parser.add_argument("--runs", type=int, default=3, help="of each size; medians are shown (default: 3)")
    parser.add_argument("--spans", type=int, default=0, help="explain as many spans of what was generated at once")
    parser.add_argument("--targets", action="store_true", help="measure what the library promises, at sizes of its own")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.runs < 1 or args.spans < 0:
        parser.error("--runs must be at least 1, --spans at least 0")
    asked = [f"--{name}" for name in ("sizes", "methods", "dtype", "runs", "spans")]
    asked = [name for name in asked if getattr(args, name[2:]) != parser.get_default(name[2:])]
    if args.targets and asked:
        parser.error(f"--targets has sizes, methods and runs of its own: leave {', '.join(asked)} out")
    sizes = [parse_size(size) for size in args.sizes]
    if args.worker:
        model, _ = load_model(args.model, dtype=args.dtype)
        sample = bench_sample(*sizes[0], model.get_input_embeddings().num_embeddings)
        print(json.dumps(measure(model, METHODS[args.methods[0]](), sample, args.runs, args.spans)))
        return 0
    if args.spans and args.methods != ["flashtrace"]:
        parser.error("--spans needs --methods flashtrace: other methods explain one output at a time")
    if args.targets:
        frame = run_targets(args.model)
    else:
        settings = {"model": args.model, "dtype": args.dtype, "runs": args.runs, "spans": args.spans}
        frame = run_sizes(args.sizes, args.methods, **settings)
    dtype = "float32" if args.targets else args.dtype
    print(f"{args.model}, {dtype}, {torch.get_num_threads()} threads; forward = one sdpa forward, same tokens")
    print(frame.round(3).to_string(index=False))
    failed = "error" in frame and frame["error"].notna().any()
    return int(failed or ("met" in frame and not frame["met"].all()))
