"""Sentence ablations in an evaluation: what is stored of them, where, and the metrics that are computed from it.

The masks of a sample and their effects serve all methods. They are one record a sample in a store of their own,
``<name>_masks`` beside ``<name>``; a method's record names it (``masks_key``). The likelihoods without and with a
method's highest-scored sentences are its own, and are stored in its record as its deletion curve is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from .. import metrics as m
from ..attribution import holds_copies, sentence_scores
from ..store import Store

Record = dict[str, Any]
Metric = Callable[[Record, str, str], float | None]

# Columns of a sample's masks that its methods' records share; the last two effects are of all kept and of none.
MASK_COLUMNS = ("n_masks", "masks", "mask_sources", "mask_log_probs", "mask_log_odds", "masks_dtype", "masks_note")
EFFECTS_OF = {"reasoning": 0, "output": 1, "response": 2}  # columns of mask_log_probs and mask_log_odds


class Memory(dict):
    """Records by key that last as long as the evaluation; takes the place of a store."""

    put = dict.__setitem__


@dataclass(frozen=True)
class Needs:
    """What the metrics of an evaluation need beside the scores.

    Parameters
    ----------
    curve : bool
        The deletion curve.
    top : bool
        The likelihoods without, and with only, the highest-scored sentences.
    n_masks : int
        Random masks over the sentences; 0 for none.
    """

    curve: bool = False
    top: bool = False
    n_masks: int = 0

    def __bool__(self) -> bool:
        return self.curve or self.top or self.n_masks > 0


def masks_beside(store: Store | Memory) -> Store | Memory:
    """The store of the masks that belong to ``store``."""
    return Memory() if isinstance(store, Memory) else Store(store.path.with_name(f"{store.path.stem}_masks"))


def without_masks(record: Record) -> Record:
    """The part of a record that is stored with its method."""
    return {name: value for name, value in record.items() if name not in MASK_COLUMNS}


def only_masks(record: Record) -> Record:
    """The part of a record that all methods of its sample share."""
    return {name: record[name] for name in MASK_COLUMNS if name in record}


def with_masks(record: Record, masks: Store | Memory) -> Record:
    """A method's stored record with the masks of its sample, where it names any."""
    key = record.get("masks_key")
    found = masks.get(key) if isinstance(key, str) else None
    return record if found is None else record | only_masks(found)


def records_with_masks(store: Store) -> pd.DataFrame:
    """``store.records()`` with the masks that are stored beside it, in the columns ``MASK_COLUMNS``."""
    masks = masks_beside(store)
    return pd.DataFrame([with_masks(record, masks) for record in store.records().to_dict("records")])


def has_masks(record: Record) -> bool:
    """Whether the record holds the masks of its sample."""
    return isinstance(record.get("masks"), (list, np.ndarray))


def has_top(record: Record) -> bool:
    """Whether the record holds the likelihoods without, and with only, its highest-scored sentences."""
    return isinstance(record.get("drop_log_probs"), (list, np.ndarray))


def source_scores(record: Record, sources: Sequence[Sequence[int]]) -> torch.Tensor:
    """Score of each source, float64 [U], of a record's method; token ranges are counted from the first token of I."""
    scores = torch.as_tensor(np.asarray(record["scores"], dtype=np.float64))
    return sentence_scores(scores, sources, holds_copies(json.loads(record.get("method_metadata") or "{}")))


def ranks_no_source(record: Record, metric: str) -> bool:
    """Whether the scores of all sources that a metric of sentence ablations ranks are equal."""
    sources = record.get("mask_sources" if metric in ON_MASKS else "top_sources")
    return sources is not None and m.ranks_nothing(source_scores(record, sources))


def _lds(column: str, *parts: str) -> Metric:
    """LDS on the likelihood of these parts of the response."""

    def metric(record: Record, definition: str, denominator: str) -> float | None:
        if not has_masks(record) or record.get("scores") is None:
            return None
        effects = np.asarray(list(record[column]), dtype=np.float64)[:-2, [EFFECTS_OF[part] for part in parts]]
        scores = source_scores(record, record["mask_sources"])
        return m.lds(scores, [list(mask) for mask in record["masks"]], effects.sum(1))

    return metric


def _top(column: str, sign: int, place: int) -> Metric:
    """Change of log p(T ∪ O), nats, from the first entry of a column to another; a drop is positive."""

    def metric(record: Record, definition: str, denominator: str) -> float | None:
        if not has_top(record):
            return None
        return sign * (float(record[column][place]) - float(record[column][0]))

    return metric


ABLATION_METRICS: dict[str, Metric] = {
    "lds": _lds("mask_log_odds", "reasoning", "output"),
    "lds_log_prob": _lds("mask_log_probs", "reasoning", "output"),
    "lds_output": _lds("mask_log_probs", "output"),
    **{f"drop{k}": _top("drop_log_probs", -1, i) for i, k in enumerate(m.TOP_COUNTS, 1)},
    **{f"keep{k}": _top("keep_log_probs", 1, i) for i, k in enumerate(m.TOP_COUNTS, 1)},
}
ON_MASKS = tuple(name for name in ABLATION_METRICS if name.startswith("lds"))  # need the masks of the sample
ON_TOP = tuple(name for name in ABLATION_METRICS if name not in ON_MASKS)  # need contexts of the method's own
