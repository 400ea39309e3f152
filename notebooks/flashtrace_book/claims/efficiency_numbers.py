"""Measured numbers behind the claims about time and memory: functions of the stored tables of a profile."""

from __future__ import annotations

import math

import numpy as np

from ..figures.style import method_style
from ..paper_numbers import text_value
from ..profiles import EfficiencyProfile
from .evidence import Evidence
from .rules import Finding, Missing


def speedup(evidence: Evidence, method: str) -> list[Finding]:
    """Time of a method over FlashTrace's, at the longest generation; a run that was cut short gives no upper bound.

    Its name has the same in forward passes, timed beside each run, where both were measured.
    """
    longest = evidence.rows("efficiency_headline", method=method).sort_values("n_generated").tail(1)
    return [
        Finding(
            f"times as fast, {row.kind}, at {row.n_generated} generated tokens{_in_passes(evidence, row)}", row.speedup,
            low=row.speedup, high=row.speedup if row.kind == "measured" else math.inf,
            paper=text_value("speedup_5k"), scale=row.n_generated,
        )
        for row in longest.itertuples()
    ]  # fmt: skip


def _in_passes(evidence: Evidence, row: tuple) -> str:
    """The speed-up of a row of ``efficiency_headline`` in forward passes; empty where it was not timed in them."""
    try:
        timed = evidence.rows("fig4_headline", outcome="ok", n_generated=row.n_generated).set_index("method")["ratio"]
    except Missing:
        return ""
    both = {row.method, "flashtrace"} <= set(timed.index)
    return f" ({timed[row.method] / timed['flashtrace']:.1f} in forward passes)" if both else ""


def time_in_forward_passes(evidence: Evidence) -> list[Finding]:
    """FlashTrace's time in forward passes, at each size."""
    rows = evidence.rows("fig4_measurements", method="flashtrace", outcome="ok")
    return [Finding(f"forward passes at {r.n_input}+{r.n_generated}", float(r.ratio)) for r in rows.itertuples()]


def growth_with_target(evidence: Evidence) -> list[Finding]:
    """Exponent of the time in the generated tokens: FlashTrace's minus IFR's one by one, with worst-case bounds."""
    ours, one_by_one = (
        evidence.row("table6_complexity", method=method, axis="generation", quantity="time")
        for method in ("flashtrace", "ifr_one_by_one")
    )
    return [
        Finding(
            "exponent in |T+O| minus that of IFR one by one", float(ours["exponent"] - one_by_one["exponent"]),
            float(ours["low"] - one_by_one["high"]), float(ours["high"] - one_by_one["low"]),
        )
    ]  # fmt: skip


def growth_with_input(evidence: Evidence) -> list[Finding]:
    """Exponent of FlashTrace's time in the length of the input."""
    row = evidence.row("table6_complexity", method="flashtrace", axis="input", quantity="time")
    return [Finding("exponent of the time in |I|", *(float(row[c]) for c in ("exponent", "low", "high")))]


def next_cheapest(evidence: Evidence) -> list[Finding]:
    """Time and memory of the cheapest other method over FlashTrace's, at FlashTrace's longest size of each axis."""
    finished = evidence.rows("fig4_measurements", outcome="ok")
    findings = []
    for axis, rows in finished.groupby("axis"):
        longest = rows.loc[rows["method"] == "flashtrace", "length"].max()
        by_method = rows[rows["length"] == longest].set_index("method")
        if "flashtrace" not in by_method.index:
            continue
        ours, others = by_method.loc["flashtrace"], by_method.drop("flashtrace")
        for column, resource in (("ratio", "time"), ("peak_gib", "memory")):
            ratio = float(others[column].min() / ours[column]) if len(others) else math.inf
            findings.append(Finding(f"{resource} of the next cheapest, {axis} of {longest} tokens", ratio))
    return findings


def methods_that_dominate(evidence: Evidence) -> list[Finding]:
    """Number of methods at least as fast as FlashTrace whose interval of MAS reaches down to FlashTrace's.

    Of the methods of Fig. 4 alone, which are the paper's and variants of them; one as fast without a MAS is absent.
    """
    table = evidence.table("fig4e_pareto").set_index("method")
    table = table[table.index.isin(EfficiencyProfile().methods)]
    if "flashtrace" not in table.index:
        raise Missing("fig4e_pareto.csv has no row of FlashTrace")
    ours, others = table.loc["flashtrace"], table.drop("flashtrace")
    as_fast = others[others["ratio"] <= ours["ratio"]]
    absent = _without_a_mas(evidence, float(ours["ratio"]), set(table.index))
    name = "methods as fast that may be as faithful"
    if len(as_fast) and (math.isnan(ours["low"]) or as_fast["low"].isna().any()):
        # Too few samples for an interval: any of the methods may be as faithful, so the finding must not count.
        return [Finding(name, float(len(as_fast)), n=int(table["n"].min())), *absent]
    return [Finding(name, float((as_fast["low"] <= ours["high"]).sum())), *absent]


def _without_a_mas(evidence: Evidence, ratio: float, known: set[str]) -> list[Finding]:
    """Methods without a MAS that take no more forward passes than FlashTrace, where that takes ``ratio`` of them."""
    sizes = evidence.rows("fig4_measurements", axis="input", outcome="ok")
    ours = sizes[(sizes["method"] == "flashtrace") & np.isclose(sizes["ratio"], ratio, rtol=1e-4)]
    here = sizes[sizes["length"].isin(ours["length"]) & (sizes["ratio"] <= ratio) & ~sizes["method"].isin(known)]
    return [Finding(f"MAS of {method_style(name).label}, as fast", math.nan, absent=True) for name in here["method"]]


def naive_over_flashtrace(evidence: Evidence) -> list[Finding]:
    """Time of naive multi-hop attribution over FlashTrace's, at each length that was measured."""
    table = evidence.rows("fig1c_cost", measured=True)
    seconds = table.pivot(index="n_reasoning", columns="method", values="seconds")
    if "flashtrace" not in seconds or "ifr per token" not in seconds:
        raise Missing("fig1c_cost.csv has no IFR per token beside FlashTrace")
    ratio = (seconds["ifr per token"] / seconds["flashtrace"]).dropna()
    return [Finding(f"IFR per token over FlashTrace, |T| = {n}", float(value)) for n, value in ratio.items()]


def effect_of_recomputing(evidence: Evidence, column: str) -> list[Finding]:
    """Memory saved, or time added, by recomputing attention, at the longest context."""
    longest = evidence.table("table9_savings").sort_values("tokens").iloc[-1]
    tokens = float(longest["tokens"])
    return [Finding(f"at {tokens:g} tokens", float(longest[column]), paper=text_value(column), scale=tokens)]


# The functions that claims.yaml may name under "measured", beside those of numbers.py.
MEASURED = {
    f.__name__: f
    for f in (
        speedup, time_in_forward_passes, growth_with_target, growth_with_input, next_cheapest, methods_that_dominate,
        naive_over_flashtrace, effect_of_recomputing,
    )
}  # fmt: skip
