"""Counterfactual swaps as a yardstick: which metric ranks attributions as the swaps do?

A swap needs no mask and no marked evidence: the prompt stays a valid problem, only with another answer. A metric that
agrees with the swaps across methods and samples measures what the answer depends on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.attribution import holds_copies, sentence_scores, sentences_of_input
from flashtrace_lib.evaluation.results_table import Record
from flashtrace_lib.metrics import HIGHER_IS_BETTER, swap_agreement
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.tasks import example_swaps, swap_effects

from ..profiles import Profile
from ..run import Run
from ..samples import cell_of, ruler_cell_examples
from ..statistics import mean_row, rank_correlation

SWAP_METRICS = ("swap_spearman", "swap_auroc")


def ruler_swap_effects(
    run: Run, model: torch.nn.Module, tokenizer: Any, samples: Sequence[Sample], store: Store | None = None
) -> dict[str, pd.DataFrame]:
    """What swapping each fact of the RULER samples does to the model's response (`tasks.swap_effects`).

    Parameters
    ----------
    samples : sequence of Sample
        Of `samples.ruler_collections`; those of other tasks are left out.
    store : Store, optional
        Where the effects are kept.

    Returns
    -------
    dict of str to pandas.DataFrame
        Effects by the sample's id.
    """
    ruler = [sample for sample in samples if sample.metadata.get("task") == "ruler"]
    cells = dict.fromkeys(cell_of(sample) for sample in ruler)
    examples = {example.id: example for cell in cells for example in ruler_cell_examples(run, cell, tokenizer)}
    effects = {}
    for sample in tqdm(ruler, desc="swaps"):
        example = examples[sample.id]
        swaps = example_swaps(example, tokenizer, run.profile.seed)
        effects[sample.id] = swap_effects(model, tokenizer, sample, example, swaps, store=store)
    if store is not None:
        store.compact()
    return effects


def stored_record(profile: Profile, model: torch.nn.Module, store: Store, sample: Sample) -> dict[str, Any] | None:
    """The sample's record in the store ``ruler_swaps``; None where there is none."""
    records = store.records()
    found = records[records["sample"] == sample.id] if len(records) else records
    return found.iloc[-1].to_dict() if len(found) else None


def compare(
    profile: Profile, model: torch.nn.Module, tokenizer: Any, sample: Sample, stored: Mapping[str, Any]
) -> tuple[str, Any, Any, bool]:
    """Swap the facts of a sample again: name of the check, stored drops, drops found, and whether they agree."""
    again = ruler_swap_effects(Run(profile), model, tokenizer, [sample])[sample.id]
    old, new = np.asarray(stored["drop"], dtype=float), again["drop"].to_numpy()
    agrees = list(stored["text"]) == list(again["text"]) and np.allclose(old, new, rtol=1e-3, atol=1e-2)  # nats
    return "drops by swapped fact", old.round(3).tolist(), new.round(3).tolist(), bool(agrees)


def swap_table(effects: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Effect of each kind of swap: ``kind, swaps, drop, low, high, n``; n counts samples, each with its mean drop."""
    rows = []
    frame = pd.concat([table.assign(sample=sample) for sample, table in effects.items()], ignore_index=True)
    for kind, part in frame.groupby("kind", sort=False):
        rows.append({"kind": kind, "swaps": len(part), **mean_row(part.groupby("sample")["drop"].mean(), "drop")})
    return pd.DataFrame(rows)


def swap_frame(
    records: pd.DataFrame | Iterable[Record], samples: Iterable[Sample], effects: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """`metrics.swap_agreement` of every stored attribution whose sample was swapped.

    Parameters
    ----------
    records : DataFrame (``Store.records()``) or iterable of dict
        Of `evaluation.evaluate`.
    samples : iterable of Sample
        What the records are about.
    effects : mapping of sample id to pandas.DataFrame
        From `ruler_swap_effects`.

    Returns
    -------
    pandas.DataFrame
        ``method, cell, sample, metric, value``, one row a record and metric of ``SWAP_METRICS``; undefined values are
        left out.
    """
    if isinstance(records, pd.DataFrame):
        records = records.to_dict("records")
    sentences = {sample.id: sentences_of_input(sample) for sample in samples}
    rows = []
    for record in records:
        if record["sample"] not in effects or record["sample"] not in sentences:
            continue
        copies = holds_copies(json.loads(record["method_metadata"]))
        scores = torch.as_tensor(np.asarray(record["scores"], dtype=np.float32))  # [|I|]
        by_sentence = sentence_scores(scores, sentences[record["sample"]], copies)
        found = swap_agreement(by_sentence, effects[record["sample"]])
        shared = {name: record[name] for name in ("method", "cell", "sample")}
        rows += [{**shared, "metric": name, "value": found[name]} for name in SWAP_METRICS]
    return pd.DataFrame(rows, columns=["method", "cell", "sample", "metric", "value"]).dropna(subset="value")


def agreement(frame: pd.DataFrame, swap_metric: str = "swap_auroc") -> pd.DataFrame:
    """Rank correlation of every metric with a swap metric, across pairs of method and sample.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns ``method, sample, metric, value``: of `evaluation.evaluate` and of `swap_frame`, one under the other.
    swap_metric : str
        The yardstick, one of the metrics of the frame.

    Returns
    -------
    pandas.DataFrame
        One row a metric. ``rho`` is Spearman's correlation over all ``pairs`` (method, sample) that have both values;
        of a metric whose low values are good the sign is turned, so that 1 is full agreement. ``within`` is the mean
        over samples of the correlation over methods on one sample, which the difficulty of the samples cannot
        make; ``low, high`` is its 95 % interval and ``n`` the number of samples, those on which either side is
        constant or has fewer than three methods left out. Pairs of one sample are not independent, so ``rho`` has no
        interval.

    Raises
    ------
    ValueError
        If the frame does not hold the swap metric, or a pair has two values of a metric.
    """
    if swap_metric not in set(frame["metric"]):
        raise ValueError(f"the frame holds no {swap_metric!r}: add the rows of swap_frame to it")
    keys = ["method", "sample"]
    if frame.duplicated([*keys, "metric"]).any():
        raise ValueError("a method has two values of one metric on one sample: give each setting its own label")
    wide = frame.pivot(index=keys, columns="metric", values="value")
    rows = []
    for metric in dict.fromkeys(frame["metric"]):
        if metric == swap_metric:
            continue
        sign = 1 if HIGHER_IS_BETTER.get(metric, True) else -1
        both = pd.DataFrame({"metric": sign * wide[metric], "swap": wide[swap_metric]}).dropna()
        of_samples = [_correlation(part) for _, part in both.groupby(level="sample")]
        within = mean_row([rho for rho in of_samples if not np.isnan(rho)], "within")
        rows.append({"metric": metric, "rho": _correlation(both), "pairs": len(both), **within})
    return pd.DataFrame(rows, columns=["metric", "rho", "pairs", "within", "low", "high", "n"])


def _correlation(both: pd.DataFrame) -> float:
    """Spearman's correlation of the two columns; NaN where one is constant or there are fewer than three rows."""
    if len(both) < 3 or both.nunique().min() < 2:
        return float("nan")
    return rank_correlation(both["metric"], both["swap"])
