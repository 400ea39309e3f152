"""Time and memory of attribution, each paired with a plain forward pass of the same tokens in the same process.

A ratio to the forward pass says more than seconds: it carries over between machines. Every size runs in a process of
its own, so that memory which one size leaves behind cannot hide what the next one takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import pandas as pd
import torch
from tqdm import tqdm

from .attribution import Method
from .memory import KEEP_PAGES, peak_memory
from .methods import METHODS
from .models import DTYPES, load_model
from .sample import Sample, Segments

OUTPUT_TOKENS = 16  # |O| in every size; the rest of the generated part is T


def random_sample(n_prompt: int, n_reasoning: int, n_output: int, vocabulary: int) -> Sample:
    """Random tokens: time and memory do not depend on what they are.

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
    return Sample(ids, Segments((0, n_prompt), (n_prompt, answer), (answer, n)))


def bench_sample(n_prompt: int, n_generated: int, vocabulary: int) -> Sample:
    """Random tokens with |T| + |O| = ``n_generated``, of which O has at most ``OUTPUT_TOKENS``."""
    n_output = min(OUTPUT_TOKENS, n_generated)
    return random_sample(n_prompt, n_generated - n_output, n_output, vocabulary)


def measure(model: torch.nn.Module, method: Method, sample: Sample, runs: int = 3) -> dict[str, float]:
    """Median time of ``method`` and of an sdpa forward pass, alternating, and the peak memory of each.

    Returns
    -------
    dict
        ``forward_s``, ``seconds`` (medians, s), ``ratio`` (median of the paired ratios), ``peak_gib`` and
        ``forward_peak_gib`` (GiB over the loaded model), ``n``.
    """
    # Code and buffers that the libraries load once, on first use, belong to the loaded model, not to a size.
    method.attribute(model, bench_sample(32, 32, model.get_input_embeddings().num_embeddings))
    with peak_memory(model.device) as peak:  # first: nothing in the allocator that could hide what it takes
        method.attribute(model, sample)
    with peak_memory(model.device) as forward_peak:
        _forward(model, sample)
    pairs = [(_timed(_forward, model, sample), _timed(method.attribute, model, sample)) for _ in range(runs)]
    return {
        "forward_s": statistics.median(f for f, _ in pairs),
        "seconds": statistics.median(a for _, a in pairs),
        "ratio": statistics.median(a / f for f, a in pairs),
        "peak_gib": peak.over_start / 2**30,
        "forward_peak_gib": forward_peak.over_start / 2**30,
        "n": runs,
    }


@torch.inference_mode()
def _forward(model: torch.nn.Module, sample: Sample) -> None:
    """One forward pass with the model's own attention, logits of every position as `model(ids)` gives them."""
    model(sample.input_ids[None].to(model.device), use_cache=False)


def _timed(call, *args) -> float:
    """Wall-clock seconds of ``call(*args)``, device work included."""
    start = time.perf_counter()
    call(*args)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def run_sizes(sizes: list[str], methods: list[str], *, model: str, dtype: str, runs: int) -> pd.DataFrame:
    """Measure every size and method in a process of its own; a process that fails becomes a row that says so."""
    rows = []
    plain = {name: value for name, value in os.environ.items() if name not in KEEP_PAGES}  # memory as it is by default
    for size in tqdm(sizes, desc="bench"):
        for method in methods:
            command = [sys.executable, "-m", "flashtrace_lib", "bench", "--worker", "--sizes", size]
            command += ["--methods", method, "--model", model, "--dtype", dtype, "--runs", str(runs)]
            done = subprocess.run(command, capture_output=True, text=True, env=plain)
            result = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"error": _reason(done)}
            rows.append({"size": size, "method": method, **result})
    return pd.DataFrame(rows)


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


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``python -m flashtrace_lib bench``."""
    parser = argparse.ArgumentParser(prog="python -m flashtrace_lib bench", description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["256+94", "1024+100", "1024+512", "1024+1024"])
    parser.add_argument("--methods", nargs="+", default=["flashtrace"], choices=sorted(METHODS))
    parser.add_argument("--model", default="embedded-base")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    sizes = [parse_size(size) for size in args.sizes]
    if args.worker:
        model, _ = load_model(args.model, dtype=args.dtype)
        sample = bench_sample(*sizes[0], model.get_input_embeddings().num_embeddings)
        print(json.dumps(measure(model, METHODS[args.methods[0]](), sample, args.runs)))
        return 0
    frame = run_sizes(args.sizes, args.methods, model=args.model, dtype=args.dtype, runs=args.runs)
    print(f"{args.model}, {args.dtype}, {torch.get_num_threads()} threads; forward = one sdpa forward, same tokens")
    print(frame.round(3).to_string(index=False))
    return int("error" in frame and frame["error"].notna().any())
