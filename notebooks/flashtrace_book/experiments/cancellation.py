"""Semantic cancellation: the share of a span's states that the sum over them keeps (appendix M.1).

With the states y_i of a layer (after its attention) and the weights w_i of a span, the sum keeps the share

    c = ‖Σ_i w_i y_i‖₁ / Σ_i w_i ‖y_i‖₁

of the norms of its tokens: 1 where all point the same way, 0 where they cancel. States of independent directions would
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
from flashtrace_lib.evaluation.results_table import clusters_of
from flashtrace_lib.fingerprints import fingerprint, model_fingerprint, sample_fingerprint
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.methods import FlashTrace
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store

from ..methods import revisions
from ..profiles import Profile
from ..run import Run
from ..samples import cell_of

COLUMNS = ("sample", "cluster", "cell", "hop", "layer", "kept", "independent", "n_target")
_TOLERANCE = 1e-3  # absolute, of a share measured again; as in the audit of the chapter


def kept_share(states: torch.Tensor, weights: torch.Tensor) -> float:
    """Share c in [0, 1] of one span, by the formula above.

    Parameters
    ----------
    states : torch.Tensor, shape [m, d]
        y_i of each token.
    weights : torch.Tensor, shape [m]
        w_i, not negative, not all zero.
    """
    states, weights = states.double().cpu(), weights.double().cpu()
    return float((weights @ states).abs().sum() / (weights @ states.abs().sum(1)))


def independent_share(weights: torch.Tensor) -> float:
    """Share that independent directions of equal length would leave: √(Σ w²) / Σ w; weights [m]."""
    return float(weights.double().norm() / weights.double().sum())


@torch.inference_mode()
def kept_shares(model: torch.nn.Module, sample: Sample, hops: Sequence[Hop]) -> list[list[float]]:
    """`kept_share` of each hop's target (outer list) in each layer (inner list), from one forward pass."""
    first, last = sample.segments.generated
    layers = capture(model, sample.input_ids, (first, last), keep_mid=True).layers
    shares = []
    for hop in hops:
        rows = slice(hop.target[0] - first, hop.target[1] - first)
        shares.append([kept_share(layer.x_mid[rows], hop.weights) for layer in layers])
    return shares


def record_key(model_key: str, sample: Sample, hops: int) -> str:
    """Key of a sample's record, of the model with the fingerprint ``model_key``."""
    parts = {"model": model_key, "sample": sample_fingerprint(sample), "hops": hops}
    return fingerprint(parts | revisions(FlashTrace))


def measured(model: torch.nn.Module, sample: Sample, hops: int) -> dict[str, list]:
    """The sample's record: ``kept`` per hop and layer; ``n_target`` and ``independent`` per hop."""
    attributed = FlashTrace(hops=hops).attribute(model, sample).hops
    return {
        "kept": kept_shares(model, sample, attributed),
        "n_target": [len(hop.weights) for hop in attributed],
        "independent": [independent_share(hop.weights) for hop in attributed],
    }


def stored_record(profile: Profile, model: torch.nn.Module, store: Store, sample: Sample) -> dict[str, Any] | None:
    """The sample's record in the store ``cancellation``; None where there is none."""
    return store.get(record_key(model_fingerprint(model), sample, profile.hops))


def compare(
    profile: Profile, model: torch.nn.Module, tokenizer: Any, sample: Sample, stored: dict[str, Any]
) -> tuple[str, Any, Any, bool]:
    """Measure a stored sample again: name of the check, stored value, value found, and whether both agree."""
    old = np.concatenate([np.asarray(layers, float) for layers in stored["kept"]])
    new = np.concatenate([np.asarray(layers, float) for layers in measured(model, sample, profile.hops)["kept"]])
    agrees = old.shape == new.shape and bool(np.abs(old - new).max() < _TOLERANCE)
    return "shares that the sums keep", old.round(4).tolist(), new.round(4).tolist(), agrees


def cancellation(run: Run, model: torch.nn.Module, samples: Iterable[Sample]) -> pd.DataFrame:
    """Shares that the sums of FlashTrace keep, per sample, hop and layer; measured once and stored.

    Hop 0 sums the states of O with equal weights, hop k those of T with the scores of the hop before.

    Returns
    -------
    pandas.DataFrame
        ``sample, cluster, cell, hop, layer`` (counted from 0), ``kept``, ``independent`` and ``n_target`` (tokens).
    """
    store, model_key = Store(run.store("cancellation")), model_fingerprint(model)
    samples, rows = list(samples), []
    cluster_of = clusters_of(samples)
    for sample in tqdm(samples, desc="cancellation"):
        key = record_key(model_key, sample, run.profile.hops)
        record = store.cached(key, partial(measured, model, sample, run.profile.hops))
        by_hop = zip(record["kept"], record["independent"], record["n_target"], strict=True)
        for hop, (layers, independent, n_target) in enumerate(by_hop):
            for layer, kept in enumerate(layers):
                rows.append(
                    (sample.id, cluster_of[sample.id], cell_of(sample), hop, layer, kept, independent, n_target)
                )
    store.compact()
    return pd.DataFrame(rows, columns=list(COLUMNS))


def by_sample(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean over layers of `cancellation`, one column per hop: ``sample, kept_hop0, kept_hop1, …, n_target_hop0, …``."""
    wide = frame.pivot_table(index="sample", columns="hop", values=["kept", "n_target"], sort=False)
    wide.columns = [f"{name}_hop{hop}" for name, hop in wide.columns]
    return wide.reset_index()
