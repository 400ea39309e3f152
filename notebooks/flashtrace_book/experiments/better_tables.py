"""Tables of `better_flashtrace`: differences by half and group, means, and where the candidate loses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from flashtrace_lib.evaluation.results_table import clusters
from flashtrace_lib.tasks.responses import Collection

from ..figures.tables import interval_grid
from ..samples import count_table
from ..statistics import against, mean_row
from .better_plan import CANDIDATE, CELLS, LABELS, PAPER, POOLED, PRIMARY
from .open_questions import HELD_OUT


def _parts(frame: pd.DataFrame, by: str = "half") -> dict[str, pd.DataFrame]:
    """Rows of each half or group, and all."""
    return dict(iter(frame.groupby(by, sort=False))) | {POOLED: frame}


def plan_counts(collections: Mapping[str, Collection]) -> pd.DataFrame:
    """`samples.count_table` of the plan's cells, with the ``half`` and the ``group`` of each."""
    table = count_table(collections)
    for field in ("group", "half"):
        table.insert(1, field, [getattr(CELLS[cell], field) for cell in table["cell"]])
    return table


def parts_table(
    frame: pd.DataFrame, methods: Sequence[str], references: Sequence[str], metrics: Sequence[str]
) -> pd.DataFrame:
    """Some methods minus each of some references, in some metrics, over all samples of a frame.

    Returns
    -------
    pandas.DataFrame
        ``metric, minus, label, difference, low, high, n, better``.
    """
    part = frame[frame["metric"].isin(metrics)]
    tables = [differences(part, reference).assign(minus=LABELS[reference]) for reference in references]
    table = pd.concat(tables, ignore_index=True)
    table = table[(table["half"] == POOLED) & table["method"].isin(methods)]
    columns = ["metric", "minus", "label", "difference", "low", "high", "n", "better"]
    return table.sort_values(["metric", "minus"], kind="stable")[columns].reset_index(drop=True)


def differences(frame: pd.DataFrame, reference: str = PAPER, by: str = "half") -> pd.DataFrame:
    """Every method minus one reference on the same samples, by half and pooled (`statistics.paired_difference`).

    Parameters
    ----------
    frame : pandas.DataFrame
        From `measure`.
    reference : str
        A method of it: the paper's setting, or ``"ifr"``.
    by : {"half", "group"}
        Column of the parts beside the pooled one; with ``"group"`` give the frame of one half.

    Returns
    -------
    pandas.DataFrame
        ``half`` (or ``group``), ``method, label, metric, difference, low, high, n, better``; no row where nothing is
        paired. ``n`` counts samples, those of one template together as one.

    Raises
    ------
    ValueError
        If the frame lacks the reference.
    """
    if reference not in set(frame["method"]):
        raise ValueError(f"the frame has no method {reference!r}: it has {', '.join(dict.fromkeys(frame['method']))}")
    tables = [against(part, reference).assign(**{by: name}) for name, part in _parts(frame, by).items()]
    table = pd.concat(tables, ignore_index=True)
    table = table[table["n"] > 0].assign(label=lambda t: t["method"].map(lambda name: LABELS.get(name, name)))
    columns = [by, "method", "label", "metric", "difference", "low", "high", "n", "better"]
    return table[columns].reset_index(drop=True)


def means(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean of every method by half and pooled: ``half, method, label, metric, mean, low, high, n``; n as above."""
    rows = []
    for half, part in _parts(frame.assign(cluster=clusters(frame))).items():
        for (method, metric), rows_of_one in part.groupby(["method", "metric"], sort=False):
            values = rows_of_one.groupby("cluster", sort=False)["value"].mean()
            about = {"half": half, "method": method, "label": LABELS.get(method, method), "metric": metric}
            rows.append(about | mean_row(values))
    return pd.DataFrame(rows)


def pivoted(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Differences with their intervals as text, a row for each ``label`` and a column for each value of ``columns``."""
    head = table[list(columns)].agg(" minus ".join, axis=1)
    return interval_grid(table.assign(head=head), "label", "head").rename_axis(index=None, columns=None)


def readable(table: pd.DataFrame, metric: str = PRIMARY) -> str:
    """One metric of `differences` as text, a line for each method, the best on the held-out cells first."""
    part = table[table["metric"] == metric]
    cells = part.assign(
        text=[f"{row.difference:+.3f} [{row.low:+.3f}, {row.high:+.3f}] n={row.n}" for row in part.itertuples()]
    )
    first = part.assign(first=part["half"] == HELD_OUT)
    order = first.sort_values(["first", "difference"], ascending=False, kind="stable")["label"].drop_duplicates()
    return cells.pivot(index="label", columns="half", values="text").reindex(order).fillna("-").to_string()


def losses(frame: pd.DataFrame, method: str = CANDIDATE, reference: str = PAPER, metric: str = PRIMARY) -> pd.DataFrame:
    """One row a sample, those first where a method loses most to the reference.

    Returns
    -------
    pandas.DataFrame
        ``sample, cell, half``, the values under both methods, and ``difference``.
    """
    part = frame[(frame["metric"] == metric) & frame["method"].isin([method, reference])]
    wide = part.pivot(index=["sample", "cell", "half"], columns="method", values="value").reset_index()
    wide = wide.assign(difference=wide[method] - wide[reference]).dropna(subset="difference")
    wide.columns.name = None
    columns = ["sample", "cell", "half", reference, method, "difference"]
    return wide.sort_values(["difference", "sample"], kind="stable")[columns].reset_index(drop=True)
