"""Stored records -> tidy tables of metrics and their means; no model needed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .. import metrics as m
from ..sample import Sample
from ..store import Store
from .ablations import ABLATION_METRICS, ON_MASKS, ranks_no_source, records_with_masks
from .record_metrics import ON_GOLD, UNITS, OnGold, Record

DEFAULT_METRICS = ("recovery", "rise", "mas")
COLUMNS = (
    "sample", "task", "cell", "model", "answers", "right", "method", "metric", "value", "flagged", "seconds",
    "n_input", "n_reasoning", "n_output", "n_gold", "curve_dtype", "key", "cluster",
)  # fmt: skip


def _rise(record: Record, definition: str, denominator: str) -> float | None:
    if not has_curve(record):
        return None
    return m.rise(m.normalise_response(record["log_probs"], definition, denominator), definition)


def _mas(record: Record, definition: str, denominator: str) -> float | None:
    if not has_curve(record):
        return None
    return m.mas(m.normalise_response(record["log_probs"], definition, denominator), record["cumulative"], definition)


METRICS: dict[str, Callable[[Record, str, str], float | None]] = {
    **ON_GOLD,
    "rise": _rise,
    "mas": _mas,
    **ABLATION_METRICS,
}
OF_RANKING = tuple(name for name in METRICS if not name.startswith("recovery_cap"))  # a cap is of the evidence alone
ON_CURVE = ("rise", "mas")  # what needs the deletion curve, and is flagged where the likelihood never drops


def frame_from_records(
    records: Store | pd.DataFrame | Iterable[Record],
    metrics: Sequence[str] = DEFAULT_METRICS,
    definition: str = "log_probability",
    denominator: str = "signed",
) -> pd.DataFrame:
    """Tidy table of ``metrics``, computed from the raw curves and scores of stored records; no model needed.

    Parameters
    ----------
    records : Store, DataFrame (``Store.records()``) or iterable of dict
        The records of a store come with the masks that are stored beside it (``<name>_masks``), which LDS needs. A
        record of averaged draws has its metrics as JSON text (``values``) in place of scores.
    metrics : sequence of str
        Keys of ``METRICS``. One that a record cannot have (no gold, no curve, no masks, no sentences or haystack, which
        records read from a store without their samples may lack) is left out, not set to zero.
    definition, denominator : str
        See `flashtrace_lib.metrics`.

    Returns
    -------
    pandas.DataFrame
        One row a record and metric, columns ``COLUMNS``. ``flagged`` is True on deletion metrics of samples
        whose likelihood full masking does not lower, and on every metric of a ranking where the scores that it ranks
        are all equal and so rank nothing: the value is then a random ranking's. ``curve_dtype`` is the arithmetic of
        the masked contexts behind the value. ``seconds`` is the time of the attribution alone. ``cluster`` is what
        samples that are not independent share, see `clusters`.
    """
    check_metrics(metrics)
    if isinstance(records, Store):
        records = records_with_masks(records)
    if isinstance(records, pd.DataFrame):
        records = records.to_dict("records")
    rows = []
    for record in map(_with_arrays, records):
        no_drop = has_curve(record) and m.is_flagged(record["log_probs"])
        shared = {name: record[name] for name in COLUMNS if name in record}
        shared |= {"n_gold": _n_gold(record), "cluster": _template(record)}
        known = json.loads(record["values"]) if isinstance(record.get("values"), str) else None
        for name in metrics:
            if known is not None:  # of draws that were averaged when they were stored
                rows += [{**shared, "metric": name, "value": known[name], "flagged": False}] if name in known else []
                continue
            value = METRICS[name](record, definition, denominator)
            if value is not None:
                flagged = name in OF_RANKING and (_ranks_nothing(record, name) or (no_drop and name in ON_CURVE))
                row = {**shared, "metric": name, "value": value, "flagged": flagged}
                if name in ABLATION_METRICS:
                    row["flagged"] = ranks_no_source(record, name)
                    row["curve_dtype"] = record["masks_dtype" if name in ON_MASKS else "top_dtype"]
                rows.append(row)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _with_arrays(record: Record) -> Record:
    """The record with its long lists as arrays and room for its units, so that not every metric makes them again."""
    lists = {name: np.asarray(record[name]) for name in ("scores", "gold") if isinstance(record.get(name), list)}
    return record | lists | {UNITS: {}}


def _ranks_nothing(record: Record, name: str) -> bool:
    metric = METRICS[name]
    return metric.ranks_nothing(record) if isinstance(metric, OnGold) else m.ranks_nothing(record["scores"])


def summarise(
    frame: pd.DataFrame, by: Sequence[str] = ("method", "cell", "metric"), flagged: str = "include"
) -> pd.DataFrame:
    """Mean, 95 % interval, n, independent n and number of flagged samples of each group, in order of appearance.

    Values of one template or one record in a group (see `clusters`) are one cluster of the interval.

    Parameters
    ----------
    frame : DataFrame
        From `evaluate` or `frame_from_records`.
    by : sequence of str
        Columns that form the groups.
    flagged : {"include", "exclude"}
        Whether flagged samples enter mean, interval and n: those whose likelihood masking does not lower (RISE and
        MAS are 1 by definition, the same samples for every method), and those on which a method ranks nothing. They
        are counted either way. A value that is missing (NaN) enters nothing.
    """
    if flagged not in ("include", "exclude"):
        raise ValueError(f'flagged is "include" or "exclude", got {flagged!r}')
    rows = []
    for keys, group in frame.groupby(list(by), sort=False, dropna=False):
        kept = group if flagged == "include" else group[~group["flagged"].astype(bool)]
        kept = kept[kept["value"].notna()]
        values = kept["value"].to_numpy(dtype=float)
        of = clusters(kept) if "sample" in kept else None
        low, high = m.mean_interval(values, clusters=of)
        mean = values.mean() if len(values) else math.nan
        independent = len(values) if of is None else of.nunique()
        counts = {"n": len(values), "n_effective": independent, "flagged": int(group["flagged"].sum())}
        rows.append({**dict(zip(by, keys, strict=True)), "mean": mean, "low": low, "high": high, **counts})
    return pd.DataFrame(rows, columns=[*by, "mean", "low", "high", "n", "n_effective", "flagged"])


def clusters(frame: pd.DataFrame) -> pd.Series:
    """What the sample of each row shares with others, which are then no independent evidence.

    Of a synthetic problem that is the template it was filled from; of a real one the record behind it.
    """
    if "cluster" not in frame:
        return record_of(frame["sample"])
    lacking = frame["cluster"].isna()
    return frame["cluster"].fillna(record_of(frame.loc[lacking, "sample"])) if lacking.any() else frame["cluster"]


def clusters_of(samples: Iterable[Sample]) -> dict[str, str]:
    """`clusters` of samples that no record has been made of, by id."""
    rows = [(sample.id, _template_of(sample.metadata, sample.metadata.get("task"))) for sample in samples]
    frame = pd.DataFrame(rows, columns=["sample", "cluster"])
    return dict(zip(frame["sample"], clusters(frame), strict=True))


def _template(record: Record) -> str | None:
    """Template that the record's sample was filled from, with its task; None for samples without one."""
    return _template_of(json.loads(record.get("sample_metadata") or "{}"), record.get("task"))


def _template_of(metadata: Mapping[str, Any], task: str | None) -> str | None:
    template = metadata.get("template")
    return None if template is None else f"{task}/{template}"


def record_of(samples: pd.Series) -> pd.Series:
    """Record behind each sample's id: MoreHopQA asks several questions of one, ``<record>_<number>``."""
    return samples.astype(str).str.replace(r"^([0-9a-f]{24,32})_\d+$", r"\1", regex=True)


def has_curve(record: Record) -> bool:
    """Whether the record holds a deletion curve."""
    return isinstance(record.get("log_probs"), (list, np.ndarray))


def _n_gold(record: Record) -> int:
    gold = record.get("gold")
    return int(np.sum(gold)) if isinstance(gold, (list, np.ndarray)) else 0


def check_metrics(metrics: Sequence[str]) -> None:
    """Raise ValueError unless every name is a key of ``METRICS``."""
    unknown = [name for name in metrics if name not in METRICS]
    if isinstance(metrics, str) or unknown:
        raise ValueError(f"unknown metrics {unknown or metrics!r}: give a tuple of {sorted(METRICS)}")
