"""Semantic cancellation: the share of a span's states that the sum over them keeps (appendix M.1).

With the states y_i of a layer (after its attention) and the weights w_i of a span, the sum keeps the share

    c = ‖Σ_i w_i y_i‖₁ / Σ_i w_i ‖y_i‖₁

of the norms of its tokens: 1 where all point the same way, 0 where they cancel. States of independent directions would
leave about √(Σ w_i²) / Σ w_i, which is 1/√m for m equal weights.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.attribution import Hop
from flashtrace_lib.evaluation.results_table import clusters_of
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.methods import FlashTrace
from flashtrace_lib.sample import Sample

from ..profile import Profile

PART = "cancellation"


def make(profile: Profile, name: str, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of the part ``cancellation``: FlashTrace by default, on the first samples of each cell.

    Parameters
    ----------
    profile : Profile
    name : str
        Section whose groups the samples are of.
    settings : mapping
        ``model``, and ``samples``: of each cell.
    """
    from .failures import first_samples  # here, since a chapter that reads the part needs no task and no model
    from .groups import model_of

    model, _ = model_of(profile, settings["model"])
    samples = first_samples(profile, name, **settings)
    return rows_of(samples, [measured(model, sample) for sample in tqdm(samples, desc=PART)], settings["model"])


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


def measured(model: torch.nn.Module, sample: Sample) -> dict[str, list]:
    """What the sums keep on one sample: ``kept`` by hop and layer; ``n_target`` and ``independent`` by hop.

    Hop 0 sums the states of O with equal weights, hop k those of T with the scores of the hop before.
    """
    hops = FlashTrace().attribute(model, sample).hops
    return {
        "kept": kept_shares(model, sample, hops),
        "n_target": [len(hop.weights) for hop in hops],
        "independent": [independent_share(hop.weights) for hop in hops],
    }


def rows_of(samples: Sequence[Sample], found: Iterable[Mapping[str, list]], model: str) -> list[dict[str, Any]]:
    """Rows of the part: one a sample and hop, ``kept`` being a list over the layers."""
    cluster_of, rows = clusters_of(samples), []
    for sample, record in zip(samples, found, strict=True):
        about = {"part": PART, "model": model, "sample": sample.id, "cluster": cluster_of[sample.id],
                 "cell": str(sample.metadata.get("cell", ""))}  # fmt: skip
        for hop, kept in enumerate(record["kept"]):
            of_hop = {name: record[name][hop] for name in ("independent", "n_target")}
            rows.append(about | {"hop": hop, "kept": [float(share) for share in kept], **of_hop})
    return rows


def by_layer(part: pd.DataFrame) -> pd.DataFrame:
    """The part with a row for each layer, counted from 0: ``sample, cluster, cell, hop, layer, kept, …``."""
    layers = part.assign(layer=[list(range(len(kept))) for kept in part["kept"]])
    return layers.explode(["layer", "kept"], ignore_index=True).astype({"hop": int, "layer": int, "kept": float})


def by_sample(layers: pd.DataFrame) -> pd.DataFrame:
    """Means of `by_layer` over layers, one column a hop: ``sample, kept_hop0, kept_hop1, …, n_target_hop0, …``."""
    wide = layers.pivot_table(index="sample", columns="hop", values=["kept", "n_target"], sort=False)
    wide.columns = [f"{name}_hop{hop}" for name, hop in wide.columns]
    return wide.reset_index()
