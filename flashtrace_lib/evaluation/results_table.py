"""Stored records -> tidy tables of metrics and their means; no model needed."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .. import metrics as m
from ..sample import Sample
from ..store import Store
from .ablations import Record, records_with_masks, source_scores

DEFAULT_METRICS = ("recovery", "rise", "mas")
COLUMNS = (
    "sample", "task", "cell", "model", "answers", "right", "method", "metric", "value", "flagged", "seconds",
    "n_input", "n_reasoning", "n_output", "n_gold", "curve_dtype", "key", "cluster",
)  # fmt: skip


Metric = Callable[[Record, str, str], float | None]


def _on_gold(measure: Callable[[Any, Any], float], haystack: bool = False, both: bool = False) -> Metric:
    """A metric of scores and gold over I, or over its haystack alone; ``both`` if it needs tokens that are not gold."""

    def metric(record: Record, *_: str) -> float | None:
        gold = record.get("gold")
        if not _given(gold) or (haystack and not _given(record.get("haystack"))):
            return None
        part = slice(*record["haystack"]) if haystack else slice(None)
        gold = np.asarray(gold, dtype=bool)[part]
        return measure(record["scores"][part], gold) if gold.any() and not (both and gold.all()) else None

    return metric


def _on_deletion(measure: Callable[..., float], *columns: str) -> Metric:
    """A metric of the normalised response, and of further columns of the record."""

    def metric(record: Record, definition: str, denominator: str) -> float | None:
        if not has_curve(record):
            return None
        response = m.normalise_response(record["log_probs"], definition, denominator)
        return measure(response, *(record[name] for name in columns), definition)

    return metric


def _lds(record: Record, *_: str) -> float | None:
    """LDS on the logits of the tokens of T and O, the first two columns of effects; the last two masks are none."""
    if not _given(record.get("masks")) or not _given(record.get("scores")):
        return None
    effects = np.asarray(list(record["mask_log_odds"]), dtype=np.float64)[:-2, :2].sum(1)
    return m.lds(source_scores(record, record["mask_sources"]), [list(mask) for mask in record["masks"]], effects)


def _places(record: Record) -> tuple[int, int, int] | None:
    """Sentences of the haystack above the best one of gold; level with it, of the others and of gold."""
    if not all(_given(record.get(name)) for name in ("scores", "gold", "haystack", "sentences")):
        return None
    gold, (first, stop) = np.asarray(record["gold"], dtype=bool), record["haystack"]
    spans = [(max(a, first), min(b, stop)) for a, b in record["sentences"] if a < stop and b > first]
    holds = np.array([gold[a:b].any() for a, b in spans])
    if not holds.any() or holds.all():
        return None
    words = record["words"] if _given(record.get("words")) else ()  # white space counts nowhere, as in a trace
    scores = source_scores(record, spans, words).numpy()
    best, others = scores[holds].max(), scores[~holds]
    return int((others > best).sum()), int((others == best).sum()), int((scores[holds] == best).sum())


def _rank(record: Record, *_: str) -> float | None:
    return None if (found := _places(record)) is None else 1 + found[0] + found[1] / (1 + found[2])


def _first(record: Record, *_: str) -> float | None:
    return None if (found := _places(record)) is None else (found[0] == 0) * found[2] / (found[1] + found[2])


METRICS: dict[str, Metric] = {
    "recovery": _on_gold(m.recovery_rate),
    "r_precision": _on_gold(m.r_precision),
    "recovery_haystack": _on_gold(m.recovery_rate, haystack=True),
    "r_precision_haystack": _on_gold(m.r_precision, haystack=True),
    "auroc_haystack": _on_gold(m.auroc, haystack=True, both=True),
    "rank": _rank,
    "first": _first,
    "lds": _lds,
    "rise": _on_deletion(m.rise),
    "mas": _on_deletion(m.mas, "cumulative"),
}
_IN_HAYSTACK = ("recovery_haystack", "r_precision_haystack", "auroc_haystack", "rank", "first")
ON_CURVE = ("rise", "mas")  # what needs the deletion curve, and is flagged where the likelihood never drops


def frame_from_records(
    records: Store | pd.DataFrame | Iterable[Record], metrics: Sequence[str] = DEFAULT_METRICS,
    definition: str = "log_probability", denominator: str = "signed",
) -> pd.DataFrame:  # fmt: skip
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
        records = records.astype(object).where(records.notna(), None).to_dict("records")
    rows = []
    for record in map(_with_arrays, records):
        no_drop = has_curve(record) and m.is_flagged(record["log_probs"])
        shared = {name: record[name] for name in COLUMNS if name in record}
        n_gold = int(np.sum(record["gold"])) if _given(record.get("gold")) else 0
        shared |= {"n_gold": n_gold, "cluster": record.get("cluster") or _template(record)}
        known = json.loads(record["values"]) if isinstance(record.get("values"), str) else None
        for name in metrics:
            if known is not None:  # of draws that were averaged when they were stored
                rows += [{**shared, "metric": name, "value": known[name], "flagged": False}] if name in known else []
                continue
            value = METRICS[name](record, definition, denominator)
            if value is not None:
                row = {**shared, "metric": name, "value": value}
                row["flagged"] = m.ranks_nothing(_ranked(record, name)) or (no_drop and name in ON_CURVE)
                rows.append(row | ({"curve_dtype": record["masks_dtype"]} if name == "lds" else {}))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _with_arrays(record: Record) -> Record:
    """The record with its scores as an array, so that not every metric makes one again."""
    return record | ({"scores": np.asarray(record["scores"])} if _given(record.get("scores")) else {})


def _ranked(record: Record, name: str) -> Any:
    """The scores that a metric ranks; where they are all equal its value is a random ranking's."""
    if name == "lds":
        return source_scores(record, record["mask_sources"])
    return record["scores"][slice(*record["haystack"])] if name in _IN_HAYSTACK else record["scores"]


def summarise(frame: pd.DataFrame, by: Sequence[str] = ("method", "cell", "metric")) -> pd.DataFrame:
    """Mean, 95 % interval, n, independent n and number of flagged samples of each group, in order of appearance.

    Values of one template or one record in a group (see `clusters`) are one cluster of the interval. Flagged samples
    enter mean, interval and n, and are counted beside them: those whose likelihood masking does not lower (RISE and MAS
    are 1 by definition, the same samples for every method), and those on which a method ranks nothing. A value that is
    missing (NaN) enters nothing.

    Parameters
    ----------
    frame : DataFrame
        From `evaluate` or `frame_from_records`.
    by : sequence of str
        Columns that form the groups.
    """
    rows = []
    for keys, group in frame.groupby(list(by), sort=False, dropna=False):
        kept = group[group["value"].notna()]
        values = kept["value"].to_numpy(dtype=float)
        of = clusters(kept) if "sample" in kept else None
        within = (0, 1) if set(group.get("metric", [""])) <= m.SHARES else None
        low, high = m.mean_interval(values, clusters=of, within=within)
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
    """Template that the record's sample was filled from, with its task; else of a sample without an id its key."""
    nameless = record.get("sample_key") if record.get("sample") == "sample" else None
    return _template_of(json.loads(record.get("sample_metadata") or "{}"), record.get("task")) or nameless


def _template_of(metadata: Mapping[str, Any], task: str | None) -> str | None:
    template = metadata.get("template")
    return None if template is None else f"{task}/{template}"


def record_of(samples: pd.Series) -> pd.Series:
    """Record behind each sample's id: MoreHopQA asks several questions of one, ``<record>_<number>``."""
    return samples.astype(str).str.replace(r"^([0-9a-f]{24,32})_\d+$", r"\1", regex=True)


def has_curve(record: Record) -> bool:
    """Whether the record holds a deletion curve."""
    return _given(record.get("log_probs"))


def _given(column: Any) -> bool:
    """Whether a record has a column of a list: where it lacks it, a table holds None or NaN."""
    return isinstance(column, (list, np.ndarray)) and len(column) > 0


def check_metrics(metrics: Sequence[str]) -> None:
    """Raise ValueError unless every name is a key of ``METRICS``."""
    unknown = [name for name in metrics if name not in METRICS]
    if isinstance(metrics, str) or unknown:
        raise ValueError(f"unknown metrics {unknown or metrics!r}: give a tuple of {sorted(METRICS)}")
