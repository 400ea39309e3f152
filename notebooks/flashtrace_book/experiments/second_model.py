"""The same methods on a second model (section 5.2, Table 5): its samples, and the agreement of the rankings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from flashtrace_lib.attribution import Method
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import FORCED, NOTHING, STEPS, Collection

from ..evaluations import LDS, evaluate_with_curves, first_of_cells
from ..methods import profile_methods
from ..paper_numbers import PAPER, RULER_CELLS
from ..profiles import Profile
from ..run import Run
from ..samples import cell_of, collect_stored, ruler_cell_examples, ruler_collections
from .reasoning_tasks import task_collection

RANKED = ("recovery", "r_precision", "auroc")  # without a forward pass of their own
RULER = "ruler"  # the cell that pools all RULER cells, the paper's "RULER (Avg)"
_PAPER_METHODS = ("ifr", "attnlrp", "flashtrace")  # of Table 5
_MAIN_STORES = {"ruler": "ruler", "gsm8k": "math", "math500": "math", "morehopqa": "morehopqa"}


def second_name(run: Run, named: str | None = None) -> str:
    """The second model: ``named``, else the profile's; ValueError where it is the first one."""
    name = named or run.profile.generalisation.model
    if name == run.profile.model:
        raise ValueError(f"the second model is the profile's own, {name!r}: name another to compare it with")
    return name


def suffix(run: Run, name: str) -> str:
    """End of the names of files: empty for the profile's second model, else for example ``"_gemma3_270m"``."""
    if name == run.profile.generalisation.model:
        return ""
    return "_" + re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def compared_methods(run: Run, tokenizer: Any = None) -> list[Method]:
    """The methods of the comparison, with the profile's options."""
    return profile_methods(run, run.profile.generalisation.methods, tokenizer)


def first_collections(run: Run, model: torch.nn.Module, tokenizer: Any) -> dict[str, Collection]:
    """Samples of the profile's model by cell: those of its own tables, as many as the second model gets."""
    settings = run.profile.generalisation
    collections = _collections(Run(_narrowed(run.profile)), model, tokenizer)
    for cell, collection in collections.items():
        n = settings.task_samples if cell in settings.tasks else settings.ruler_samples
        collections[cell] = replace(collection, samples=collection.samples[:n])
    return collections


def second_collections(run: Run, model: torch.nn.Module, tokenizer: Any) -> dict[str, Collection]:
    """Samples of the second model by cell, drawn from the problems of the first.

    The same problems are drawn as for the profile's model (`samples.held_out`), whatever the second model is.
    Their length in tokens is counted by its own tokenizer, so that another tokenizer gets another amount of haystack.
    """
    return _collections(Run(_of_second(run.profile)), model, tokenizer)


def step_by_step_collections(run: Run, model: torch.nn.Module, tokenizer: Any) -> dict[str, Collection]:
    """Right answers of the second model to the cells of ``generalisation.step_by_step``, as ``<cell>_steps``.

    The problems are those of `second_collections`; the model's turn is begun for it so that it lists the facts before
    it answers (``mode="step_by_step"`` of `responses.prompt_settings`), which gives a model that answers at once a T.
    A cell that it never gets right stays empty.
    """
    profile = _of_second(run.profile)
    options = {"mode": STEPS, "fallback": NOTHING, "max_new_tokens": profile.generalisation.step_tokens}
    found = {}
    for cell in run.profile.generalisation.step_by_step:
        examples = ruler_cell_examples(Run(profile), cell, tokenizer)
        examples = [replace(example, cell=f"{cell}_steps") for example in examples]
        found[f"{cell}_steps"] = collect_stored(
            run, "ruler_responses", examples, model, tokenizer, profile.ruler.samples, **options
        )
    return found


def evaluate_first(
    run: Run, methods: Iterable[Method], cells: Mapping[str, Collection], model: torch.nn.Module
) -> pd.DataFrame:
    """The first model's results, from the stores of the notebooks that hold its tables, computed where missing."""
    methods, scorer = list(methods), Scorer(model, precision="auto")
    samples_of_store: dict[str, list[Sample]] = {}
    for cell, collection in cells.items():
        samples_of_store.setdefault(_MAIN_STORES.get(cell, "ruler"), []).extend(collection.samples)
    frames = []
    for name, samples in samples_of_store.items():
        store = Store(run.store(name))
        frames.append(evaluate_samples(run, methods, samples, model, store, scorer))
        store.compact()
    return pd.concat(frames, ignore_index=True)


def evaluate_samples(
    run: Run,
    methods: Iterable[Method],
    samples: Iterable[Sample],
    model: torch.nn.Module,
    store: Store,
    scorer: Scorer,
    *,
    curves: int | None = None,
    masks: int = 0,
) -> pd.DataFrame:
    """Ranking metrics on all samples, RISE, MAS and LDS on the first ones of a cell; as `evaluation.evaluate`.

    Parameters
    ----------
    curves : int, optional
        Samples of a cell with deletion curves. Default: ``generalisation.curve_samples``.
    masks : int
        Samples of a cell with LDS, where the model's own answers are explained: an ablation tells nothing of a
        teacher-forced one that the model would not give.
    """
    methods, samples = list(methods), list(samples)
    by_cell = {} if curves is None else {cell_of(sample): curves for sample in samples}
    usual = run.profile.generalisation.curve_samples
    evaluation = replace(run.profile.evaluation, curve_samples=usual, curves=by_cell)
    counted = Run(replace(run.profile, evaluation=evaluation))
    frame = evaluate_with_curves(counted, methods, samples, model, store, scorer, RANKED)
    own = [sample for sample in samples if sample.metadata.get("response") != FORCED]
    if not masks or not own:
        return frame
    how = {"store": store, "steps": run.profile.steps, "masks": run.profile.evaluation.masks, "scorer": scorer}
    masked = evaluate(methods, first_of_cells(own, masks), model, metrics=LDS, **how)
    return pd.concat([frame, masked], ignore_index=True)


def pooled(frame: pd.DataFrame, tasks: Iterable[str]) -> pd.DataFrame:
    """The frame, and every row of a RULER cell once more under the cell ``"ruler"``, the paper's average."""
    of_ruler = frame[~frame["cell"].isin(list(tasks))]
    return pd.concat([frame, of_ruler.assign(cell=RULER)], ignore_index=True)


def both_models(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Means of two models side by side.

    Parameters
    ----------
    frames : mapping of str to pandas.DataFrame
        Two frames of `evaluation.evaluate`, by the name of the model.

    Returns
    -------
    pandas.DataFrame
        ``method, cell, metric, first, second, n_first, n_second``; rows that only one model has are left out.
    """
    index = ["method", "cell", "metric"]
    first, second = (frame.groupby(index, sort=False)["value"] for frame in frames.values())
    means = first.agg(first="mean", n_first="count").join(second.agg(second="mean", n_second="count"), how="inner")
    return means.reset_index()[[*index, "first", "second", "n_first", "n_second"]]


def rank_agreement(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Spearman's correlation between two models' means over methods and cells, metric by metric.

    Over methods and cells, a cell that is hard for every method makes two models agree by itself. Within cells, the
    methods are ranked in each cell before they are compared, so that only their order counts.

    There is no interval: methods and cells are fixed, not drawn, and noise in the means lowers the correlation, once
    more in every resample, so that a bootstrap interval lies too low.

    Parameters
    ----------
    first, second : pandas.DataFrame
        From `evaluation.evaluate`, with the same methods and cells (others are left out).

    Returns
    -------
    pandas.DataFrame
        ``metric, over`` ("methods and cells", "methods within cells"), ``rho`` (NaN where nothing varies),
        ``methods, cells`` and ``n``, the fewest samples behind a mean.

    Raises
    ------
    ValueError
        If the two have fewer than two methods in common.
    """
    rows = []
    for metric in _in_both(first, second, "metric"):
        a, b = (frame[frame["metric"] == metric] for frame in (first, second))
        cells, methods = _in_both(a, b, "cell"), _in_both(a, b, "method")
        if len(methods) < 2:
            raise ValueError(f"{metric}: ranks need two methods that both models were scored with, got {methods}")
        means_a, n_a = _means(a, cells, methods)
        means_b, n_b = _means(b, cells, methods)
        rows += [{"metric": metric, **row, "n": min(n_a, n_b)} for row in _agreement(means_a, means_b)]
    return pd.DataFrame(rows)


def paper_agreement() -> pd.DataFrame:
    """`rank_agreement` of the numbers that the paper prints for its two models (RULER average, MATH; three methods).

    Returns
    -------
    pandas.DataFrame
        ``metric, over, rho, methods, cells``; the RULER average of the first model is the mean of Table 1's columns.
    """
    rows = []
    for metric in ("rise", "mas"):
        ruler = [np.mean([PAPER[1][method, cell, metric] for cell in RULER_CELLS]) for method in _PAPER_METHODS]
        math = [PAPER[2][method, "math", metric] for method in _PAPER_METHODS]
        second = [[PAPER[5][method, cell, metric] for method in _PAPER_METHODS] for cell in (RULER, "math")]
        rows += [{"metric": metric, **row} for row in _agreement(np.array([ruler, math]), np.array(second))]
    return pd.DataFrame(rows)


def _of_second(profile: Profile) -> Profile:
    """The profile with the cells, numbers of samples and limits that the second model gets."""
    settings, profile = profile.generalisation, _narrowed(profile)
    limits = {"max_tries": settings.max_tries, "max_new_tokens": settings.max_new_tokens}
    return replace(
        profile,
        ruler=replace(profile.ruler, samples=settings.ruler_samples, new_tokens=settings.new_tokens, **limits),
        reasoning=replace(profile.reasoning, samples=settings.task_samples, **limits),
    )


def _narrowed(profile: Profile) -> Profile:
    """The profile with the RULER cells of the comparison alone."""
    cells = profile.generalisation.cells or profile.ruler.cells
    lengths, new_tokens = (
        {cell: n for cell, n in by_cell.items() if cell in cells}
        for by_cell in (profile.ruler.lengths, profile.ruler.new_tokens)
    )
    return replace(
        profile,
        ruler=replace(profile.ruler, cells=cells, lengths=lengths, new_tokens=new_tokens),
        generalisation=replace(profile.generalisation, cells=None),
    )


def _collections(run: Run, model: torch.nn.Module, tokenizer: Any) -> dict[str, Collection]:
    """RULER cells, then tasks, of a run's profile."""
    tasks = run.profile.generalisation.tasks
    ruler = ruler_collections(run, model, tokenizer) if run.profile.ruler.cells else {}
    return ruler | {kind: task_collection(run, model, tokenizer, kind) for kind in tasks}


def _in_both(first: pd.DataFrame, second: pd.DataFrame, column: str) -> list[str]:
    """Values of a column that both frames have, in the order of the first."""
    in_second = set(second[column])
    return [value for value in dict.fromkeys(first[column]) if value in in_second]


def _means(frame: pd.DataFrame, cells: list[str], methods: list[str]) -> tuple[np.ndarray, int]:
    """Means [cells, methods] over each cell's samples that every method has, and the fewest samples of a cell."""
    means, counts = [], []
    for cell in cells:
        part = frame[frame["cell"] == cell]
        values = part.pivot_table(index="sample", columns="method", values="value")[methods].dropna()
        means.append(values.to_numpy().mean(0))
        counts.append(len(values))
    return np.stack(means), min(counts)


def _agreement(first: np.ndarray, second: np.ndarray) -> list[dict[str, Any]]:
    """Both correlations of two tables of means [cells, methods], a row each."""
    n_cells, n_methods = first.shape
    correlations = {
        "methods and cells": _correlation(_ranks(first.reshape(1, -1)), _ranks(second.reshape(1, -1))),
        "methods within cells": _correlation(_ranks(first), _ranks(second)),
    }
    return [{"over": over, "rho": rho, "methods": n_methods, "cells": n_cells} for over, rho in correlations.items()]


def _ranks(rows: np.ndarray) -> np.ndarray:
    """Ranks 1, 2, … within each row, flat; equal values share their mean rank."""
    return pd.DataFrame(rows).rank(axis=1).to_numpy().ravel()


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's correlation, exactly 0 where that of ranks is; NaN where one side does not vary."""
    a, b = a - a.mean(), b - b.mean()
    spread = np.sqrt((a**2).sum() * (b**2).sum())
    return float((a * b).sum() / spread) if spread > 0 else np.nan
