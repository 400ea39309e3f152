"""Does the propagated residual with a first hop over T ∪ O hold on samples that it was not picked on? (`better_plan`.)

``python -m flashtrace_book.experiments.better_flashtrace --profile laptop`` says what the plan costs, measures what is
missing and prints the differences. It may be killed at any time and goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.evaluation.draws import mean_over_draws
from flashtrace_lib.files import CannotWrite
from flashtrace_lib.metrics import TOP_COUNTS
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.datasets import REAL, documents_examples, task_examples
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.responses import Collection
from flashtrace_lib.tasks.ruler import CELLS as RULER_CELLS
from flashtrace_lib.tasks.ruler import ruler_examples
from flashtrace_lib.text.offsets import tokenise

from ..efficiency.core_hours import DEFAULT_RATE, measured_rate, parameters_of
from ..efficiency.estimate import PROBLEM, RESPONSE, passes
from ..profiles import BetterProfile
from ..run import Run, start
from ..samples import all_samples, collect_stored, held_out
from .better_plan import (
    BASELINES,
    CANDIDATE,
    CELLS,
    DROPPED,
    LABELS,
    MAIN,
    MASKED,
    PAPER,
    PRIMARY,
    RANKING,
    REAL_QUESTIONS,
    compared,
    main_methods,
    settings,
)
from .better_tables import differences, readable
from .open_questions import HELD_OUT
from .reasoning_tasks import asked_as, grounded, records_from
from .shared_pass import sharing

STORE = "better_responses"
QUESTION_STORE = "question_responses"  # apart: these are sealed, since they quote records that are not the book's
_LENGTHS = {"gsm8k": PROBLEM["math"], "morehopqa": PROBLEM["morehopqa"]}  # of I, tokens
_BY_TOKEN = 2.5  # passes of a variant with a row for each token of T and O; measured: 2.1 times one without


# --- samples --------------------------------------------------------------------------------------------------


def cell_examples(run: Run, name: str, tokenizer: Any, plan: BetterProfile) -> list[Example]:
    """Problems of a cell of `better_plan.CELLS`, at most ``plan.tries``, under the cell's own name."""
    cell = CELLS[name]
    seed = run.profile.seed + (plan.held_out_seed if cell.half == HELD_OUT else 0)
    if cell.source in RULER_CELLS:
        how = {"haystack": cell.haystack, "one_shot": False, "keep": held_out(run)}
        examples = ruler_examples(cell.source, plan.length, tokenizer, plan.tries, seed=seed, **how)
    elif cell.source == "hotpotqa":
        count, gold = (lambda text: len(tokenise(tokenizer, text)[0])), run.profile.hotpotqa.gold
        examples, _ = documents_examples(_tries(name, plan), plan.length, count, gold=gold, **_records(run, name, seed))
    else:
        examples = task_examples(cell.source, _tries(name, plan), **_records(run, name, seed))
    return [replace(example, cell=name) for example in examples]


def _records(run: Run, name: str, seed: int) -> dict[str, Any]:
    """Source of a cell's records; real ones in the order that the profile wants, whatever the half."""
    where = records_from(run, CELLS[name].source)
    if (where["source"] in REAL) != (CELLS[name].group == REAL_QUESTIONS):
        raise ValueError(f"cell {name} does not go with reasoning.source {where['source']!r} of the profile")
    return where if where["source"] in REAL else where | {"seed": seed}


def _wanted(name: str, plan: BetterProfile) -> int:
    """Samples of a cell."""
    return plan.samples if CELLS[name].group != REAL_QUESTIONS else plan.question_samples


def _tries(name: str, plan: BetterProfile) -> int:
    """Problems that are tried; answers to real questions count right or wrong, but may be unfinished."""
    return plan.tries if CELLS[name].group != REAL_QUESTIONS else 2 * plan.question_samples


def cell_collection(run: Run, name: str, model: torch.nn.Module, tokenizer: Any, plan: BetterProfile) -> Collection:
    """Samples of a cell that the model answers rightly, from a store of this experiment's own where they are there."""
    how = {"max_new_tokens": plan.max_new_tokens, "fallback": plan.fallback}
    how["grounded"] = grounded(run, CELLS[name].source)
    store = STORE
    if CELLS[name].group == REAL_QUESTIONS:
        store = QUESTION_STORE
        how |= asked_as(run, CELLS[name].source) | {"max_new_tokens": run.profile.hotpotqa.max_new_tokens}
    examples = cell_examples(run, name, tokenizer, plan)
    return collect_stored(run, store, examples, model, tokenizer, _wanted(name, plan), **how)


def collections(run: Run, model: torch.nn.Module, tokenizer: Any, real: bool | None = None) -> dict[str, Collection]:
    """`cell_collection` of every cell of the profile's plan, or of those of real questions, or of all others."""
    plan = run.profile.better_flashtrace
    cells = [c for c in planned_cells(plan) if real is None or (CELLS[c].group == REAL_QUESTIONS) == real]
    return {name: cell_collection(run, name, model, tokenizer, plan) for name in tqdm(cells, desc="cells")}


def plan_samples(run: Run, model: torch.nn.Module, tokenizer: Any, real: bool = False) -> list[Sample]:
    """Samples of the profile's plan: those of real questions, or all others."""
    return all_samples(collections(run, model, tokenizer, real))


# --- measurements ---------------------------------------------------------------------------------------------


def measure(
    run: Run,
    model: torch.nn.Module,
    tokenizer: Any,
    plan: BetterProfile | None = None,
    cells: Iterable[str] | None = None,
) -> pd.DataFrame:
    """Every metric of every variant on the samples of the cells; what is stored is not computed again.

    Parameters
    ----------
    run : Run
    model : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerBase
    plan : BetterProfile, optional
        Default: the profile's.
    cells : iterable of str, optional
        Keys of `better_plan.CELLS`. Default: the plan's.

    Returns
    -------
    pandas.DataFrame
        As from `evaluation.evaluate`, with the columns ``half`` and ``group``; random is the mean of its draws. A cell
        without a right answer has no rows.

    Raises
    ------
    ValueError
        If a cell is unknown, or no cell has a sample.
    """
    plan = plan or run.profile.better_flashtrace
    cells = planned_cells(plan) if cells is None else check_cells(cells)
    chosen = planned_methods(plan)
    methods, few = (
        sharing({name: method for name, method in group.items() if name in chosen or name.startswith("random/")})
        for group in (compared(tokenizer, plan.draws), main_methods(tokenizer, plan.drop_draws))
    )
    store, frames = Store(run.store("better_flashtrace")), []
    for name in tqdm(cells, desc="cells"):
        samples = cell_collection(run, name, model, tokenizer, plan).samples
        parts = [
            (methods, samples, RANKING),
            (methods, samples[: plan.mask_samples], MASKED),
            (few, samples[: plan.drop_samples], DROPPED),
        ]
        for group, part, metrics in parts:
            if part:
                found = evaluate(group, part, model, store=store, metrics=metrics, masks=plan.masks)
                frames.append(mean_over_draws(found))
        store.compact()
    if not frames:
        raise ValueError(
            f"the model answers no problem of {', '.join(cells)} rightly: name other cells, or raise tries"
        )
    return with_halves(pd.concat(frames, ignore_index=True))


def planned_cells(plan: BetterProfile) -> list[str]:
    """Cells of a plan, checked."""
    whole = [name for name, cell in CELLS.items() if cell.group != REAL_QUESTIONS]
    return whole if plan.cells is None else check_cells(plan.cells)


def planned_methods(plan: BetterProfile) -> list[str]:
    """Settings and baselines of a plan, random aside; ValueError where one is unknown or the paper's is missing."""
    known = [name for name in LABELS if name != "random"]
    chosen = known if plan.methods is None else list(plan.methods)
    unknown = [name for name in chosen if name not in known]
    if unknown or PAPER not in chosen:
        what = f"unknown methods {', '.join(unknown)}" if unknown else f"the methods lack {PAPER!r}"
        raise ValueError(f"better_flashtrace.methods: {what}; known are {', '.join(known)}")
    return chosen


def check_cells(cells: Iterable[str]) -> list[str]:
    """The cells as a list; ValueError where one is unknown or there is none."""
    cells = list(cells)
    unknown = [name for name in cells if name not in CELLS]
    if unknown or not cells:
        raise ValueError(f"unknown cells {', '.join(unknown) or '(none given)'}: known are {', '.join(CELLS)}")
    return cells


def with_halves(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame of `evaluation.evaluate` with the ``half`` and the ``group`` of each row's cell."""
    half, group = ({name: getattr(cell, field) for name, cell in CELLS.items()} for field in ("half", "group"))
    return frame.assign(half=frame["cell"].map(half), group=frame["cell"].map(group))


# --- cost -----------------------------------------------------------------------------------------------------


def cost_table(
    run: Run, plan: BetterProfile | None = None, cells: Iterable[str] | None = None, rate: float = DEFAULT_RATE
) -> pd.DataFrame:
    """Passes and core-hours of the plan from scratch, without generating the responses.

    Parameters
    ----------
    run : Run
    plan : BetterProfile, optional
    cells : iterable of str, optional
        Both as for `measure`.
    rate : float
        Floating-point operations a second of one core.

    Returns
    -------
    pandas.DataFrame
        ``cell, samples, passes, core_hours``; hours are NaN where the model's name does not say its size.
    """
    plan = plan or run.profile.better_flashtrace
    parameters = parameters_of(run.profile.model) or float("nan")
    rows = []
    for name in planned_cells(plan) if cells is None else check_cells(cells):
        n_input, n_response = _LENGTHS.get(name, plan.length), RESPONSE["ruler"]
        wanted = _wanted(name, plan)
        total = wanted * _attribution_passes(run, planned_methods(plan), n_input, n_response)
        total += min(plan.mask_samples, wanted) * (plan.masks + 2)
        few = len(set(planned_methods(plan)) & {*MAIN, *BASELINES}) + plan.drop_draws
        total += min(plan.drop_samples, wanted) * (2 * len(TOP_COUNTS) * few + 2)
        hours = total * 2 * parameters * (n_input + n_response) / rate / 3600
        rows.append({"cell": name, "samples": wanted, "passes": round(total), "core_hours": hours})
    return pd.DataFrame(rows)


def _attribution_passes(run: Run, names: Sequence[str], n_input: int, n_response: int) -> float:
    """Forward passes that one sample's attributions take; the settings of FlashTrace share one."""
    by_token = sum("aggregation" in options for name, options in settings().items() if name in names)
    own = len([name for name in settings() if name in names])
    shared = 1 + by_token * (_BY_TOKEN - 1) + (own - by_token) * (passes(run.profile, "flashtrace", n_input) - 1)
    return shared + sum(passes(run.profile, name, n_input, n_response) for name in BASELINES if name in names)


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``python -m flashtrace_book.experiments.better_flashtrace``; 2 for bad input or a full disk."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="laptop", help="name or .yaml file (default: laptop)")
    parser.add_argument("--cells", nargs="+", metavar="CELL", help="default: the profile's")
    parser.add_argument("--samples", type=int, help="of a cell (default: the profile's)")
    parser.add_argument("--mask-samples", type=int, help="of a cell, with LDS (default: the profile's)")
    parser.add_argument("--estimate", action="store_true", help="say what it costs, and stop")
    arguments = parser.parse_args(argv)
    try:
        return _measure_and_print(arguments)
    except (ValueError, CannotWrite) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _measure_and_print(arguments: argparse.Namespace) -> int:
    run = start(arguments.profile)
    plan = run.profile.better_flashtrace
    given = {"samples": arguments.samples, "mask_samples": arguments.mask_samples}
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    cells = planned_cells(plan) if arguments.cells is None else check_cells(arguments.cells)
    cost = cost_table(run, plan, cells, measured_rate())
    print(cost.round(2).to_string(index=False))
    print(
        f"{cost['core_hours'].sum():.1f} core-hours from scratch; responses come on top, stored results do not",
        flush=True,
    )
    if arguments.estimate:
        return 0
    frame = measure(run, *run.load_model(), plan, cells)
    for reference in [name for name in (PAPER, "ifr", CANDIDATE) if name in set(frame["method"])]:
        print(f"\n{PRIMARY}, minus {LABELS[reference]}:\n{readable(differences(frame, reference))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
