"""Findings that are rows of one table: differences and means, of any chapter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..figures.style import method_style
from ..paper_numbers import NIAH_CELLS, VT_CELLS
from ..profiles import load_profile, profile_names
from ..samples import ALL
from .evidence import BASELINES, PAIRS, Evidence
from .rules import Finding, Missing


def against_methods(
    evidence: Evidence, table: str, cell: str, metrics: Sequence[str], methods: Sequence[str] = BASELINES
) -> list[Finding]:
    """FlashTrace minus each method on the same samples; what the profile does not run, or not measure, is absent."""
    evidence.table(table)  # Missing if the profile has not generated it
    if table == "table1_ruler" and cell == ALL:
        _require_ruler_cells(evidence)
    where = {"table": table, "cell": cell}
    rows = evidence.rows(PAIRS, **where)
    pairs = [(metric, method) for metric in metrics for method in methods]
    ran = set(zip(rows["metric"], rows["method"], strict=True)) & set(pairs)
    if not ran:
        raise Missing(f"{table}.csv, cell {cell}, {method_style(methods[0]).label}")
    measured = [
        evidence.difference(
            label_of(metric, method, evidence.setting(method)), PAIRS, metric=metric, method=method, **where
        )
        for metric, method in pairs
        if (metric, method) in ran
    ]
    absent = [Finding(label_of(*pair), math.nan, absent=True) for pair in pairs if pair not in ran]
    return measured + absent


def against_random(evidence: Evidence, table: str, metrics: Sequence[str]) -> list[Finding]:
    """FlashTrace minus the random baseline, with RISE and MAS sign-flipped, so that positive is better."""
    if table.startswith("ruler"):
        _require_ruler_cells(evidence)
    findings = [evidence.difference(metric, table, method="flashtrace", metric=metric) for metric in metrics]
    return [
        f if f.name == "recovery" else Finding(f"{f.name}, sign-flipped", -f.value, -f.high, -f.low, f.n)
        for f in findings
    ]


def differences(evidence: Evidence, table: str, metrics: Sequence[str], cell: str | None = None) -> list[Finding]:
    """The rows of these metrics, and of a cell, in a table of paired differences."""
    where = {} if cell is None else {"cell": cell}
    return [
        evidence.difference(" ".join([metric, *where.values()]), table, metric=metric, **where) for metric in metrics
    ]


def held_out_differences(evidence: Evidence, table: str, metrics: Sequence[str], chosen_on: int) -> list[Finding]:
    """`differences` of a setting that was chosen on the samples of one seed; Missing where a profile has these."""
    if evidence.profile in profile_names():
        if load_profile(evidence.profile).better_flashtrace.held_out_seed == chosen_on:
            raise Missing(f"{table}.csv of samples that did not choose the setting")
    return differences(evidence, table, metrics)


def all_differences(
    evidence: Evidence, table: str, metrics: Sequence[str], where: Mapping[str, object] | None = None
) -> list[Finding]:
    """Every row of a table of paired differences that has one of the metrics, and the values of ``where``."""
    return [
        Finding(
            " ".join([row["metric"], *(str(row[c]) for c in ("cell", "against") if c in row)]),
            float(row["difference"]), float(row["low"]), float(row["high"]), int(row["n"]),
        )
        for _, row in evidence.rows(table, **where or {}).iterrows()
        if row["metric"] in metrics
    ]  # fmt: skip


def means_in_order(
    evidence: Evidence, table: str, column: str, where: Mapping[str, object], prefix: str = ""
) -> list[Finding]:
    """Means of a table, in the order of a column: a number, or a cell whose name ends in one (``hotpotqa_1024``)."""
    rows = [row for _, row in evidence.rows(table, **where).iterrows()]
    rows.sort(key=lambda row: float(str(row[column]).rpartition("_")[2]))
    return [
        Finding(f"{prefix}{row[column]}", float(row["mean"]), float(row["low"]), float(row["high"]), int(row["n"]))
        for row in rows
    ]


def label_of(metric: str, method: str, setting: str = "") -> str:
    """Name of a comparison with a method, and the options that its profile changes."""
    label = f"{metric.replace('_', '-')} against {method_style(method).label}"
    return f"{label}, {setting}" if setting else label


def _require_ruler_cells(evidence: Evidence) -> None:
    """Missing where a profile's Table 1 is HotpotQA alone."""
    if not set(evidence.table("table1_ruler")["cell"]) & set(NIAH_CELLS + VT_CELLS):
        raise Missing("table1_ruler.csv, cells of needles and chains")


# The functions that claims.yaml may name under "measured", beside those of numbers.py and efficiency_numbers.py.
MEASURED = {
    f.__name__: f
    for f in (
        against_methods, against_random, differences, held_out_differences, all_differences, means_in_order,
    )
}  # fmt: skip
