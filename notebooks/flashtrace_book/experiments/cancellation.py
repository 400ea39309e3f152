"""Semantic cancellation: how much of a span's states the sum over them destroys (appendix M.1).

With the states y_i of a layer (after its attention) and the weights w_i of a span, the sum keeps the share

    c = ‖Σ_i w_i y_i‖₁ / Σ_i w_i ‖y_i‖₁

of what its tokens hold: 1 where all point the same way, 0 where they cancel. States of independent directions would
leave about √(Σ w_i²) / Σ w_i, which is 1/√m for m equal weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.attribution import Hop
from flashtrace_lib.fingerprints import fingerprint, model_fingerprint, sample_fingerprint
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.methods import FlashTrace
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store

from ..profiles import Profile
from ..run import Run

COLUMNS = ("sample", "cell", "hop", "layer", "kept", "independent", "n_target")
_TOLERANCE = 1e-3  # of a share measured again; as in the audit of the chapter


def kept_share(states: torch.Tensor, weights: torch.Tensor) -> float:
    """Share c of the module's formula, for one span.

    Parameters
    ----------
    states : torch.Tensor, shape [m, d]
        y_i, one row a token.
    weights : torch.Tensor, shape [m]
        w_i, not negative, not all zero.

    Returns
    -------
    float
        In [0, 1].
    """
    states, weights = states.double().cpu(), weights.double().cpu()
    return float((weights @ states).abs().sum() / (weights @ states.abs().sum(1)))


def independent_share(weights: torch.Tensor) -> float:
    """What independent directions of equal length would keep: √(Σ w²) / Σ w; weights [m]."""
    return float(weights.double().norm() / weights.double().sum())


@torch.inference_mode()
def kept_shares(model: torch.nn.Module, sample: Sample, hops: Sequence[Hop]) -> list[list[float]]:
    """`kept_share` of each hop's target (outer list) in each layer (inner list), from one forward pass.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    sample : Sample
    hops : sequence of Hop
        Their ``target`` and ``weights`` are the spans.
    """
    first, last = sample.segments.generated
    activations = capture(model, sample.input_ids, (first, last), keep_mid=True)
    return [
        [kept_share(layer.x_mid[hop.target[0] - first : hop.target[1] - first], hop.weights)
         for layer in activations.layers]
        for hop in hops
    ]  # fmt: skip


def record_key(model_key: str, sample: Sample, hops: int) -> str:
    """Key of a sample's record, of the model with the fingerprint ``model_key``."""
    return fingerprint({"model": model_key, "sample": sample_fingerprint(sample), "hops": hops})


def measured(model: torch.nn.Module, sample: Sample, hops: int) -> dict[str, list]:
    """A record: ``kept``, a list a hop of a number a layer; ``n_target`` and ``independent``, a number a hop."""
    found = FlashTrace(hops=hops).attribute(model, sample).hops
    return {
        "kept": kept_shares(model, sample, found), "n_target": [len(hop.weights) for hop in found],
        "independent": [independent_share(hop.weights) for hop in found],
    }  # fmt: skip


def stored_record(profile: Profile, model: torch.nn.Module, store: Store, sample: Sample) -> dict[str, Any] | None:
    """The sample's record in the store ``cancellation``; None where there is none."""
    return store.get(record_key(model_fingerprint(model), sample, profile.hops))


def compare(
    profile: Profile, model: torch.nn.Module, tokenizer: Any, sample: Sample, stored: dict[str, Any]
) -> tuple[str, Any, Any, bool]:
    """Measure a stored sample again; what is checked, stored, found, and whether both agree."""
    pair = (stored, measured(model, sample, profile.hops))
    old, new = (np.concatenate([np.asarray(layers, float) for layers in record["kept"]]) for record in pair)
    agrees = old.shape == new.shape and bool(np.abs(old - new).max() < _TOLERANCE)
    return "shares that the sums keep", old.round(4).tolist(), new.round(4).tolist(), agrees


def cancellation(run: Run, model: torch.nn.Module, samples: Iterable[Sample]) -> pd.DataFrame:
    """What the sums that FlashTrace takes keep: one row a sample, hop and layer; measured once and stored.

    Hop 0 sums the states of O with equal weights, hop k those of T with the scores of the hop before.

    Returns
    -------
    pandas.DataFrame
        ``sample, cell, hop, layer`` (counted from 0), ``kept``, ``independent`` and ``n_target`` (tokens).
    """
    store, model_key, rows = Store(run.store("cancellation")), model_fingerprint(model), []
    for sample in tqdm(list(samples), desc="cancellation"):
        key = record_key(model_key, sample, run.profile.hops)
        record = store.cached(key, partial(measured, model, sample, run.profile.hops))
        named = {"sample": sample.id, "cell": str(sample.metadata.get("cell", ""))}
        spans = zip(record["kept"], record["independent"], record["n_target"], strict=True)
        rows += [
            {**named, "hop": hop, "layer": layer, "kept": kept, "independent": independent, "n_target": n}
            for hop, (layers, independent, n) in enumerate(spans)
            for layer, kept in enumerate(layers)
        ]
    store.compact()
    return pd.DataFrame(rows, columns=list(COLUMNS))


def by_sample(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean over layers of `cancellation`, a column a hop: ``sample, kept_hop0, kept_hop1, …, n_target_hop0, …``."""
    wide = frame.pivot_table(index="sample", columns="hop", values=["kept", "n_target"], sort=False)
    wide.columns = [f"{name}_hop{hop}" for name, hop in wide.columns]
    return wide.reset_index()
