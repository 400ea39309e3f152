"""The audit of stores that hold neither attributions nor times: what sums keep, and answers with a sentence masked."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from flashtrace_lib.fingerprints import model_fingerprint
from flashtrace_lib.methods import FlashTrace
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store

from .experiments import cancellation, causal_masking
from .profiles import Profile

_TOLERANCE = 1e-3  # of a share; as the notebook's own audit
Check = tuple[str, str, Any, Any, bool]  # name, what is checked, stored, found, whether they agree


def audit_measures(
    store: Store,
    profile: Profile,
    model: torch.nn.Module,
    tokenizer: Any,
    samples: Iterable[Sample],
    k: int,
    chance: random.Random,
) -> list[Check]:
    """``k`` records of a store of `cancellation` or of `causal`, measured again from nothing.

    A store of which no record belongs to a sample at hand does not agree.

    Raises
    ------
    ValueError
        If the store holds something else.
    """
    key, name, records = model_fingerprint(model), store.path.stem, store.records()
    if "kept" in records:
        return _again(store, name, samples, k, chance, lambda s: cancellation.record_key(key, s, profile.hops),
                      lambda s, stored: _kept(stored, cancellation.measured(model, s, profile.hops)))  # fmt: skip
    if "answers" in records:
        how = (FlashTrace(hops=profile.hops), profile.seed)
        return _again(
            store, name, samples, k, chance, lambda s: causal_masking.record_key(key, s, *how),
            lambda s, stored: _answers(stored, causal_masking.masked_answers(model, tokenizer, s, *how)),
        )  # fmt: skip
    raise ValueError(f"{store.path.name} holds neither results, responses nor times ({', '.join(records.columns)})")


def _again(
    store: Store,
    name: str,
    samples: Iterable[Sample],
    k: int,
    chance: random.Random,
    key_of: Callable[[Sample], str],
    compare: Callable[[Sample, dict], tuple[str, Any, Any, bool]],
) -> list[Check]:
    """Compare ``k`` of the samples that have a record."""
    mine = [(sample, record) for sample in samples if (record := store.get(key_of(sample))) is not None]
    if not mine:
        return [(name, "samples are at hand", len(store), 0, False)]
    chosen = chance.sample(range(len(mine)), min(k, len(mine)))
    return [(f"{name}: {mine[i][0].id}", *compare(*mine[i])) for i in chosen]


def _kept(stored: dict, found: dict) -> tuple[str, Any, Any, bool]:
    a, b = (np.concatenate([np.asarray(layers, float) for layers in record["kept"]]) for record in (stored, found))
    agrees = a.shape == b.shape and bool(np.abs(a - b).max() < _TOLERANCE)
    return "shares that the sums keep", a.round(4).tolist(), b.round(4).tolist(), agrees


def _answers(stored: dict, found: dict) -> tuple[str, Any, Any, bool]:
    parts = [{part: list(record[part]) for part in ("answers", "tokens", "gold")} for record in (stored, found)]
    return "answers with a sentence masked", *parts, parts[0] == parts[1]
