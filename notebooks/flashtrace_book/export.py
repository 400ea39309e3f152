"""Records of a working store -> the rows of a chapter's results (`results`)."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from flashtrace_lib.evaluation.recorder import labels, to_json
from flashtrace_lib.evaluation.results_table import clusters_of, frame_from_records, has_curve
from flashtrace_lib.fingerprints import sample_fingerprint
from flashtrace_lib.sample import Sample
from flashtrace_lib.tasks.responses import Collection

from .results import CELL, CURVE, MASKS, METHOD, METRICS, RANKING, SAMPLE

KEPT = (
    "key", "sample_key", "model_key", "method", "method_name", "options", "method_metadata", "seconds", "steps",
    "scores", "hop_scores", "hop_targets", "flow", "log_probs", "cumulative", "n_masked", "evaluated", "curve_dtype",
    "masks_key", "code", "versions", "device", "model_dtype",
)  # fmt: skip
OF_MASKS = ("key", "sample_key", "n_masks", "masks", "mask_sources", "mask_log_probs", "mask_log_odds", "masks_dtype")
WITH_HOPS = re.compile(r"flashtrace(_k\d)?$")  # methods whose scores of every hop are stored
DRAWN = re.compile(r"(random|random_sentences)(/\d+)?$")


def cell_row(cell: str, collection: Collection, model: str) -> dict[str, Any]:
    """What became of the problems of a cell."""
    return {"part": CELL, "model": model, "cell": cell, "counts": to_json(dict(collection.counts), "counts")}


def sample_row(sample: Sample, model: str, cell: str, *, shown: bool) -> dict[str, Any]:
    """A sample's own columns.

    Parameters
    ----------
    shown : bool
        Store ids and text. False where the haystack is others' text that may not be copied: of such a sample the
        response's ids alone are stored.
    """
    spans, n = sample.segments, len(sample)
    gold = None if sample.gold is None else np.flatnonzero(sample.gold.numpy()).astype(np.int32)
    ids = sample.input_ids.numpy().astype(np.int32)
    named = {k: v for k, v in sample.metadata.items() if k not in ("haystack_span", "cell")}
    named |= {} if shown else {"blank": [i for i, says in enumerate(sample.not_blank) if not says]}
    return {
        "part": SAMPLE, **labels(sample), "cell": cell, "model": model, "sample_key": sample_fingerprint(sample),
        "cluster": next(iter(clusters_of([sample]).values())),
        "n_tokens": n,
        **{f"n_{k}": b - a for k, (a, b) in
           {"input": spans.prompt, "reasoning": spans.reasoning, "output": spans.output}.items()},
        **{k: list(getattr(spans, k)) for k in ("prompt", "reasoning", "output")},
        "response": list(sample.response), "gold": gold,
        "sentences": [list(span) for span in sample.sentences or ()],
        "haystack": list(sample.haystack), "mask_token_id": sample.mask_token_id,
        "metadata": to_json(named, f"metadata of {sample.id}"),
        "input_ids": ids if shown else None,
        "tokens": list(sample.tokens) if shown and sample.tokens else None,
        "response_ids": None if shown else ids[slice(*sample.response)],
    }  # fmt: skip


def method_rows(records: pd.DataFrame, masks: pd.DataFrame, samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """Rows of the methods and of the masks, of these samples alone; draws of a random ranking become one row."""
    wanted = {sample_fingerprint(sample): sample for sample in samples}
    rows, drawn = [], {}
    by_key = {} if masks.empty else {mask["key"]: mask for mask in masks.to_dict("records")}
    if "evaluated" in records:  # a ranking is kept once, with the curve of most steps
        steps = records["evaluated"].map(len, na_action="ignore").fillna(0).sort_values(kind="stable")
        records = records.loc[steps.index].drop_duplicates(["method", "sample_key"], keep="last").sort_index()
    for record in records[records["sample_key"].isin(wanted)].to_dict("records"):
        label = DRAWN.fullmatch(record["method"])
        if label:
            drawn.setdefault((label[1], record["sample_key"]), []).append(record)
        else:
            rows.append(_method_row(record))
    rows += [_drawn_row(name, draws, by_key) for (name, _), draws in drawn.items()]
    used = {row.get("masks_key") for row in rows}
    for key, mask in by_key.items():
        if key in used:
            rows.append({"part": MASKS} | {name: mask.get(name) for name in OF_MASKS})
    return rows


def _method_row(record: Mapping[str, Any]) -> dict[str, Any]:
    row, said = {name: record.get(name) for name in KEPT}, json.loads(record.get("method_metadata") or "{}")
    said.pop("signed", None)
    said["options"] = {k: v for k, v in said.get("options", {}).items() if k == "spread"}
    row |= {"part": METHOD, "method_metadata": to_json(said, "metadata")}
    row["scores"] = np.asarray(record["scores"], dtype=np.float32)
    with_hops = WITH_HOPS.fullmatch(record["method"]) and len(record.get("hop_scores", ())) > 0
    row["hop_scores"] = [np.asarray(h, dtype=np.float32) for h in record["hop_scores"]] if with_hops else None
    if not with_hops:
        row["hop_targets"] = None
    return {name: None if isinstance(value, float) and np.isnan(value) else value for name, value in row.items()}


def _drawn_row(name: str, draws: list[dict[str, Any]], masks: Mapping[str, Any]) -> dict[str, Any]:
    """One row for all draws of a random ranking of a sample.

    Of random tokens the metrics of a ranking are exact expectations (all scores tied); the others, and all of random
    sentences, are means over the draws.
    """
    draws = sorted(draws, key=lambda draw: (not has_curve(draw), draw["method"]))
    whole = [draw | (masks.get(draw.get("masks_key")) or {}) | {"key": draw["key"]} for draw in draws]
    values = frame_from_records(whole, METRICS).groupby("metric", sort=False)["value"].mean().to_dict()
    if name == "random":
        tied = draws[0] | {"scores": [0.0] * int(draws[0]["n_input"])}
        exact = frame_from_records([tied], RANKING)
        values |= dict(zip(exact["metric"], exact["value"], strict=True))
    row = _method_row(draws[0] | {"method": name}) | {"scores": None, "hop_scores": None}
    values = {metric: values[metric] for metric in (*RANKING, "lds", *CURVE) if metric in values}
    return row | {"values": to_json(values, "values"), "draws": len(draws)}
