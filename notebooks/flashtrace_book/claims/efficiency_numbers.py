"""The claims of time and memory; their tables are those of `efficiency_tables`, of the pilot study and of Table 8."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..paper_numbers import text_value
from . import rules
from .claim import Claim
from .evidence import Evidence
from .rules import Finding, Missing

TARGET = 5000  # tokens of the target at which the paper takes its factor
CONTEXT = 2048  # tokens of Table 9
BEYOND = "beyond the paper"
_MEDIANS = "medians of a few runs on one machine, without an interval"


def _speedup(method: str) -> Callable[[Evidence], list[Finding]]:
    """The factor at the longest generation."""

    def found(e: Evidence) -> list[Finding]:
        paper = text_value("speedup_5k")
        last = e.rows("efficiency_headline", method=method).sort_values("n_generated").tail(1)
        return [
            Finding(
                f"times as fast, {row.kind}, at {row.n_generated} generated tokens", row.speedup, row.speedup,
                row.speedup if row.kind == "measured" else math.inf, paper=paper, scale=row.n_generated,
            )
            for row in last.itertuples()
        ]  # fmt: skip

    return found


def _per_pass(e: Evidence) -> list[Finding]:
    rows = e.rows("fig4_measurements", method="flashtrace", outcome="ok")
    return [Finding(f"forward passes at {r.n_input}+{r.n_generated}", float(r.ratio)) for r in rows.itertuples()]


def _growth(e: Evidence) -> list[Finding]:
    """Exponent of FlashTrace's time in the generation minus that of IFR one by one, bounds at their worst."""
    rows = [e.row("table6_complexity", method=method, axis="generation", quantity="time")
            for method in ("flashtrace", "ifr_one_by_one")]  # fmt: skip
    ours, naive = rows
    return [Finding("exponent in |T+O| minus that of IFR one by one", float(ours["exponent"] - naive["exponent"]),
                    float(ours["low"] - naive["high"]), float(ours["high"] - naive["low"]))]  # fmt: skip


def _linear(e: Evidence) -> list[Finding]:
    row = e.row("table6_complexity", method="flashtrace", axis="input", quantity="time")
    return [Finding("exponent of the time in |I|", *(float(row[c]) for c in ("exponent", "low", "high")))]


def _cheapest(e: Evidence) -> list[Finding]:
    """At FlashTrace's longest size of an axis: the cheapest of the other methods over FlashTrace."""
    ran = e.rows("fig4_measurements", outcome="ok")
    found = []
    for axis, part in ran.groupby("axis"):
        longest = part.loc[part["method"] == "flashtrace", "length"].max()
        at = part[part["length"] == longest].set_index("method")
        others = at.drop("flashtrace", errors="ignore")
        for column, what in (("ratio", "time"), ("peak_gib", "memory")):
            if len(others) < len(at):
                cheapest = float(others[column].min() / at.loc["flashtrace", column]) if len(others) else math.inf
                found.append(Finding(f"{what} of the next cheapest, {axis} of {longest} tokens", cheapest))
    return found


def _dominating(e: Evidence) -> list[Finding]:
    """Methods no slower than FlashTrace whose MAS may be as low, by the ends of both intervals."""
    table = e.table("fig4e_pareto").set_index("method")
    if "flashtrace" not in table.index:
        raise Missing("fig4e_pareto.csv has no row of FlashTrace")
    ours, others = table.loc["flashtrace"], table.drop("flashtrace")
    fast = others[others["ratio"] <= ours["ratio"]]
    what = "methods as fast that may be as faithful"
    if len(fast) and (math.isnan(ours["low"]) or fast["low"].isna().any()):  # too few samples: any of them may be
        return [Finding(what, float(len(fast)), n=int(table["n"].min()))]
    return [Finding(what, float((fast["low"] <= ours["high"]).sum()))]


def _naive(e: Evidence) -> list[Finding]:
    """Naive multi-hop attribution over FlashTrace, at each length that was measured."""
    table = e.rows("fig1c_cost", measured=True)
    seconds = table.pivot(index="n_reasoning", columns="method", values="seconds")
    if "flashtrace" not in seconds or "ifr per token" not in seconds:
        raise Missing("fig1c_cost.csv has no IFR per token beside FlashTrace")
    ratio = (seconds["ifr per token"] / seconds["flashtrace"]).dropna()
    return [Finding(f"IFR per token over FlashTrace, |T| = {n}", float(value)) for n, value in ratio.items()]


def _table_9(column: str) -> Callable[[Evidence], list[Finding]]:
    def found(e: Evidence) -> list[Finding]:
        last = e.table("table9_savings").sort_values("tokens").iloc[-1]
        return [
            Finding(
                f"at {last['tokens']:g} tokens",
                float(last[column]),
                paper=text_value(column),
                scale=float(last["tokens"]),
            )
        ]

    return found  # fmt: skip


EFFICIENCY = (
    Claim("speedup", "FlashTrace is over 130 times as fast as IFR, one target token at a time", "abstract, 5.1",
          "130 × at 5k tokens", "04_efficiency", rules.at_least_the_papers("the factor", TARGET),
          _speedup("ifr_one_by_one"), note=_MEDIANS),
    Claim("speedup_batched", "The factor is as large against IFR that takes its targets in one batch", BEYOND,
          "130 × at 5k tokens", "04_efficiency", rules.at_least_the_papers("the factor", TARGET),
          _speedup("ifr"), note=_MEDIANS),
    Claim("seconds", "Under 20 s against over 38 min at a target of 5k tokens; naive hops take hours", "5.1, 3.2",
          "< 20 s / > 38 min", "04_efficiency", rules.untestable("seconds of an 8B model on five A800")),
    Claim("one_pass", "A hop costs about a forward pass", "4", "“comparable”", "04_efficiency",
          rules.at_most(2, "the time of K = 1 in forward passes"), _per_pass, note=_MEDIANS),
    Claim("naive_hops", "Naive multi-hop attribution falls behind as the reasoning grows", "3.2, Fig. 1c", "–",
          "01_pilot_study", rules.rising(), _naive, note="one run at each length, without an interval"),
    Claim("growth", "Time grows more slowly with the target than token by token", "4.2, B, Table 6", "O(N) / O(M·N)",
          "04_efficiency", rules.below_zero("the difference of the exponents"), _growth),
    Claim("linear", "Time is linear in the length of the context", "B, Table 6", "O(N)", "04_efficiency",
          rules.at_most(1, "the exponent"), _linear),
    Claim("cheapest", "FlashTrace scales best of all methods, in time and memory", "5.1, Fig. 4a–d", "–",
          "04_efficiency", rules.at_least(1, "the next cheapest over FlashTrace"), _cheapest, note=_MEDIANS),
    Claim("pareto", "FlashTrace is on the front of cost and faithfulness", "Fig. 4e", "–", "04_efficiency",
          rules.at_most(0, "the number of methods that are as fast and may be as faithful"),
          _dominating, note="by the intervals of MAS; the times are medians of a few runs"),
    Claim("memory_saved", "Recomputing attention saves most of the peak memory", "L, Table 9", "62 % at 2048 tokens",
          "04_efficiency", rules.at_least_the_papers("the share saved", CONTEXT),
          _table_9("memory_saved"), note=_MEDIANS),
    Claim("latency_added", "Recomputing attention costs no more time than the paper says", "L, Table 9", "+42 %",
          "04_efficiency", rules.at_most_the_papers("the time added", CONTEXT),
          _table_9("latency_added"), note=_MEDIANS),
)  # fmt: skip
