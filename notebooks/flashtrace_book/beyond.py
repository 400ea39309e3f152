"""What attribution sees that copying does not: the grid of reasoning, and the causal hop on Table 1's samples (12)."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from flashtrace_lib import metrics as m
from flashtrace_lib.evaluation.results_table import frame_from_records

from .ablations import hop_records, label_of, minus
from .results import Results, by_sentence
from .statistics import mean_row, paired_difference

HINTED = ("first", "rank", "auroc_haystack")
METRICS = ("auroc_facts", "auroc_haystack", "r_precision_haystack", "first", "lds")
CELL = ("reasoning", "off_path")
ON_FEW = ("perturbation", "suppression")  # a forward pass a sentence: measured on some of the answers

CAUSAL, RIVALS = "flashtrace_causal", ("flashtrace_best", "ifr_all", "at2", "attnlrp", "flashtrace", "string_match")
LOOKED_AT = {"h2_c3": 4, "mq_q4": 4}  # the first samples of these cells, on which the causal hop was chosen


def fresh(frame: pd.DataFrame, samples: pd.DataFrame) -> pd.DataFrame:
    """Rows of the cells that have the causal hop, without the first of ``samples``, those that were looked at."""
    frame = frame[frame["cell"].isin(frame.loc[frame["method"] == CAUSAL, "cell"])]
    seen: set[str] = set()
    for cell, n in LOOKED_AT.items():
        seen |= set(samples.loc[samples["cell"] == cell, "sample"][:n])
    return frame[~frame["sample"].isin(seen)]


def causal_gains(results: Results, metrics: Sequence[str], answers: str = "own", whole: str = "") -> pd.DataFrame:
    """The causal hop minus each rival: all cells that have it, and the cell of chains side by side alone.

    ``whole`` as for `Results.frame`; IFR and mean pooling, which gain much by sentences, are rivals then too.

    Returns
    -------
    pandas.DataFrame
        ``group, method, label, metric, difference, low, high, n``.
    """
    rivals = (*("mean_pooling", "ifr") * bool(whole), *RIVALS)
    frame = results.frame(metrics, [CAUSAL, *rivals], answers=answers, whole=whole)
    frame = fresh(frame, results.samples(answers=answers))
    groups = {"all cells": frame, "h2_c3": frame[frame["cell"] == "h2_c3"]}
    parts = [
        paired_difference(part, CAUSAL, rival).assign(group=group, method=rival, label=label_of(rival))
        for group, part in groups.items()
        for rival in rivals
        if rival in set(part["method"])
    ]
    return pd.concat(parts, ignore_index=True)


def grid_frame(results: Results, whole: str = "") -> pd.DataFrame:
    """Metrics of all methods on the grid; FlashTrace with fewer hops is part of its run with three.

    Parameters
    ----------
    whole : {"", "mean", "sum"}
        As for `Results.frame`.

    Returns
    -------
    pandas.DataFrame
        As `Results.frame`, with ``reasoning, off_path, chain``.
    """
    records, about = by_sentence(_records(results), whole), _places(results)
    frame = frame_from_records(records, METRICS[1:]).astype({"value": float})
    once = frame.drop_duplicates(["sample", "method"]).set_index(["sample", "method"])
    values = [(row["sample"], row["method"], _among_facts(row, about.loc[row["sample"]])) for row in records]
    found = pd.DataFrame(values, columns=["sample", "method", "value"]).set_index(["sample", "method"])
    facts = once.drop(columns="value").join(found).assign(metric=METRICS[0]).reset_index()
    whole = pd.concat([facts, frame], ignore_index=True)
    return whole.merge(about[[*CELL, "chain"]].reset_index(), on="sample", how="left")


def _records(results: Results) -> list[dict[str, Any]]:
    """Rows of all methods; FlashTrace with fewer hops is part of its run with three."""
    plain = [row for row in results.records().to_dict("records") if row["method"] != "flashtrace_k3"]
    return [*(row | {"method": row["method"].replace("_k1", "")} for row in hop_records(results)), *plain]


def hints_frame(results: Results) -> pd.DataFrame:
    """Metrics of all methods on hints that T does not mention; ``reasoning`` is the form, or ``all`` for the pool."""
    frame = frame_from_records(_records(results), HINTED).astype({"value": float})
    frame = pd.concat([frame.assign(reasoning="all"), frame.assign(reasoning=frame["cell"])], ignore_index=True)
    return frame.assign(off_path="")


def _places(results: Results) -> pd.DataFrame:
    """Where each sample stands in the grid, and the tokens of its facts, counted from the first of I."""
    rows = []
    for row in results.samples().to_dict("records"):
        said, first = json.loads(row["metadata"]), row["prompt"][0]
        gold = np.asarray(row["gold"], dtype=int)
        others = np.setdiff1d(np.asarray(said["distracting"], dtype=int), gold)
        rows.append({"sample": row["sample"], "reasoning": said["mode"], "off_path": said["off_path"],
                     "chain": said["chain"], "gold": gold - first, "others": others - first})  # fmt: skip
    return pd.DataFrame(rows).set_index("sample")


def _among_facts(record: dict[str, Any], about: pd.Series) -> float:
    """AUROC of the tokens of the chain's facts against those of the facts that do not matter; a tie counts half."""
    if record.get("scores") is None:
        return 0.5  # a random ranking's expectation
    facts = np.concatenate([about["gold"], about["others"]])
    return m.auroc(np.asarray(record["scores"])[facts], np.arange(len(facts)) < len(about["gold"]))


def means(frame: pd.DataFrame) -> pd.DataFrame:
    """The grid's table: ``method, reasoning, off_path, metric, mean, low, high, n``."""
    by = ["method", *CELL, "metric"]
    groups = frame.dropna(subset="value").groupby(by, sort=False)
    rows = [dict(zip(by, keys, strict=True)) | mean_row(p["value"], clusters=p["cluster"]) for keys, p in groups]
    table = pd.DataFrame(rows).drop(columns="n_effective")
    shares = table["metric"].isin({*m.SHARES, METRICS[0]})
    table.loc[shares, ["low", "high"]] = table.loc[shares, ["low", "high"]].clip(0, 1)
    return table


def on_few(frame: pd.DataFrame, metric: str, reference: str = ON_FEW[0]) -> pd.DataFrame:
    """All methods on the answers that have the reference: means of every metric, and of one the difference from it.

    Returns
    -------
    pandas.DataFrame
        ``method, label``, a column for each metric but LDS, ``difference, low, high, n``.
    """
    few = frame[frame["sample"].isin(frame.loc[frame["method"] == reference, "sample"])]
    level = few[few["metric"] != "lds"].pivot_table("value", "method", "metric", sort=False).reset_index()
    level.insert(1, "label", level["method"].map(label_of))
    among = minus(few[few["metric"] == metric], reference)[["method", "difference", "low", "high", "n"]]
    return level.merge(among, on="method", how="left")
