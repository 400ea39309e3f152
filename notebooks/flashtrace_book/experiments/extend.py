"""Further methods on the samples that a file of results holds: their answers are kept, nothing is generated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.fingerprints import sample_fingerprint
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import prompt_settings
from flashtrace_lib.text.build_sample import build_sample

from .. import paths
from ..export import method_rows
from ..profile import Profile, read
from ..results import METHOD, SAMPLE, rebuilt_sample, write_rows
from .groups import Group, group_examples, method_named, model_of


def extend(
    profile: Profile, name: str, labels: Sequence[str], cells: Iterable[str] = (), model: str = "reasoner"
) -> int:
    """Add the rankings of methods to the results called ``name``; returns how many rows are new.

    LDS needs no further pass: the ablations of a sample that are stored serve the new methods as well. A run that was
    interrupted goes on.

    Parameters
    ----------
    labels : sequence of str
        Of ``METHODS`` or of the profile's ``methods``.
    cells : iterable of str
        Default: all of the model's.

    Raises
    ------
    ValueError
        If a sample that is made anew is not the one that is stored.
    """
    path = paths.results_file(profile.name, name)
    rows = [{k: v for k, v in row.items() if v is not None} for row in pq.read_table(path).to_pylist()]
    own = [row for row in rows if row["part"] == SAMPLE and row["model"] == model]
    wanted = [row for row in own if not cells or row["cell"] in set(cells)]
    network, tokenizer = model_of(profile, model)
    made = _prompts(profile, name, model, tokenizer)
    samples = [_sample(row, made, tokenizer) for row in wanted]
    store = Store(paths.working_store(profile.name, f"{name}_more"))
    methods = {label: method_named(profile, label, tokenizer) for label in labels}
    evaluate(methods, samples, network, store=store, steps=profile.steps, metrics=("recovery",))
    known = {(row["sample_key"], row["method"]) for row in rows if row["part"] == METHOD}
    masks = {row["sample_key"]: row["masks_key"] for row in rows if row["part"] == METHOD and row.get("masks_key")}
    found = [row for row in method_rows(store.records(), store.records().head(0), samples)
             if row["method"] in labels and (row["sample_key"], row["method"]) not in known]  # fmt: skip
    for row in found:
        row["masks_key"] = masks.get(row["sample_key"])
    if found:
        write_rows([_arrays(row) for row in rows] + found, path)
    return len(found)


def _arrays(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it is written: scores as float32, which a list would not keep."""
    if row.get("hop_scores") is not None:
        row = row | {"hop_scores": [np.asarray(hop, np.float32) for hop in row["hop_scores"]]}
    return row if row.get("scores") is None else row | {"scores": np.asarray(row["scores"], np.float32)}


def _prompts(profile: Profile, name: str, model: str, tokenizer: Any) -> dict[str, Any]:
    """Examples of the groups of RULER by id: their prompts quote essays, and are not stored."""
    groups = [read(Group, data, name) for data in profile.results[name].get("groups", ())]
    found = {}
    for group in groups:
        if group.model == model and group.task == "ruler":
            for examples in group_examples(profile, group, tokenizer).values():
                # one needle has no example to show: older ids of its samples do not say that there is none
                found |= {example.id.replace("-noshot", ""): example for example in examples}
    return found


def _sample(row: dict[str, Any], made: dict[str, Any], tokenizer: Any) -> Sample:
    """The stored sample, with its ids and tokens."""
    if row.get("input_ids") is None:
        example = made[row["sample"].replace("-noshot", "")]
        built = build_sample(tokenizer, example.prompt, row["response_ids"], **prompt_settings(tokenizer, example))
        row = row | {"input_ids": built.input_ids.tolist(), "tokens": built.tokens}
    sample = rebuilt_sample(row)
    if sample_fingerprint(sample) != row["sample_key"]:
        raise ValueError(f"sample {row['sample']} made anew is not the stored one: restore the code that made it")
    return sample
