"""What a profile costs before it is run: forward passes, hours and memory, from the counts of passes of every method.

An estimate, good to a factor of two or three, that tells an hour from a week. It assumes sentences of twenty tokens,
responses of a typical length, and forward passes at a given rate. Generating the responses is not counted.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import pandas as pd

from flashtrace_lib.bench.measure import SENTENCE
from flashtrace_lib.methods import ContextCite, IGAttention, IntegratedGradients, ReAGent
from flashtrace_lib.methods.perturbation_base import TOKEN_LIMIT
from flashtrace_lib.metrics import TOP_COUNTS

from ..experiments.choices import CHOICES
from ..profiles import Profile, load_profile

RESPONSE = {"ruler": 300, "reasoning": 600, "code": 400}  # tokens of T and O
_TARGETS = 6  # target aggregations of appendix M
PROBLEM = {"math": 120, "morehopqa": 350, "code": 700}  # tokens of I where the profile does not say


class Row(NamedTuple):
    """Samples of a notebook, all of one size, and the methods whose attributions they get."""

    notebook: str
    samples: int
    n_input: int  # |I|, tokens
    n_response: int  # |T| + |O|, tokens
    methods: tuple[str, ...]
    curve_steps: int = 0  # of the deletion curve of every method; 0: none
    contexts: int = 0  # with sentences masked, which a sample's metrics of sentence ablations score


def rows(profile: Profile) -> list[Row]:
    """What the sections of a profile ask of the notebooks, one row for each kind of sample."""
    return [*_pilot(profile), *_tables(profile), *_open_questions(profile), *_ablations(profile)]


def _pilot(profile: Profile) -> list[Row]:
    pilot, steps = profile.pilot, 0  # recovery alone
    both_ways, growing = 2 * pilot.compare_samples, pilot.samples * len(pilot.hops)
    three = ("attnlrp", "ifr", "flashtrace")
    return [
        Row("01_pilot_study", both_ways, pilot.compare_length, RESPONSE["ruler"], pilot.methods, steps),
        Row("01_pilot_study, growing reasoning", growing, pilot.length, RESPONSE["ruler"], three, steps),
        Row("03_recursion", _ruler_problems(profile), profile.ruler.length, RESPONSE["ruler"], ("flashtrace",), steps),
    ]


def _tables(profile: Profile) -> list[Row]:
    """Tables 1 to 5."""
    ruler, hotpotqa, reasoning, second = profile.ruler, profile.hotpotqa, profile.reasoning, profile.generalisation
    methods, steps = reasoning.methods or profile.methods, profile.steps
    on_code = ("ifr", "flashtrace") * 2  # each explains the last line, and all of the code
    with_rollout = (*methods, "rollout")
    ruler_cells, few = len(second.cells or ruler.cells), second.curve_samples
    problems, records = (ruler.length, RESPONSE["ruler"]), (PROBLEM["math"], RESPONSE["reasoning"])
    return [
        *_of_every_metric(profile, "05_ruler", len(ruler.cells), ruler.samples, ruler.length),
        *_of_every_metric(profile, "05_ruler, HotpotQA", 1, hotpotqa.samples, hotpotqa.length, "hotpotqa"),
        *_of_a_task(profile, "06_math, GSM8K", "gsm8k", PROBLEM["math"], RESPONSE["reasoning"], methods),
        *_of_a_task(profile, "06_math, MATH-500", "math500", PROBLEM["math"], RESPONSE["reasoning"], methods),
        *_of_a_task(profile, "07_morehopqa", "morehopqa", PROBLEM["morehopqa"], RESPONSE["reasoning"], with_rollout),
        *_of_a_task(profile, "08_aider", "exercism", PROBLEM["code"], RESPONSE["code"], on_code),
        *_with_curves("09_generalisation", ruler_cells, (second.ruler_samples, few), problems, second.methods, steps),
        *_with_curves(
            "09_generalisation, tasks", len(second.tasks), (second.task_samples, few), records, second.methods, steps
        ),
        *_with_curves(
            "09_generalisation, step by step",
            len(second.step_by_step),
            (second.ruler_samples, second.step_curves),
            problems,
            second.methods,
            steps,
        ),
        Row(
            "09_generalisation, masks",
            (ruler_cells + len(second.tasks)) * second.mask_samples,
            *problems,
            (),
            contexts=profile.evaluation.masks + 2,
        ),
    ]


def _of_a_task(
    profile: Profile, name: str, cell: str, n_input: int, n_response: int, methods: tuple[str, ...]
) -> list[Row]:
    counts = profile.reasoning.samples, profile.evaluation.curves_of(cell)
    return _with_curves(name, 1, counts, (n_input, n_response), methods, profile.steps)


def _with_curves(
    name: str, cells: int, counts: tuple[int, int], size: tuple[int, int], methods: tuple[str, ...], steps: int
) -> list[Row]:
    """Rows of `evaluations.evaluate_with_curves`: attributions of all samples of a cell, and curves of the first."""
    samples, on_curve = counts
    return [
        Row(name, cells * samples, *size, methods),
        Row(f"{name}, curves", cells * min(samples, on_curve), *size, ("random",) * len(methods), steps),
    ]


def _of_every_metric(profile: Profile, name: str, cells: int, samples: int, n_input: int, cell: str = "") -> list[Row]:
    """Rows of `evaluations.evaluate_all`: each kind of metric has its own number of samples in a cell."""
    settings, size = profile.evaluation, (n_input, RESPONSE["ruler"])
    methods = tuple(method for method in profile.methods if method != "random")
    compared = (*methods, *["random"] * (2 * settings.curve_draws))  # draws of tokens, and of sentences
    few = settings.few_methods
    counts = settings.curves_of(cell), settings.mask_samples, settings.few_samples, settings.few_curves_of(cell)
    of_curves, of_masks, of_few, of_few_curves = (cells * min(n, samples) for n in counts)
    of_top = 2 * len(TOP_COUNTS)  # contexts without and with only so many sentences
    of_few_top = of_top * len(few) if settings.few_drop_samples else 0
    return [
        Row(name, cells * samples, *size, methods),
        Row(f"{name}, few", of_few, *size, few, 0, of_few_top),
        Row(f"{name}, few curves", of_few_curves, *size, ("random",) * len(few), profile.steps),
        Row(f"{name}, curves", of_curves, *size, ("random",) * len(compared), profile.steps),
        Row(f"{name}, masks", of_masks, *size, (), 0, settings.masks + 2 + of_top * len(compared)),
    ]


def _open_questions(profile: Profile) -> list[Row]:
    settings, length, tried = profile.open_questions, profile.ruler.length, ("flashtrace",) * (len(CHOICES) + 1)
    on_curve = min(2 * settings.deletion_samples, _ruler_problems(profile))
    return [
        Row("12_open_questions", _ruler_problems(profile), length, RESPONSE["ruler"], tried),
        Row("12_open_questions, curves", on_curve, length, RESPONSE["ruler"], tried, settings.steps),
    ]


def _ablations(profile: Profile) -> list[Row]:
    ablations, hotpotqa, steps = profile.ablations, profile.hotpotqa, profile.steps
    by_hops, targets = ("flashtrace",) * (ablations.hops + 1), ("flashtrace",) * _TARGETS
    few = ablations.curve_samples * len(profile.ruler.cells)
    asked = min(ablations.hop_samples, profile.reasoning.samples)
    return [
        Row("10_hops", asked, PROBLEM["morehopqa"], RESPONSE["reasoning"], by_hops, steps),
        Row("10c_targets", few, profile.ruler.length, RESPONSE["ruler"], targets, steps),
        *(
            row
            for n in hotpotqa.long_lengths
            for row in (
                Row(f"10b_longer_contexts, {n} tokens", hotpotqa.long_samples, n, RESPONSE["ruler"], profile.methods),
                Row(
                    f"10b_longer_contexts, {n} tokens, curves",
                    min(hotpotqa.long_samples, profile.evaluation.curves_of(f"hotpotqa_{n}")),
                    n,
                    RESPONSE["ruler"],
                    hotpotqa.long_methods,
                    steps,
                ),
            )
        ),
    ]


def _ruler_problems(profile: Profile) -> int:
    return profile.ruler.samples * len(profile.ruler.cells)


def passes(profile: Profile, method: str, n_input: int, n_response: int = 0) -> float:
    """Forward passes that one attribution takes, a backward pass counted as two.

    Parameters
    ----------
    profile : Profile
        Its ``method_options`` set the effort of ReAGent and of ContextCite.
    method : str
        A key of ``METHODS``.
    n_input : int
        |I|, tokens.
    n_response : int
        |T| + |O|, tokens; what it says matters to methods that change T, too.
    """
    units = n_input if n_input < TOKEN_LIMIT else n_input / SENTENCE
    reagent = profile.method_options.get("reagent", {})

    def steps(name: str, kind: type) -> int:
        return profile.method_options.get(name, {}).get("steps", kind.steps)

    known = {
        "perturbation": units + 1,
        "clp": (units + 1) / 2,  # contexts from nothing to the whole
        "suppression": (n_input + n_response) / SENTENCE + 1,
        "reagent": 2.0 * reagent.get("runs", ReAGent.runs) * reagent.get("max_steps", ReAGent.max_steps),
        "contextcite": float(profile.method_options.get("contextcite", {}).get("n_masks", ContextCite.n_masks)),
        "ig": 3.0 * steps("ig", IntegratedGradients),  # forward and backward
        "ig_attn": 3.0 * steps("ig_attn", IGAttention),
        "attnlrp": 3.0,
        "gim": 8.0,  # forms attention maps: measured 5 at 500 tokens, 10 at 1144
        "at2": 1.0,
        "rollout": 2.0,
        "ifr_all": 2.0,
        "random": 0.0,
        "random_sentences": 0.0,
        "position": 0.0,
    }
    return known.get(method, 1.2)  # measured: 1.1 for FlashTrace with one hop


def curve_passes(methods: tuple[str, ...], steps: int) -> int:
    """Contexts that the deletion curves of one sample score: methods share both ends.

    Parameters
    ----------
    methods : tuple of str
    steps : int
        Of a curve; 0 for none.
    """
    return len(methods) * (steps - 1) + 2 if steps and methods else 0


def sample_passes(profile: Profile, row: Row) -> float:
    """Forward passes that one sample of a row takes: attributions, deletion curves and sentence ablations."""
    attributions = sum(passes(profile, method, row.n_input, row.n_response) for method in row.methods)
    return attributions + curve_passes(row.methods, row.curve_steps) + row.contexts


def estimate(profile: Profile, parameters: float, rate: float) -> pd.DataFrame:
    """Cost of the notebooks that score many samples.

    Parameters
    ----------
    profile : Profile
    parameters : float
        Of the model.
    rate : float
        Floating-point operations a second that a forward pass reaches.

    Returns
    -------
    pandas.DataFrame
        ``notebook, samples, tokens`` (of one context), ``passes`` (of one sample: attributions and deletion curves of
        all methods) and ``hours``, at two operations a parameter and token.
    """
    planned = rows(profile)
    table = pd.DataFrame(planned)
    table["tokens"] = table["n_input"] + table["n_response"]
    table["passes"] = [sample_passes(profile, row) for row in planned]
    table["hours"] = table["samples"] * table["passes"] * table["tokens"] * 2 * parameters / rate / 3600
    return table[["notebook", "samples", "tokens", "passes", "hours"]]


def flashtrace_gib(n_tokens: int, n_target: int, layers: int, hidden: int, kv_width: int, width: int = 2) -> float:
    """GiB that FlashTrace keeps over the loaded model: what it reads from the forward pass (appendix B.2).

    Keys and values of all positions; query, state before and state after attention of the target rows. At 1024 + 1024
    tokens of the embedded model this gives 0.29; 0.28 to 0.32 were measured.

    Parameters
    ----------
    n_tokens, n_target : int
        Of the context, and of T and O.
    layers, hidden, kv_width : int
        Of the model; ``kv_width`` is key/value heads times their width.
    width : int
        Bytes of a number.
    """
    return layers * (2 * kv_width * n_tokens + 3 * hidden * n_target) * width / 2**30


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``python -m flashtrace_lib estimate``."""
    parser = argparse.ArgumentParser(prog="python -m flashtrace_lib estimate", description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="paper", help="name or .yaml file (default: paper)")
    parser.add_argument("--parameters", type=float, help="of the model (default, for Qwen3-8B alone: 8.2e9)")
    parser.add_argument("--tflops", type=float, help="TFLOP/s that a forward pass reaches (default, for Qwen3-8B: 200)")
    args = parser.parse_args(argv)
    profile = load_profile(args.profile)
    if profile.model.endswith("Qwen3-8B"):
        args.parameters = 8.2e9 if args.parameters is None else args.parameters
        args.tflops = 200 if args.tflops is None else args.tflops
    if args.tflops is None or args.parameters is None:
        parser.error(
            f"profile {profile.name} explains {profile.model}: give --parameters of the model and --tflops of your "
            f"machine (a CPU core reaches 0.03 to 0.1), or see the forecast of `book --profile {profile.name}`"
        )
    if args.tflops <= 0 or args.parameters <= 0:
        parser.error("--tflops and --parameters must be above 0")
    table = estimate(profile, args.parameters, args.tflops * 1e12)
    print(table.round({"passes": 0, "hours": 1}).to_string(index=False))
    print(f"{table['hours'].sum():.0f} hours at {args.tflops:g} TFLOP/s, without generating the responses")
    return 0
