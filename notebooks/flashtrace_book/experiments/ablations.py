"""The ablations (appendices H and M): numbers of hops, ways to aggregate the target, the shift of mass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from flashtrace_lib.attribution import Attribution, Method
from flashtrace_lib.evaluation.results_table import clusters_of
from flashtrace_lib.methods import FlashTrace, LastToken, MeanPooling, Positional
from flashtrace_lib.sample import Sample
from flashtrace_lib.tasks.responses import MARKS, Collection

from ..figures.mass import mass_frame
from ..run import Run
from ..samples import ruler_collections
from ..statistics import mean_row
from . import reasoning_tasks


def hop_methods(run: Run) -> dict[str, Method]:
    """FlashTrace with K = 0, 1, … hops, by label ``flashtrace_k<K>`` (Table 7)."""
    return {f"flashtrace_k{k}": FlashTrace(hops=k) for k in range(run.profile.ablations.hops + 1)}


def target_methods(run: Run) -> dict[str, Method]:
    """FlashTrace with every way to aggregate a span into one target (appendix M), by label; the paper's first."""
    hops = run.profile.hops
    return {
        "flashtrace": FlashTrace(hops=hops),
        "mean_pooling": MeanPooling(hops=hops),
        "last_token": LastToken(hops=hops),
        "rising": Positional(hops=hops, weighting="rising"),
        "falling": Positional(hops=hops, weighting="falling"),
        "sentence": FlashTrace(hops=hops, granularity="sentence"),
    }


def table1_collections(run: Run, model: torch.nn.Module, tokenizer: Any) -> dict[str, Collection]:
    """The samples of Table 1: of every RULER cell of the profile, and of HotpotQA, the first ``cell_samples``."""
    cells = ruler_collections(run, model, tokenizer)
    cells["hotpotqa"] = reasoning_tasks.hotpotqa_collection(run, model, tokenizer)
    n = run.profile.ablations.cell_samples
    return {cell: replace(collection, samples=collection.samples[:n]) for cell, collection in cells.items()}


def asked_samples(run: Run, model: torch.nn.Module, tokenizer: Any) -> list[Sample]:
    """The first samples of MoreHopQA, those of Table 7."""
    questions = reasoning_tasks.task_collection(run, model, tokenizer, "morehopqa")
    return questions.samples[: run.profile.ablations.hop_samples]


def data_name(cells: Mapping[str, Collection]) -> str:
    """What the cells are, for figures, with the marks of their responses (`responses.MARKS`)."""
    names = {"hotpotqa": "HotpotQA", "morehopqa": "MoreHopQA"}
    kinds = list(dict.fromkeys(names.get(cell, "RULER") for cell in cells))
    return " and ".join(kinds) + "".join(sorted({MARKS[collection.kind] for collection in cells.values()}))


def first_of_each(collections: Mapping[str, Collection], n: int) -> list[Sample]:
    """The first ``n`` samples of every cell, in order."""
    return [sample for collection in collections.values() for sample in collection.samples[:n]]


def mass_shift(samples: Iterable[Sample], attributions: Iterable[Attribution]) -> pd.DataFrame:
    """Mean shares and place of the mass at each hop, and their change since hop 0 (Fig. 7, appendix H).

    Parameters
    ----------
    samples : iterable of Sample
    attributions : iterable of Attribution
        One for each sample, with hops.

    Returns
    -------
    pandas.DataFrame
        ``quantity, hop, mean, low, high, change, change_low, change_high, n``, see `statistics.mean_row`. A quantity
        is the share of a hop's mass on a segment, or ``place in T``: the mean relative position of the mass on T, 0 at
        its first token and 1 at its last. The change is on the same samples.
    """
    samples, attributions = list(samples), list(attributions)
    cluster_of = clusters_of(samples)
    masses = mass_frame(samples, attributions).rename(columns={"segment": "quantity", "mass": "value"})
    frame = pd.concat([masses, _places(samples, attributions)], ignore_index=True)
    rows = []
    for quantity, part in frame.groupby("quantity", sort=False):
        wide = part.pivot_table(index="sample", columns="hop", values="value")
        for hop in wide:
            both = wide[[0, hop]].dropna() if hop else wide[[0]].dropna()
            shared = [cluster_of[sample] for sample in both.index]
            change = mean_row(both[hop] - both[0], "change", "change_", shared)
            rows.append({"quantity": quantity, "hop": hop, **mean_row(both[hop], clusters=shared), **change})
    columns = ["quantity", "hop", "mean", "low", "high", "change", "change_low", "change_high", "n"]
    return pd.DataFrame(rows, columns=columns)


def _places(samples: list[Sample], attributions: list[Attribution]) -> pd.DataFrame:
    """Mean place of each hop's mass within T; samples with fewer than two tokens there have none."""
    rows = []
    for sample, attribution in zip(samples, attributions, strict=True):
        start, stop = sample.segments.reasoning
        for k, hop in enumerate(attribution.hops):
            inside = hop.scores[start:stop].double().numpy()
            if len(inside) > 1 and inside.sum() > 0:
                place = np.average(np.linspace(0, 1, len(inside)), weights=inside)
                rows.append({"sample": sample.id, "hop": k, "quantity": "place in T", "value": place})
    return pd.DataFrame(rows, columns=["sample", "hop", "quantity", "value"])
