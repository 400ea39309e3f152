"""Time and memory of attribution, each paired with a plain forward pass of the same tokens in the same process.

A ratio to the forward pass says more than seconds: it carries over between machines. Every size runs in a process of
its own, so that memory which one size leaves behind cannot hide what the next one takes.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ..attribution import Method
from ..files import check_writable, write_text
from ..load import DTYPES, load_model
from ..methods import METHODS
from ..model.context import vocabulary_size
from ..sample import Sample, Segments, Span
from .memory import peak_memory, plain_environment
from .shapes import SHAPES, random_model

SIZES = ("256+94", "1024+100", "1024+512", "1024+1024")  # |I|+|T ∪ O|
SENTENCE = 20  # tokens of a unit that is masked or replaced
MASK = 0  # token id that stands for a masked token
OUTPUT_TOKENS = 16  # |O| of what follows the mass through T, at most; the rest of the generated part is T
ONE_BY_ONE = "ifr_one_by_one"  # IFR, one pass over the cache for each target token
ONE_BY_ONE_RUN = 20  # longest run of it, s: three of them are made
SPANS = "flashtrace_64_spans"  # one call for 64 spans, against one for a single span
ASKED = {  # (method, size) -> what is asked of it, at most
    ("flashtrace", "1024+1024"): {"ratio_no_logits": 1.15, "peak_gib": 0.20},
    (SPANS, "1024+1024"): {"ratio": 1.5},
}


def random_sample(n_prompt: int, n_reasoning: int, n_output: int, vocabulary: int, sentence: int = SENTENCE) -> Sample:
    """Random tokens: time and memory do not depend on what they are. Sentences have ``sentence`` of them.

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
    return Sample(ids, segments, sentences=_sentences(segments, sentence), mask_token_id=MASK)


def _sentences(segments: Segments, size: int) -> list[Span]:
    """Tile every segment by ranges of ``size`` tokens; the last of each may be shorter."""
    return [(a, min(a + size, stop)) for _, (start, stop) in segments.named() for a in range(start, stop, size)]


def bench_sample(
    n_prompt: int, n_generated: int, vocabulary: int, *, through_reasoning: bool = True, sentence: int = SENTENCE
) -> Sample:
    """Random tokens of which a method has to explain |T| + |O| = ``n_generated``.

    A method that follows the mass through the reasoning gets T and a short O. One that does not gets all of it as O, or
    the length of the generation would cost it nothing.
    """
    n_output = min(OUTPUT_TOKENS, max(1, n_generated // 2)) if through_reasoning else n_generated
    return random_sample(n_prompt, n_generated - n_output, n_output, vocabulary, sentence)


def measure(model: torch.nn.Module, method: Method, sample: Sample, runs: int = 3) -> dict[str, float]:
    """Median time of ``method`` and of an sdpa forward pass, ``runs`` times in turn, and the peak memory of each.

    Returns
    -------
    dict
        ``forward_s``, ``seconds`` (medians, s), ``ratio`` (median of the paired ratios), ``ratio_no_logits`` (to a
        pass that computes no logits but the last), ``peak_gib`` and ``forward_peak_gib`` (GiB over the loaded model),
        ``n``.
    """
    forward, work = partial(forward_pass, model, sample), partial(method.attribute, model, sample)
    warm_up(model, method)
    # first: nothing in the allocator that could hide what it takes
    peak, forward_peak = peak_gib(model, work), peak_gib(model, forward)
    times = alternate([forward, work, partial(forward_pass, model, sample, logits_to_keep=1)], runs)
    found = {**medians(times), "ratio_no_logits": statistics.median(work / bare for _, work, bare in times)}
    return {**found, "peak_gib": peak, "forward_peak_gib": forward_peak}


def measure_spans(model: torch.nn.Module, sample: Sample, runs: int = 3, n: int = 64) -> dict[str, float]:
    """`medians` of explaining n spans, which tile T and O, in one call, against a call for the last of them alone."""
    (start, stop), many = sample.segments.generated, METHODS["flashtrace"]()
    cuts = torch.linspace(start, stop, n + 1).long().tolist()
    calls = [partial(many.attribute_many, model, sample, list(zip(cuts, cuts[1:], strict=False))[-k:]) for k in (1, n)]
    warm_up(model, many)
    return medians(alternate(calls, runs))


def measure_one_by_one(model: torch.nn.Module, sample: Sample) -> dict[str, float]:
    """`measure` for IFR one target token at a time, of as many of O as ``ONE_BY_ONE_RUN`` allows: ``targets``."""
    method, (start, stop), n = METHODS["ifr"](batch_size=1), sample.segments.output, 1
    warm_up(model, method)
    while n < stop - start:
        if 2 * timed(partial(method.attribute, model, sample.with_output((stop - n, stop)))) > ONE_BY_ONE_RUN:
            break
        n = min(2 * n, stop - start)
    return {**measure(model, method, sample.with_output((stop - n, stop)), runs=1), "targets": n}


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
    forward, seconds = (statistics.median(t[i] for t in times) for i in (0, 1))
    ratio = statistics.median(t[1] / t[0] for t in times)
    return {"forward_s": forward, "seconds": seconds, "ratio": ratio, "n": len(times)}


@torch.inference_mode()
def forward_pass(model: torch.nn.Module, sample: Sample, **options: Any) -> None:
    """One forward pass with the model's own attention, logits of every position as `model(ids)` gives them."""
    model(sample.input_ids[None].to(model.device), use_cache=False, **options)


def timed(call: Callable[[], object]) -> float:
    """Wall-clock seconds of ``call()``, device work included."""
    start = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def run_sizes(
    sizes: Sequence[str], methods: Sequence[str], setting: Mapping[str, Any], file: Path | None = None
) -> list[dict[str, Any]]:
    """Measure every size and method in a process of its own; a process that fails becomes a row that says so.

    Parameters
    ----------
    sizes, methods : sequence of str
        As the command takes them.
    setting : mapping
        Its other options by name; part of every row.
    file : Path, optional
        JSON, a list of rows, to which each is added when it is finished. What it has is not measured again, unless it
        failed.

    Returns
    -------
    list of dict
        The rows of this setting, those of the file included.
    """
    try:
        rows = json.loads(file.read_text(encoding="utf-8")) if file and file.is_file() else []
    except ValueError as error:
        raise ValueError(f"{file} holds no rows of `bench` ({error}): remove it, or name another file") from error
    for size, method in tqdm([(size, method) for size in sizes for method in methods], desc="bench"):
        about = {**setting, "size": size, "method": method}
        old = [row for row in rows if _is_of(row, about)]
        if old and "error" not in old[0]:
            continue
        command = [sys.executable, "-m", "flashtrace_lib", "bench", "--worker", "--sizes", size, "--methods", method]
        command += [f"--{name}={value}" for name, value in setting.items() if value is not None]
        done = subprocess.run(command, capture_output=True, text=True, env=plain_environment())
        rows = [row for row in rows if row not in old] + [{**about, **_result(done)}]
        if file:
            write_text(file, json.dumps(rows, indent=1) + "\n")
    return [row for row in rows if _is_of(row, setting)]


def _is_of(row: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
    return about.items() <= ({"sentence": SENTENCE} | row).items()


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
    known = [*sorted(METHODS), ONE_BY_ONE, SPANS]
    parser.add_argument("--methods", nargs="+", default=["flashtrace"], choices=known, metavar="METHOD")
    parser.add_argument("--model", default="embedded-base", help="as for `trace` (default: embedded-base)")
    parser.add_argument("--shape", choices=SHAPES, help="in its place: random weights of a published model's size")
    parser.add_argument("--layers", type=int, help="of --shape (default: as published)")
    parser.add_argument("--dtype", choices=DTYPES, help="of the weights (default: float32; with --shape bfloat16)")
    parser.add_argument("--device", help="cuda, … (default: the CPU; with --shape a GPU where there is one)")
    parser.add_argument("--sentence", type=int, default=SENTENCE, help="tokens of a sentence, of a step (default: 20)")
    parser.add_argument("--runs", type=int, default=3, help="of each size; medians are shown (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the rows; those that it has are not measured")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    for option in ("runs", "sentence"):
        if getattr(args, option) < 1:
            parser.error(f"--{option} must be at least 1")
    if args.layers is not None and (args.layers < 1 or not args.shape):
        parser.error("--layers must be at least 1, and is of --shape")
    check_writable({"--json": args.json}, {})
    sizes = [parse_size(size) for size in args.sizes]
    if args.shape:
        args.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    args.dtype = args.dtype or ("bfloat16" if args.shape else "float32")
    if args.worker:
        print(json.dumps(_measured(args, args.methods[0], sizes[0])))
        return 0
    of_model = {"shape": args.shape, "layers": args.layers} if args.shape else {"model": args.model}
    setting = {**of_model, "dtype": args.dtype, "device": args.device, "runs": args.runs, "sentence": args.sentence}
    rows = run_sizes(args.sizes, args.methods, setting, args.json)
    print(f"{args.shape or args.model}, {args.dtype}; forward = one sdpa forward, same tokens")
    for row in rows:
        shown = {name: value for name, value in row.items() if name not in setting}
        asked = {k: f" (asked: {most:.2f})" for k, most in ASKED.get((row["method"], row["size"]), {}).items()}
        texts = {k: f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items()}
        print(", ".join(text + asked.get(k, "") for k, text in texts.items()))
    return int(any("error" in row for row in rows))


def _measured(args: argparse.Namespace, name: str, size: tuple[int, int]) -> dict[str, Any]:
    """What a worker found, and on which hardware."""
    if args.shape:
        model = random_model(args.shape, layers=args.layers, dtype=getattr(torch, args.dtype), device=args.device)
    else:
        model, _ = load_model(args.model, dtype=args.dtype, device_map=args.device)
    through = name == SPANS or hasattr(METHODS.get(name), "hops")
    sample = bench_sample(*size, vocabulary_size(model), through_reasoning=through, sentence=args.sentence)
    special = {ONE_BY_ONE: measure_one_by_one, SPANS: partial(measure_spans, runs=args.runs)}
    found = special[name](model, sample) if name in special else measure(model, METHODS[name](), sample, args.runs)
    return {"hardware": hardware_name(args.device), **found}


def hardware_name(device_map: str | None) -> str:
    """The GPU, or the processor with its instructions and the threads in use.

    Virtual machines name processors alike that differ by the vectors they multiply.
    """
    if device_map not in (None, "cpu") and torch.cuda.is_available():
        return torch.cuda.get_device_name(0)
    cpuinfo = Path("/proc/cpuinfo")  # Linux, where platform.processor() is empty
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cpu = models[0] if models else platform.processor() or platform.machine()
    return f"{cpu} ({torch.backends.cpu.get_cpu_capability()}), {torch.get_num_threads()} threads"
