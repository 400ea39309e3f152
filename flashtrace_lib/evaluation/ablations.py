"""Sentence ablations in an evaluation: the random masks of a sample, what they do to its response, and where they lie.

The masks of a sample and their effects serve all methods. They are one record a sample in a store of their own,
``<name>_masks`` beside ``<name>``; a method's record names it (``masks_key``).
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..attribution import holds_copies, sentence_scores
from ..fingerprints import fingerprint
from ..metrics import Scorer, draw_masks
from ..sample import Sample, seeded_generator
from ..store import Store

Record = dict[str, Any]

MASKS_VERSION = 1  # raise when what the columns mean changes
# Columns of a sample's masks that its methods' records share; the last two effects are of all kept and of none.
MASK_COLUMNS = ("n_masks", "masks", "mask_sources", "mask_log_probs", "mask_log_odds", "masks_dtype", "masks_note")


class Memory(dict):
    """Records by key that last as long as the evaluation; takes the place of a store."""

    put = dict.__setitem__

    def cached(self, key: str, compute: Callable[[], Record]) -> Record:
        """As `Store.cached`."""
        return self[key] if key in self else self.setdefault(key, compute())


def masks_beside(store: Store | Memory) -> Store | Memory:
    """The store of the masks that belong to ``store``."""
    return Memory() if isinstance(store, Memory) else Store(store.path.with_name(f"{store.path.stem}_masks"))


def masks_key(model_key: str, sample_key: str, sources: list[list[int]], n: int, precision: str) -> str:
    """Key of everything that shapes the masks of a sample and their effects."""
    shaped_by = {"version": MASKS_VERSION, "model": model_key, "sample": sample_key, "masks": n, "precision": precision}
    return fingerprint({**shaped_by, "sources": sources})  # the haystack is no part of a sample's fingerprint


def mask_columns(scorer: Scorer, sample: Sample, n: int) -> Record:
    """``MASK_COLUMNS`` of ``n`` random masks over the sentences, of all kept and of none."""
    sources = sources_of_input(sample)
    masks = draw_masks(len(sources), n, generator=seeded_generator("masks of the evaluation", sample))
    ends = torch.tensor([[True], [False]]).expand(2, len(sources))
    effects = scorer.effects(sample, torch.cat([masks, ends]), progress=f"masks {sample.id}")
    values = (n, masks.tolist(), sources, effects.log_prob.tolist(), effects.log_odds.tolist())
    return dict(zip(MASK_COLUMNS, (*values, scorer.arithmetic, scorer.note), strict=True))


def sources_of_input(sample: Sample) -> list[list[int]]:
    """Token ranges of ``sample.sources``, counted from the first token of I."""
    first = sample.segments.prompt[0]
    return [[start - first, stop - first] for start, stop in sample.sources]


def records_with_masks(store: Store) -> pd.DataFrame:
    """``store.records()`` with the masks that are stored beside it, in the columns ``MASK_COLUMNS``."""
    records, masks = store.records(), masks_beside(store).records()
    if "masks_key" not in records or masks.empty:
        return records
    shared = masks[["key", *MASK_COLUMNS]].rename(columns={"key": "masks_key"})
    return records.merge(shared, on="masks_key", how="left")


def source_scores(record: Record, sources: Sequence[Sequence[int]], words: Sequence[bool] = ()) -> torch.Tensor:
    """Score of each source, float64 [U], of a record's method; token ranges are counted from the first token of I.

    Tokens that are none of the ``words``, where these are given, add nothing to a sum.
    """
    scores = torch.as_tensor(np.asarray(record["scores"], dtype=np.float64))
    copies = holds_copies(json.loads(record.get("method_metadata") or "{}"))
    return sentence_scores(scores * torch.tensor(words) if len(words) and not copies else scores, sources, copies)
