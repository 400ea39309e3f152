"""Stored results of a chapter: one parquet file, read without a model.

Its rows are of several parts. A row of ``sample`` is a context that was explained, one of ``method`` what a method
said of it, one of ``masks`` the random ablations that all its methods share, one of ``cell`` what became of the
problems that were tried. Other parts hold a chapter's own measurements, such as seconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from flashtrace_lib.attribution import Attribution, Hop
from flashtrace_lib.evaluation.ablations import MASK_COLUMNS
from flashtrace_lib.evaluation.results_table import frame_from_records
from flashtrace_lib.files import atomic_path
from flashtrace_lib.sample import Sample, Segments

SAMPLE, METHOD, MASKS, CELL = "sample", "method", "masks", "cell"
RANKING = ("recovery", "r_precision", "recovery_haystack", "r_precision_haystack", "auroc_haystack")
CURVE = ("rise", "mas")
METRICS = (*RANKING, "lds", *CURVE)
_OF_SAMPLE = (
    "sample_key", "sample", "task", "cell", "model", "answers", "right", "n_input", "n_reasoning", "n_output", "gold",
    "sentences", "haystack", "cluster", "words",
)  # fmt: skip
_FLOAT_COLUMNS = ("scores.list.element", "hop_scores.list.element.list.element")


class Results:
    """The parts of one file.

    Parameters
    ----------
    parts : dict of str to pandas.DataFrame
        By name; see the module.
    """

    def __init__(self, parts: dict[str, pd.DataFrame]):
        self.parts = parts

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read a file of `write_rows`; columns that a part does not use are left out of it."""
        whole = pq.read_table(path).to_pandas()
        parts = {name: part.dropna(axis=1, how="all") for name, part in whole.groupby("part", sort=False)}
        return cls({name: part.drop(columns="part").reset_index(drop=True) for name, part in parts.items()})

    def part(self, name: str) -> pd.DataFrame:
        """Rows of one part; an empty frame where the file has none."""
        return self.parts.get(name, pd.DataFrame())

    def samples(self, **where: Any) -> pd.DataFrame:
        """Rows of the samples whose columns have the values asked for, such as ``model="qwen", cell=["gsm8k"]``."""
        return _chosen(self.part(SAMPLE), where)

    def frame(
        self, metrics: Sequence[str] = METRICS, methods: Iterable[str] | None = None, *, options: Any = (),
        whole: str = "", **where: Any,
    ) -> pd.DataFrame:  # fmt: skip
        """Metrics of the methods, one row a sample, method and metric (`frame_from_records`).

        Parameters
        ----------
        metrics : sequence of str
        methods : iterable of str, optional
            Labels, in the order of the table. Default: all.
        options : tuple of str
            Definition and denominator of deletion metrics, see `frame_from_records`.
        whole : {"", "mean", "sum"}
            Rank whole sentences (`by_sentence`).
        **where
            As for `samples`.
        """
        rows = self.records(methods, **where).to_dict("records")
        return frame_from_records(by_sentence(rows, whole), tuple(metrics), *options).astype({"value": float})

    def records(self, methods: Iterable[str] | None = None, **where: Any) -> pd.DataFrame:
        """Rows of the methods with the columns of their samples and masks, as `frame_from_records` takes them."""
        samples = _in_prompt(self.samples(**where))
        rows = self.part(METHOD).drop(columns="model", errors="ignore")
        if methods is not None:
            places = {method: place for place, method in enumerate(methods)}
            rows = rows[rows["method"].isin(places)]
            rows = rows.iloc[np.argsort(rows["method"].map(places), kind="stable")]
        rows, masks = rows.merge(samples, on="sample_key", how="inner"), self.part(MASKS)
        if len(masks) and "masks_key" in rows:
            shared = masks.rename(columns={"key": "masks_key"})
            rows = rows.merge(
                shared[["masks_key", *(c for c in MASK_COLUMNS if c in shared)]], on="masks_key", how="left"
            )
        return rows

    def attributions(self, method: str, **where: Any) -> tuple[list[Sample], list[Attribution]]:
        """Samples and what a method said of them, rebuilt from the rows; those that the method has not are left out."""
        rows = self.part(METHOD)
        rows = rows[rows["method"] == method].set_index("sample_key")
        samples, found = [], []
        for row in self.samples(**where).to_dict("records"):
            if row["sample_key"] in rows.index:
                samples.append(rebuilt_sample(row))
                found.append(_rebuilt(rows.loc[row["sample_key"]], method))
        return samples, found

    def counts(self, **where: Any) -> pd.DataFrame:
        """One row a model and cell: problems tried, answers right, samples kept, and median lengths in tokens."""
        rows, cells = [], _chosen(self.part(CELL), where)
        for cell in cells.to_dict("records"):
            kept = self.samples(model=cell["model"], cell=cell["cell"])
            lengths = {
                f"|{n}|": kept[c].median() // 1
                for n, c in zip("ITO", ("n_input", "n_reasoning", "n_output"), strict=True)
            }
            gold = (kept["gold"].str.len() / kept["n_input"]).mean() if "gold" in kept else math.nan
            rows.append(
                {"model": cell["model"], "cell": cell["cell"], "answers": next(iter(kept["answers"]), "none")}
                | json.loads(cell["counts"])
                | {"kept": len(kept), "kept right": int(kept["right"].sum()), **lengths}
                | {"gold share": round(gold, 3)}
            )
        table = pd.DataFrame(rows)
        return table.astype({name: "Int64" for name in table if name.startswith("|")})  # none kept: no length


def _chosen(frame: pd.DataFrame, where: dict[str, Any]) -> pd.DataFrame:
    for name, value in where.items():
        frame = frame[frame[name].isin([value] if isinstance(value, (str, bool)) else list(value))]
    return frame


def _in_prompt(samples: pd.DataFrame) -> pd.DataFrame:
    """Columns of the samples that metrics read; positions counted from the first token of I, gold as a mask."""
    rows = []
    for row in samples.to_dict("records"):
        first, stop = row["prompt"]
        gold = row.get("gold")
        if gold is not None:
            mask = np.zeros(stop - first, dtype=bool)
            mask[np.asarray(gold, dtype=int) - first] = True
            gold = mask
        inside = [[a - first, b - first] for a, b in row["sentences"] if first <= a and b <= stop]
        haystack = [place - first for place in row["haystack"]]
        words = np.array(rebuilt_sample(row).not_blank)[first:stop]
        places = {"gold": gold, "sentences": inside, "haystack": haystack, "words": words}
        rows.append({k: row.get(k) for k in _OF_SAMPLE} | places)
    return pd.DataFrame(rows, columns=list(_OF_SAMPLE))


def rebuilt_sample(row: dict[str, Any]) -> Sample:
    """The sample of a row; where its ids are not stored, since its haystack is others' text, they are all 0."""
    ids, n = row.get("input_ids"), int(row["n_tokens"])
    gold = None
    if row.get("gold") is not None:
        gold = torch.zeros(n, dtype=torch.bool)
        gold[torch.from_numpy(np.array(row["gold"], dtype=np.int64))] = True
    return Sample(
        torch.zeros(n, dtype=torch.long) if ids is None else torch.from_numpy(np.array(ids, dtype=np.int64)),
        Segments(*(tuple(int(x) for x in row[name]) for name in ("prompt", "reasoning", "output"))),
        gold=gold,
        response=tuple(int(x) for x in row["response"]),
        tokens=None if row.get("tokens") is None else list(row["tokens"]),
        sentences=[(int(a), int(b)) for a, b in row["sentences"]],
        mask_token_id=int(row["mask_token_id"]),
        metadata=json.loads(row["metadata"])
        | {"cell": row["cell"], "haystack_span": [int(x) for x in row["haystack"]]},
    )


def _rebuilt(record: pd.Series, method: str) -> Attribution:
    """The attribution of a row; weights of its hops are not stored."""
    hops = []
    if isinstance(record.get("hop_scores"), np.ndarray):
        for scores, (start, stop) in zip(record["hop_scores"], record["hop_targets"], strict=True):
            hops.append(Hop(torch.from_numpy(np.array(scores, np.float32)), (int(start), int(stop)), torch.empty(0)))
    flow = record.get("flow")
    flow = [float(rho) for rho in flow] if isinstance(flow, np.ndarray) else []
    scores = torch.from_numpy(np.array(record["scores"], dtype=np.float32))
    metadata = json.loads(record.get("method_metadata") or "{}")
    return Attribution(scores, method, float(record["seconds"]), hops, flow, metadata)


def by_sentence(records: Iterable[dict[str, Any]], combine: str) -> list[dict[str, Any]]:
    """Rows of `Results.records` with the "mean" or "sum" of each sentence of I in its tokens' place; "": as they are.

    White space counts nowhere, as in a trace. By the sum, which `Trace.top` shows, a long sentence of many small scores
    can pass a short one; by the mean not.
    """
    if combine not in ("", "mean", "sum"):
        raise ValueError(f"sentences are combined by 'mean' or 'sum', not {combine!r}")
    rows = []
    for row in records:
        if combine and row.get("scores") is not None:
            scores, words = np.array(row["scores"], dtype=float), row["words"]
            own = scores * words
            for place in (slice(*span) for span in row["sentences"]):
                scores[place] = own[place].sum() / (max(1, words[place].sum()) if combine == "mean" else 1)
            row = row | {"scores": scores}
        rows.append(row)
    return rows


def write_rows(rows: Iterable[dict[str, Any]], path: Path) -> None:
    """Write rows, each with its ``part``, as one file: atomically, float32 scores, compressed for them."""
    rows = list(rows)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: pa.array([_plain(row.get(name)) for row in rows]) for name in columns})
    floats = [name for name in _FLOAT_COLUMNS if name.split(".")[0] in columns]
    others = [name for name in columns if name not in ("scores", "hop_scores")]
    with atomic_path(path) as temporary:
        pq.write_table(
            table, temporary, compression="zstd", compression_level=15,
            use_byte_stream_split=floats or False, use_dictionary=others, write_page_checksum=True,
        )  # fmt: skip


def _plain(value: Any) -> Any:
    """A value as arrow takes it: floats in arrays as float32, missing numbers as nothing."""
    if isinstance(value, torch.Tensor):
        value = value.numpy()
    if isinstance(value, float) and value != value:
        return None
    return value
