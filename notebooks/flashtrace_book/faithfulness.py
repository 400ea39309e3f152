"""What the chapters on RULER and on a second model share: groups of cells, caps, leads, two models' order (05, 09)."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from flashtrace_lib.evaluation import summarise
from flashtrace_lib.evaluation.results_table import frame_from_records
from flashtrace_lib.metrics import top_count
from flashtrace_lib.metrics.intervals import difference_interval, rank_correlation

from .ablations import contrast, label_of, minus
from .figures.style import CONTROLS
from .figures.tables import comparison_table
from .paper_numbers import NIAH_CELLS, VT_CELLS, paper_value
from .results import Results, by_sentence
from .statistics import mean_row

NEEDLES, CHAINS, ALL = "needles", "chains", "all cells"
GROUPS = {NEEDLES: NIAH_CELLS, CHAINS: VT_CELLS, ALL: (*NIAH_CELLS, *VT_CELLS)}
BASELINES = ("ifr", "attnlrp", "perturbation", "clp", "reagent")  # of the paper's Table 1
METHODS = ("flashtrace", "flashtrace_best", "ifr", "ifr_all", "attnlrp", "at2", "mean_pooling", "last_token", *CONTROLS)
COSTLY = ("perturbation", "clp", "reagent", "rollout", "cage", "gim", "suppression", "contextcite")
BY = ("method", "cell", "metric", "model", "answers")


def in_groups(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame, and every row once more under each of ``GROUPS`` that holds its cell; groups without rows stay out."""
    pooled = [frame[frame["cell"].isin(cells)].assign(cell=group) for group, cells in GROUPS.items()]
    return pd.concat([frame, *(part for part in pooled if len(part))], ignore_index=True)


def shared_samples(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of those samples on which every method that has a metric was measured, so that means have one n."""
    have = frame.groupby(["metric", "cell", "sample"])["method"].transform("nunique")
    return frame[have == frame.groupby("metric")["method"].transform("nunique")]


def widely_measured(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the methods that were measured on at least half of the samples of a cell, metric by metric."""
    counts = frame.groupby(["metric", "cell", "method"])["sample"].transform("nunique")
    return frame[2 * counts >= frame.groupby(["metric", "cell"])["sample"].transform("nunique")]


UNITS = {"tokens": "", "means": "mean", "sums": "sum"}  # what a ranking ranks: tokens, or sentences by one of two


def by_unit(results: Results, answers: str) -> pd.DataFrame:
    """R-precision within the haystack of rankings by token, and of sentences by their mean and by their sum.

    Returns
    -------
    pandas.DataFrame
        As `Results.frame`, with ``unit``. The method ``evidence`` scores the evidence itself: about the most that can
        be reached, less than 1 where a sentence ends in tokens that are no evidence. Means of random draws stay.
    """
    rows = results.records(METHODS, answers=answers).to_dict("records")
    once = {row["sample"]: row for row in reversed(rows)}.values()  # the first, since random ones have no scores
    rows += [row | {"method": "evidence", "scores": row["gold"].astype(float)} for row in once]
    found = {unit: frame_from_records(by_sentence(rows, how), ("r_precision_haystack",)) for unit, how in UNITS.items()}
    parts = [part.assign(unit=unit) for unit, part in found.items()]
    return shared_samples(pd.concat(parts, ignore_index=True).astype({"value": float}))


def table_1(frame: pd.DataFrame, documents: pd.DataFrame) -> pd.DataFrame:
    """Means by cell and by group beside the paper's; a group's is the mean of what the paper prints for its cells.

    Parameters
    ----------
    frame, documents : DataFrame
        Of RULER and of HotpotQA (cell ``hotpotqa``), from `Results.frame`.
    """
    parts = [part for part in (in_groups(frame), documents) if len(part)]
    table = comparison_table(summarise(pd.concat(parts, ignore_index=True), BY), paper=1)
    grouped = table["cell"].isin(GROUPS)
    table.loc[grouped, "paper"] = [
        float(np.mean([paper_value(1, row.method, cell, row.metric) for cell in GROUPS[row.cell]]))
        for row in table[grouped].itertuples()
    ]
    return table


def caps(frame: pd.DataFrame) -> pd.DataFrame:
    """How far recovery can go, by cell and group: ``cell, evidence, share, cap, n``.

    ``evidence`` is the mean share of gold tokens in I, ``share`` that of the samples whose evidence is longer than a
    tenth of I, and ``cap`` the mean of the highest recovery that a ranking can reach, min(1, ⌊0.1 |I|⌋ / |gold|).
    """
    each = frame.drop_duplicates(["cell", "sample"])
    top, gold = each["n_input"].map(lambda n: top_count(int(n))), each["n_gold"]
    each = each.assign(evidence=gold / each["n_input"], share=gold > top, cap=np.minimum(1, top / gold), n=1)
    grouped = in_order(in_groups(each)).groupby("cell", sort=False)
    return grouped.agg({"evidence": "mean", "share": "mean", "cap": "mean", "n": "sum"}).reset_index()


def in_order(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its cells in the paper's order, the groups last; what else it is sorted by stays."""
    order = {cell: place for place, cell in enumerate((*GROUPS[ALL], *GROUPS))}
    return table.sort_values("cell", key=lambda cells: cells.map(order), kind="stable", ignore_index=True)


def minus_by_cell(frame: pd.DataFrame, reference: str) -> pd.DataFrame:
    """`ablations.minus` in each cell or group, in the paper's order."""
    return in_order(minus(frame, reference, ("cell", "metric")))


def leads(
    frames: Mapping[str, pd.DataFrame], others: Iterable[str], metrics: Sequence[str], *, above: bool = True
) -> pd.DataFrame:
    """FlashTrace minus each other method in each frame that has both, for a claim (`ablations.contrast`)."""
    rows = [
        contrast(frame, "flashtrace", other, metrics, above=above, name=f"{where} against {label_of(other)}, ")
        for where, frame in frames.items()
        for other in others
    ]
    rows = [part for part in rows if len(part)]
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()


def margin_beyond(first: pd.DataFrame, second: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """FlashTrace minus IFR in one frame, minus the same in a second whose samples are others (Welch's interval).

    Returns
    -------
    pandas.DataFrame
        ``label, difference, low, high, n``, n being the smaller one; a metric that a frame lacks has no row.
    """
    rows = []
    for metric in metrics:
        one, two = (_gaps(frame[frame["metric"] == metric]) for frame in (first, second))
        if len(one) and len(two):
            low, high = difference_interval(one, two)
            row = {"label": f"{metric}, margin beyond RULER's", "difference": one.mean() - two.mean()}
            rows.append(row | {"low": low, "high": high, "n": min(len(one), len(two))})
    return pd.DataFrame(rows)


def _gaps(frame: pd.DataFrame) -> pd.Series:
    """FlashTrace minus IFR, by sample."""
    wide = frame.pivot_table(index="sample", columns="method", values="value")
    return wide.reindex(columns=["flashtrace", "ifr"]).diff(-1, axis=1)["flashtrace"].dropna()


def rank_agreement(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Spearman's correlation of two models' means, over the methods, on the cells that both have.

    Returns
    -------
    pandas.DataFrame
        ``metric, rankings, methods, rho``, of the means over all cells, without an interval; ``within, low, high, n``:
        the mean over n cells of the correlation within a cell, where a hard cell that is hard for all does not count.
        ``rankings`` says whether the controls are in.
    """
    rows = []
    for metric in dict.fromkeys(first["metric"]):
        for kind, left_out in (("with controls", ()), ("methods alone", CONTROLS)):
            cells = [_cell_means(frame, metric, left_out) for frame in (first, second)]
            one, two = (c.loc[shared, both] for c in cells for shared, both in [_shared(*cells)])
            if one.shape[1] < 3 or not len(one):
                continue
            within = [rank_correlation(one.loc[cell], two.loc[cell]) for cell in one.index]
            rho = rank_correlation(one.mean(), two.mean())
            row = {"metric": metric, "rankings": kind, "methods": one.shape[1], "rho": rho}
            rows.append(row | mean_row([rho for rho in within if rho == rho], "within"))
    return pd.DataFrame(rows)


def _cell_means(frame: pd.DataFrame, metric: str, left_out: Sequence[str]) -> pd.DataFrame:
    """Means of a metric: a row a cell, a column a method."""
    part = frame[(frame["metric"] == metric) & ~frame["method"].isin(left_out)]
    return part.pivot_table(index="cell", columns="method", values="value")


def _shared(first: pd.DataFrame, second: pd.DataFrame) -> tuple[pd.Index, pd.Index]:
    """Rows and columns that two tables share."""
    return first.index.intersection(second.index), first.columns.intersection(second.columns)
