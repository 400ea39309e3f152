"""Metrics of scores against gold, computed from the columns of a stored record; no model needed.

Each is measured on the tokens or the sentences of I, over all of I or over its haystack alone. A sentence is gold where
it holds a gold token; its score is the sum of its tokens' scores, or the one score that they all copy.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from .. import metrics as m
from ..attribution import holds_copies, sentence_scores
from ..metrics.recovery import scores_and_gold

Record = dict[str, Any]
Units = tuple[torch.Tensor, torch.Tensor]  # scores float64 [n], gold bool [n]
UNITS = "units"  # key under which a record that is measured often keeps them, by kind of unit and part of I


@dataclass(frozen=True)
class OnGold:
    """A metric of scores and gold, and of which units of a record it is measured.

    Parameters
    ----------
    measure : callable
        Scores and gold marks of the units, [n] each, to a number.
    sentences : bool
        Units are sentences, not tokens.
    haystack : bool
        I without question and instructions, not all of it.
    """

    measure: Callable[[torch.Tensor, torch.Tensor], float | None]
    sentences: bool = False
    haystack: bool = False

    def __call__(self, record: Record, definition: str = "", denominator: str = "") -> float | None:
        """The metric; None (skipped, not zero) where the record lacks what it needs, or has no gold in this part."""
        units = self.units(record)
        return self.measure(*units) if units is not None and units[1].any() else None

    def ranks_nothing(self, record: Record) -> bool:
        """Whether the units that the metric ranks all have one score: its value is then a random ranking's."""
        units = self.units(record)
        return units is not None and m.ranks_nothing(units[0])

    def units(self, record: Record) -> Units | None:
        """Scores and gold marks of the units; None where the record lacks a column."""
        known, kind = record.get(UNITS, {}), (self.sentences, self.haystack)
        if kind not in known:
            known[kind] = self._cut_units(record)
        return known[kind]

    def _cut_units(self, record: Record) -> Units | None:
        gold, sentences, haystack = (record.get(name) for name in ("gold", "sentences", "haystack"))
        needed = [gold, *([sentences] if self.sentences else []), *([haystack] if self.haystack else [])]
        if not all(map(_given, needed)) or not np.any(gold):
            return None
        scores, gold = scores_and_gold(record["scores"], gold)
        part = haystack if self.haystack else (0, len(scores))
        if not self.sentences:
            return scores[slice(*part)], gold[slice(*part)]
        return _by_sentence(scores, gold, sentences, part, holds_copies(_metadata(record)))


def _by_sentence(scores: torch.Tensor, gold: torch.Tensor, sentences, part, copies: bool) -> Units | None:
    """Units that are sentences, cut to a part of I; None where none lies in it."""
    cut = [(max(start, part[0]), min(stop, part[1])) for start, stop in sentences]
    inside = [(start, stop) for start, stop in cut if start < stop]
    if not inside:
        return None
    return sentence_scores(scores, inside, copies), sentence_scores(gold.double(), inside) > 0


def _given(column: Any) -> bool:
    """Whether a record has a column of a list: one from before it was kept has None, or NaN in a table."""
    return isinstance(column, (list, np.ndarray)) and len(column) > 0


def _metadata(record: Record) -> dict[str, Any]:
    """What the method said of its scores."""
    text = record.get("method_metadata")
    return json.loads(text) if isinstance(text, str) else {}


def _auroc(scores: torch.Tensor, gold: torch.Tensor) -> float | None:
    return None if gold.all() else m.auroc(scores, gold)


ON_GOLD = {
    "recovery": OnGold(m.recovery_rate),
    "recovery_ceil": OnGold(lambda scores, gold: m.recovery_rate(scores, gold, rounding="ceil")),
    "recovery_cap": OnGold(lambda scores, gold: m.recovery_cap(gold)),
    "r_precision": OnGold(m.r_precision),
    "auroc": OnGold(_auroc),
    "ap": OnGold(m.average_precision),
    "pointing": OnGold(m.pointing),
    "mrr": OnGold(m.mrr, sentences=True),
    "sentence_hit": OnGold(m.sentence_hit, sentences=True),
}
ON_GOLD |= {f"{name}_haystack": replace(ON_GOLD[name], haystack=True) for name in (*m.OVER_HAYSTACK, "recovery_cap")}
