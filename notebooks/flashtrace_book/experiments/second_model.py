"""The same methods on a second model (section 5.2, Table 5): its samples, and whether the methods rank alike."""

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
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import Collection

from ..methods import profile_methods
from ..paper_numbers import PAPER, RULER_CELLS
from ..profiles import Profile
from ..run import Run
from ..samples import all_samples, ruler_collections
from .reasoning_tasks import task_collection

RULER = "ruler"  # the cell that pools all RULER cells, the paper's "RULER (Avg)"
METRICS = ("recovery", "r_precision", "rise", "mas")
_PAPER_METHODS = ("ifr", "attnlrp", "flashtrace")  # of Table 5
_MAIN_STORES = {"ruler": "ruler", "gsm8k": "math", "math500": "math", "morehopqa": "morehopqa"}


def second_name(run: Run, named: str | None = None) -> str:
    """The second model: ``named``, else the profile's; ValueError where it is the first one."""
    name = named or run.profile.generalisation.model
    if name == run.profile.model:
        raise ValueError(f"the second model is the profile's own, {name!r}: name another to compare it with")
    return name


def suffix(run: Run, name: str) -> str:
    """What file names of another second model than the profile's end with: ``"_gemma3_270m"``, say; else nothing."""
    if name == run.profile.generalisation.model:
        return ""
    return "_" + re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def compared_methods(run: Run, tokenizer: Any = None) -> list[Method]:
    """The methods of the comparison, with the profile's options."""
    return profile_methods(run, run.profile.generalisation.methods, tokenizer)


def first_collections(run: Run, model: torch.nn.Module, tokenizer: Any) -> dict[str, Collection]:
    """Samples of the profile's model: those of its own tables, as many as the second model gets.

    Returns
    -------
    dict of str to Collection
        RULER cells, then tasks.
    """
    found = _collections(Run(_narrowed(run.profile)), model, tokenizer)
    settings = run.profile.generalisation
    wanted = {cell: settings.task_samples if cell in settings.tasks else settings.ruler_samples for cell in found}
    return {cell: replace(part, samples=part.samples[: wanted[cell]]) for cell, part in found.items()}


def second_collections(run: Run, model: torch.nn.Module, tokenizer: Any) -> dict[str, Collection]:
    """Samples of the second model, drawn from the problems of the first.

    The same problems are drawn as for the profile's model (`samples.held_out`), whatever the second model is.
    Their length in tokens is counted by its own tokenizer, so that another tokenizer gets another amount of haystack.
    """
    settings, profile = run.profile.generalisation, _narrowed(run.profile)
    tries = {"max_tries": settings.max_tries, "max_new_tokens": settings.max_new_tokens}
    profile = replace(
        profile,
        ruler=replace(profile.ruler, samples=settings.ruler_samples, **tries),
        reasoning=replace(profile.reasoning, samples=settings.task_samples, **tries),
    )
    return _collections(Run(profile), model, tokenizer)


def evaluate_first(
    run: Run, methods: Iterable[Method], cells: Mapping[str, Collection], model: torch.nn.Module
) -> pd.DataFrame:
    """The first model's results, from the stores of the notebooks that hold its tables, computed where missing."""
    methods, scorer, parts = list(methods), Scorer(model, precision="auto"), {}
    for cell, collection in cells.items():
        parts.setdefault(_MAIN_STORES.get(cell, "ruler"), {})[cell] = collection
    frames = []
    for name, found in parts.items():
        store = Store(run.store(name))
        frames.append(evaluate(methods, all_samples(found), model, store=store, metrics=METRICS,
                               steps=run.profile.steps, scorer=scorer))  # fmt: skip
        store.compact()
    return pd.concat(frames, ignore_index=True)


def pooled(frame: pd.DataFrame, tasks: Iterable[str]) -> pd.DataFrame:
    """Every row of a RULER cell once more, under the cell ``"ruler"``: what the paper averages over."""
    return pd.concat([frame, frame[~frame["cell"].isin(list(tasks))].assign(cell=RULER)], ignore_index=True)


def both_models(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Means of two models side by side.

    Parameters
    ----------
    frames : mapping of str to pandas.DataFrame
        Two frames of `evaluation.evaluate`, by the name of the model.

    Returns
    -------
    pandas.DataFrame
        ``method, cell, metric, first, second, n_first, n_second``; what only one model has is left out.
    """
    first, second = (
        frame.groupby(["method", "cell", "metric"], sort=False)["value"].agg(["mean", "count"])
        for frame in frames.values()
    )
    table = first.join(second, how="inner", suffixes=("_first", "_second")).reset_index()
    named = {"mean_first": "first", "mean_second": "second", "count_first": "n_first", "count_second": "n_second"}
    return table.rename(columns=named)[["method", "cell", "metric", *named.values()]]


def rank_agreement(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Spearman's correlation between two models' means over methods and cells, metric by metric.

    Over *everything* a hard cell is hard for every method, which alone makes two models agree. *Within cells* the
    methods are ranked in each cell before they are compared, so that nothing but their order counts.

    There is no interval: methods and cells are fixed, not drawn, and noise in the means lowers the correlation, once
    more in every resample, so that a bootstrap's interval lies too low.

    Parameters
    ----------
    first, second : pandas.DataFrame
        From `evaluation.evaluate`, with the same methods and cells (others are left out).

    Returns
    -------
    pandas.DataFrame
        ``metric, over`` ("methods and cells", "methods within cells"), ``rho``, ``methods, cells`` and ``n``, the
        fewest samples behind a mean. NaN where nothing varies.

    Raises
    ------
    ValueError
        If the two have fewer than two methods in common.
    """
    rows = []
    for metric in [m for m in dict.fromkeys(first["metric"]) if m in set(second["metric"])]:
        a, b = (frame[frame["metric"] == metric] for frame in (first, second))
        cells = [cell for cell in dict.fromkeys(a["cell"]) if cell in set(b["cell"])]
        methods = [method for method in dict.fromkeys(a["method"]) if method in set(b["method"])]
        if len(methods) < 2:
            raise ValueError(f"{metric}: ranks need two methods that both models were scored with, got {methods}")
        values = [[_values(part, methods, cell) for cell in cells] for part in (a, b)]
        n = min(len(samples) for part in values for samples in part)
        means = [np.stack([samples.mean(0) for samples in part])[None] for part in values]  # each [1, cells, methods]
        for over, within in (("methods and cells", False), ("methods within cells", True)):
            rho = float(_spearman(*means, within=within)[0])
            rows.append({"metric": metric, "over": over, "rho": rho, "methods": len(methods), "cells": len(cells),
                         "n": n})  # fmt: skip
    return pd.DataFrame(rows)


def paper_agreement() -> pd.DataFrame:
    """The same of the numbers that the paper prints for its two models (RULER average and MATH; three methods).

    Returns
    -------
    pandas.DataFrame
        ``metric, over, rho, methods, cells``; its RULER average of the first model is the mean of Table 1's columns.
    """
    rows = []
    for metric in ("rise", "mas"):
        first = [[np.mean([PAPER[1][m, cell, metric] for cell in RULER_CELLS]) for m in _PAPER_METHODS]]
        first += [[PAPER[2][m, "math", metric] for m in _PAPER_METHODS]]
        second = [[PAPER[5][m, cell, metric] for m in _PAPER_METHODS] for cell in (RULER, "math")]
        a, b = (np.array([values]) for values in (first, second))  # [1, cells, methods]
        for over, within in (("methods and cells", False), ("methods within cells", True)):
            rho = float(_spearman(a, b, within=within)[0])
            rows.append({"metric": metric, "over": over, "rho": rho, "methods": len(_PAPER_METHODS), "cells": 2})
    return pd.DataFrame(rows)


def _narrowed(profile: Profile) -> Profile:
    """The profile with the RULER cells of the comparison alone."""
    cells = profile.generalisation.cells or profile.ruler.cells
    lengths = {cell: length for cell, length in profile.ruler.lengths.items() if cell in cells}
    return replace(profile, ruler=replace(profile.ruler, cells=cells, lengths=lengths),
                   generalisation=replace(profile.generalisation, cells=None))  # fmt: skip


def _collections(run: Run, model: torch.nn.Module, tokenizer: Any) -> dict[str, Collection]:
    """RULER cells, then tasks, of a run's profile."""
    tasks = run.profile.generalisation.tasks
    ruler = ruler_collections(run, model, tokenizer) if run.profile.ruler.cells else {}
    return ruler | {kind: task_collection(run, model, tokenizer, kind) for kind in tasks}


def _values(frame: pd.DataFrame, methods: list[str], cell: str) -> np.ndarray:
    """Values of a cell's samples that every method has, float64 [samples, methods]."""
    part = frame[frame["cell"] == cell]
    return part.pivot_table(index="sample", columns="method", values="value")[methods].dropna().to_numpy()


def _spearman(a: np.ndarray, b: np.ndarray, within: bool) -> np.ndarray:
    """Spearman's correlation of each draw; ``within``: of the ranks that the methods have in their cell.

    Parameters
    ----------
    a, b : float [draws, cells, methods]

    Returns
    -------
    float64 [draws]
        NaN where one side does not vary.
    """
    a, b = (_ranks(x.reshape(-1, x.shape[2])).reshape(x.shape) if within else x for x in (a, b))
    if not within:
        a, b = (_ranks(x.reshape(len(x), -1)) for x in (a, b))
    a, b = (x.reshape(len(x), -1) for x in (a, b))
    a, b = (x - x.mean(1, keepdims=True) for x in (a, b))
    spread = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return np.divide((a * b).sum(1), spread, out=np.full(len(a), np.nan), where=spread > 0)


def _ranks(rows: np.ndarray) -> np.ndarray:
    """Ranks 1, 2, … within each row, ties shared; float64 of the same shape."""
    return pd.DataFrame(rows).rank(axis=1).to_numpy()
