"""One evaluation of many metrics, each on as many samples of a cell as the profile gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch

from flashtrace_lib.attribution import Method
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.evaluation.draws import add_calibrated, mean_over_draws, random_draws
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store

from .methods import profile_methods
from .run import Run
from .samples import cell_of

# Without a forward pass, by ranking alone; "_haystack": question and instructions left out.
RANKING = (
    "recovery", "recovery_cap", "r_precision", "auroc", "ap", "mrr", "sentence_hit", "pointing",
    "recovery_haystack", "r_precision_haystack", "auroc_haystack", "ap_haystack", "mrr_haystack",
    "sentence_hit_haystack", "pointing_haystack",
)  # fmt: skip
LDS = ("lds", "lds_log_prob", "lds_output")  # from masks that all methods share
DROP = ("drop1", "drop3", "drop5", "keep1", "keep3", "keep5")  # a pass for each number of sentences
CURVE = ("rise", "mas")


def evaluate_all(
    run: Run,
    samples: Sequence[Sample],
    model: torch.nn.Module,
    store: Store,
    *,
    tokenizer: Any = None,
    methods: Iterable[Method] | None = None,
    scorer: Scorer | None = None,
) -> pd.DataFrame:
    """Every metric of every method of a profile, with the random baselines as the mean of their draws.

    Parameters
    ----------
    run : Run
        Its profile's ``evaluation`` says how many samples of a cell each kind of metric gets.
    samples : sequence of Sample
        In the order in which the first of a cell are taken.
    store : Store
        Where to resume from and write to.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        See `methods.profile_methods`.
    methods : iterable of Method, optional
        Default: the profile's, without its random baseline, which is drawn here.

    Returns
    -------
    pandas.DataFrame
        As `evaluation.evaluate`; each metric has the samples that it was measured on.
    """
    settings = run.profile.evaluation
    methods = profile_methods(run, tokenizer=tokenizer) if methods is None else methods
    labelled = {method.name: method for method in methods if method.name not in ("random", "random_sentences")}
    few = {method.name: method for method in profile_methods(run, settings.few_methods, tokenizer)}
    cheap, costly = labelled | _draws(settings.draws), labelled | _draws(settings.curve_draws)
    masked = first_of_cells(samples, settings.mask_samples)
    curved = first_of_cells(samples, settings.curves_of)
    plan: list[tuple[Mapping[str, Method], Sequence[Sample], tuple[str, ...]]] = [
        (cheap, samples, RANKING),
        (cheap, masked, LDS),
        (costly, masked, DROP),
        (costly, curved, CURVE),
        (few, first_of_cells(samples, settings.few_samples), RANKING),
        (few, first_of_cells(masked, settings.few_samples), LDS),
        (few, first_of_cells(masked, settings.few_drop_samples), DROP),
        (few, first_of_cells(samples, settings.few_curves_of), CURVE),
    ]
    how = {"store": store, "steps": run.profile.steps, "scorer": scorer, "masks": settings.masks}
    frames = [
        mean_over_draws(evaluate(group, part, model, metrics=metrics, **how))
        for group, part, metrics in plan
        if group and part
    ]
    return add_calibrated(pd.concat(frames, ignore_index=True), steps=run.profile.steps)


def measurable(run: Run, samples: Sequence[Sample]) -> Sequence[Sample]:
    """All samples or, where no evidence is marked so that a ranking has no measure, those that get a deletion curve.

    Raises
    ------
    ValueError
        If nothing can be measured: no evidence is marked, and the profile gives these cells no curve.
    """
    if any(sample.gold is not None for sample in samples):
        return samples
    curved = first_of_cells(samples, run.profile.evaluation.curves_of)
    if not curved:
        cells = ", ".join(sorted({str(sample.metadata["cell"]) for sample in samples}))
        raise ValueError(
            f"nothing can be measured on {cells}: no evidence is marked there, and profile {run.profile.name!r} gives "
            "no deletion curve (set evaluation.curve_samples, or evaluation.curves of the cell, to 1 or more)"
        )
    return curved


def evaluate_with_curves(
    run: Run,
    methods: Iterable[Method] | Mapping[str, Method],
    samples: Sequence[Sample],
    model: torch.nn.Module,
    store: Store,
    scorer: Scorer,
    ranking: Sequence[str] = ("recovery", "r_precision"),
) -> pd.DataFrame:
    """Ranking metrics on all samples, RISE and MAS on as many of a cell as the profile gives curves; as `evaluate`.

    Parameters
    ----------
    run : Run
        Its profile's ``evaluation.curve_samples`` and ``curves`` count, and ``steps``.
    ranking : sequence of str
        Metrics that need no forward pass of their own.
    """
    methods = methods if isinstance(methods, Mapping) else list(methods)
    curved = first_of_cells(samples, run.profile.evaluation.curves_of)
    rest = [sample for sample in samples if sample.id not in {sample.id for sample in curved}]
    how = {"store": store, "steps": run.profile.steps, "scorer": scorer}
    frames = [evaluate(methods, curved, model, metrics=(*ranking, *CURVE), **how)]
    frames += [evaluate(methods, rest, model, metrics=tuple(ranking), **how)] if rest else []
    return pd.concat(frames, ignore_index=True)


def first_of_cells(samples: Sequence[Sample], n: int | Callable[[str], int]) -> list[Sample]:
    """The first ``n`` samples of each cell, or as many as ``n`` says of a cell's name, in their order."""
    taken: dict[str, int] = {}
    kept = []
    for sample in samples:
        cell = cell_of(sample)
        taken[cell] = taken.get(cell, 0) + 1
        kept += [sample] if taken[cell] <= (n(cell) if callable(n) else n) else []
    return kept


def _draws(n: int) -> dict[str, Method]:
    """Draws of both random baselines."""
    return random_draws(n) | random_draws(n, sentences=True)
