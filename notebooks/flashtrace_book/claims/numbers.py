"""Measured numbers behind the claims about faithfulness: functions of the stored tables of a profile."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flashtrace_lib.evaluation.results_table import clusters
from flashtrace_lib.metrics.intervals import MIN_SAMPLES, rank_correlation_interval

from ..figures.style import method_style
from ..paper_numbers import VT_CELLS, paper_value, text_value
from ..statistics import line_slope
from .evidence import BASELINES, PAIRS, Evidence
from .robustness import comparison_frame
from .rules import Finding, Missing
from .table_numbers import label_of

# --- The pilot study ------------------------------------------------------------------------------------------


def mass_trend(evidence: Evidence) -> list[Finding]:
    """Rank correlation of the mass on T with |T|; interval by Fisher's transformation (Bonett and Wright's error)."""
    where = {"method": "attnlrp", "hop": 0, "share": "share"}
    rho, n = evidence.number("fig1a_trend", "rho", **where), int(evidence.number("fig1a_trend", "n", **where))
    low, high = rank_correlation_interval(rho, n)
    return [Finding("Spearman's correlation with |T|, AttnLRP", rho, low, high, n=n)]


def recovery_with_reasoning(evidence: Evidence, methods: Sequence[str]) -> list[Finding]:
    """Change of recovery with reasoning, of each method; the paper prints that of perturbation.

    A method that the profile did not run is absent.
    """
    papers = {"perturbation": text_value("recovery_cot") - text_value("recovery_direct")}
    ran = set(evidence.rows("fig1b_change", metric="recovery")["method"]) & set(methods)
    if not ran:
        raise Missing(f"fig1b_change.csv has no row of {', '.join(methods)}")
    names = {method: f"recovery, {method_style(method).label}" for method in methods}
    measured = [
        evidence.difference(
            names[method], "fig1b_change", method=method, metric="recovery", paper=papers.get(method, math.nan)
        )
        for method in methods
        if method in ran
    ]
    return measured + [Finding(names[method], math.nan, absent=True) for method in methods if method not in ran]


# --- The main results -----------------------------------------------------------------------------------------


def needles_and_chains(evidence: Evidence, metric: str) -> list[Finding]:
    """FlashTrace minus IFR in both groups of RULER cells."""
    return [
        evidence.difference(group, "ruler_paired_groups", cell=group, metric=metric) for group in ("needles", "chains")
    ]


def chains_ratio(evidence: Evidence) -> list[Finding]:
    """FlashTrace's mean recovery over IFR's on chains, with worst-case bounds from their intervals."""
    ours, ifr = (
        evidence.mean(method, "table1_ruler", method=method, cell="chains", metric="recovery")
        for method in ("flashtrace", "ifr")
    )
    if ifr.low <= 0:
        raise Missing("recovery of IFR on chains that differs from 0")
    paper = min(paper_value(1, "flashtrace", c, "recovery") / paper_value(1, "ifr", c, "recovery") for c in VT_CELLS)
    return [
        Finding(
            "FlashTrace's recovery over IFR's", ours.value / ifr.value, ours.low / ifr.high, ours.high / ifr.low,
            n=min(ours.n, ifr.n), paper=paper,
        )
    ]  # fmt: skip


def change_with_length(evidence: Evidence, store: str, metric: str, method: str = "flashtrace") -> list[Finding]:
    """Change of a method's metric over the middle half of |T|: slope of a line through the samples, times the width.

    The interval is Student's t of the slope; samples of one template are averaged first.
    """
    frame = comparison_frame(evidence.store(store))
    rows = frame[(frame["method"] == method) & (frame["metric"] == metric)]
    points = rows.groupby(clusters(rows))[["n_reasoning", "value"]].mean()
    name = f"change of {metric.upper()} over the middle half of |T|"
    if len(points) < MIN_SAMPLES or points["n_reasoning"].nunique() < 3:
        return [Finding(name, 0.0, n=len(points))]
    line = line_slope(points["n_reasoning"], points["value"])
    width = float(rows["n_reasoning"].quantile(0.75) - rows["n_reasoning"].quantile(0.25))
    change = [float(width * line[name]) for name in ("slope", "low", "high")]
    return [Finding(f"{name} ({width:.0f} tokens)", *change, n=len(points))]


def margin_by_length(evidence: Evidence) -> list[Finding]:
    """The best baseline's MAS minus FlashTrace's in each bin of length, with worst-case bounds from their intervals."""
    table = evidence.rows("fig5_by_length", metric="mas")
    findings = []
    for length, rows in table[table["method"].isin([*BASELINES, "flashtrace"])].groupby("length"):
        by_method = rows.set_index("method")
        if "flashtrace" not in by_method.index or len(by_method) < 2:
            continue
        ours, others = by_method.loc["flashtrace"], by_method.drop("flashtrace")
        margin = float(others["mean"].min() - ours["mean"])
        # skipna=False: a method without an interval leaves the whole bin without one.
        low = float(others["low"].min(skipna=False) - ours["high"])
        high = float(others["high"].min(skipna=False) - ours["low"])
        findings.append(Finding(f"{length:g} tokens", margin, low, high, n=int(rows["n"].min())))
    return findings


def rollout_loss(evidence: Evidence) -> list[Finding]:
    """FlashTrace's loss to the rollout as a share of the rollout's value, as the paper states its own (Table 3).

    The interval is that of the paired difference; the rollout's mean, by which it is divided, is taken as given.
    """
    evidence.table("table3_rollout")  # Missing if the profile has not generated it
    findings = []
    for metric in ("rise", "mas"):
        ours, theirs = (paper_value(3, method, "morehopqa", metric) for method in ("flashtrace", "rollout"))
        where = {"cell": "morehopqa", "method": "rollout", "metric": metric}
        found = evidence.difference(label_of(metric, "rollout"), PAIRS, table="table3_rollout", **where)
        base = evidence.number("table3_rollout", "mean", **where)
        share = [x / base for x in (found.value, found.low, found.high)]
        findings.append(Finding(f"{found.name}, relative", *share, found.n, paper=round((ours - theirs) / theirs, 6)))
    return findings


def rollout_time_saved(evidence: Evidence) -> list[Finding]:
    """Share of the rollout's time that FlashTrace saves, compared sample by sample."""
    paper = text_value("rollout_time_saved")
    return [evidence.mean("share of the time saved", "table3_agreement", quantity="time saved", paper=paper)]


# --- Recursion ------------------------------------------------------------------------------------------------


def first_hop_gain(evidence: Evidence) -> list[Finding]:
    """Gain in recovery from the first recursive hop: of 03, or of 05 where that chapter was not run."""
    columns = ("gain", "gain_low", "gain_high", "n")
    try:
        gain, low, high, n = (evidence.number("recursion_recovery", column, K=1) for column in columns)
    except Missing:
        gain, low, high, n = (evidence.number("ruler_hops", column, K=1) for column in columns)
    return [Finding("recovery, K = 1 minus K = 0", gain, low, high, int(n))]


def mass_on_t_minus_i(evidence: Evidence) -> list[Finding]:
    """Share of hop 0 on the reasoning minus that on the input, with worst-case bounds from their intervals."""
    findings = []
    for data, rows in evidence.rows("fig7_mass_shift", hop=0).groupby("data", sort=False):
        by_quantity = rows.set_index("quantity")
        t, i = by_quantity.loc["reasoning"], by_quantity.loc["prompt"]
        findings.append(
            Finding(
                data, float(t["mean"] - i["mean"]), float(t["low"] - i["high"]), float(t["high"] - i["low"]),
                int(min(t["n"], i["n"])),
            )
        )  # fmt: skip
    return findings


def mass_change(evidence: Evidence, quantity: str) -> list[Finding]:
    """Change of a quantity of Fig. 7 from hop 0 to hop 1, for each data set."""
    return [
        Finding(row.data, row.change, row.change_low, row.change_high, int(row.n))
        for row in evidence.rows("fig7_mass_shift", quantity=quantity, hop=1).itertuples()
    ]


# --- Open questions -------------------------------------------------------------------------------------------


def other_readings(evidence: Evidence) -> list[Finding]:
    """Recovery under the other reading of each open choice minus recovery under the paper's."""
    return [
        Finding(f"recovery, {row.choice}", row.difference, row.low, row.high, int(row.n))
        for row in evidence.rows("questions_ranked", metric="recovery").itertuples()
    ]


def causal_effect(evidence: Evidence) -> list[Finding]:
    """Share of answers that change without the top sentence minus the share without a random one.

    Of the samples of Table 1 and of questions that are answered rightly at once, as far as a profile has them.
    """
    found, missing = [], []
    for table, of_what in (("questions_causal", ""), ("direct_causal", " (answered at once)")):
        try:
            row = evidence.row(table, masked="random")
        except Missing as error:
            missing.append(error)
            continue
        name = f"answers changed{of_what}, the top sentence's share minus that of a random one"
        found.append(Finding(name, *(float(row[c]) for c in ("more", "more_low", "more_high")), int(row["n"])))
    if not found:
        raise missing[0]
    return found


# The functions that claims.yaml may name under "measured", beside those of table_numbers.py and efficiency_numbers.py.
MEASURED = {
    f.__name__: f
    for f in (
        mass_trend, change_with_length, recovery_with_reasoning, needles_and_chains, chains_ratio, margin_by_length,
        rollout_loss, rollout_time_saved, first_hop_gain, mass_on_t_minus_i, mass_change, other_readings, causal_effect,
    )
}  # fmt: skip
