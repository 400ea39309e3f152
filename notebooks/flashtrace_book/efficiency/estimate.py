"""What a profile costs before it is run: forward passes, hours and memory, from the counts of passes of every method.

An estimate, good to a factor of two or three, that tells an hour from a week. It assumes sentences of twenty tokens,
responses of a typical length, and forward passes at a given rate.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import pandas as pd

from flashtrace_lib.bench.measure import SENTENCE
from flashtrace_lib.methods import ReAGent
from flashtrace_lib.methods.perturbation_base import TOKEN_LIMIT

from ..profiles import Profile, load_profile

RESPONSE = {"ruler": 300, "reasoning": 600, "code": 400}  # tokens of T and O
PROBLEM = {"math": 120, "morehopqa": 350, "code": 700}  # tokens of I where the profile does not say


class Row(NamedTuple):
    """Samples of a notebook, all of one size, and the methods whose attributions and deletion curves they get."""

    notebook: str
    samples: int
    n_input: int  # |I|, tokens
    n_response: int  # |T| + |O|, tokens
    methods: tuple[str, ...]


def rows(profile: Profile) -> list[Row]:
    """What the sections of a profile ask of the notebooks, one row for each kind of sample."""
    ruler, hotpotqa, reasoning, second = profile.ruler, profile.hotpotqa, profile.reasoning, profile.generalisation
    methods = reasoning.methods or profile.methods
    on_code = ("ifr", "flashtrace") * 2  # each explains the last line, and all of the code
    ruler_problems = ruler.samples * len(ruler.cells)
    second_problems = second.ruler_samples * len(second.cells or ruler.cells)
    second_tasks = second.task_samples * len(second.tasks)
    long_contexts = [
        Row(f"10_ablations, {n} tokens", hotpotqa.long_samples, n, RESPONSE["ruler"], hotpotqa.long_methods)
        for n in hotpotqa.long_lengths
    ]
    return [
        Row("05_ruler", ruler_problems, ruler.length, RESPONSE["ruler"], profile.methods),
        Row("05_ruler, HotpotQA", hotpotqa.samples, hotpotqa.length, RESPONSE["ruler"], profile.methods),
        Row("06_math", 2 * reasoning.samples, PROBLEM["math"], RESPONSE["reasoning"], methods),  # of two data sets
        Row("07_morehopqa", reasoning.samples, PROBLEM["morehopqa"], RESPONSE["reasoning"], (*methods, "rollout")),
        Row("08_aider", reasoning.samples, PROBLEM["code"], RESPONSE["code"], on_code),
        Row("09_generalisation", second_problems, ruler.length, RESPONSE["ruler"], second.methods),
        Row("09_generalisation, tasks", second_tasks, PROBLEM["math"], RESPONSE["reasoning"], second.methods),
        *long_contexts,
    ]


def passes(profile: Profile, method: str, n_input: int) -> float:
    """Forward passes that one attribution takes, a backward pass counted as two.

    Parameters
    ----------
    profile : Profile
        Its ``method_options`` set the effort of ReAGent.
    method : str
        A key of ``METHODS``.
    n_input : int
        |I|, tokens.
    """
    units = n_input if n_input < TOKEN_LIMIT else n_input / SENTENCE
    reagent = profile.method_options.get("reagent", {})
    known = {
        "perturbation": units + 1,
        "clp": (units + 1) / 2,  # contexts from nothing to the whole
        "reagent": 2.0 * reagent.get("runs", ReAGent.runs) * reagent.get("max_steps", ReAGent.max_steps),
        "ig": 60.0,  # 20 steps, forward and backward
        "ig_attn": 60.0,
        "attnlrp": 3.0,
        "rollout": 2.0,
        "random": 0.0,
        "position": 0.0,
    }
    return known.get(method, 1.2)  # measured: 1.1 for FlashTrace with one hop


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
    table["passes"] = [
        sum(passes(profile, method, row.n_input) + profile.steps + 1 for method in row.methods) for row in planned
    ]
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
    parser.add_argument("--profile", default="paper")
    parser.add_argument("--parameters", type=float, default=8.2e9, help="of the model (default: Qwen3-8B's 8.2e9)")
    parser.add_argument("--tflops", type=float, default=200, help="TFLOP/s that a forward pass reaches (default: 200)")
    args = parser.parse_args(argv)
    if args.tflops <= 0 or args.parameters <= 0:
        parser.error("--tflops and --parameters must be above 0")
    table = estimate(load_profile(args.profile), args.parameters, args.tflops * 1e12)
    print(table.round({"passes": 0, "hours": 1}).to_string(index=False))
    print(f"{table['hours'].sum():.0f} hours at {args.tflops:.0f} TFLOP/s, without generating the responses")
    return 0
