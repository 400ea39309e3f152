"""What is measured for each claim: functions of the stored tables of a profile."""

from __future__ import annotations

import math
from collections.abc import Callable

from flashtrace_lib.metrics.intervals import rank_correlation_interval

from ..figures.style import method_style
from ..paper_numbers import NIAH_CELLS, VT_CELLS, paper_value, text_value
from ..samples import ALL
from .evidence import PAIRS, Evidence
from .rules import Finding, Missing

BASELINES = ("perturbation", "reagent", "clp", "ifr", "attnlrp")
GROUPS = ("needles", "chains")
GAIN = ("gain", "gain_low", "gain_high")


def _label(method: str, metric: str, what: str = "") -> str:
    return f"{metric.replace('_', '-')} against {method_style(method).label}{what and f', {what}'}"


def against(table: str, cell: str, metrics: tuple[str, ...], methods: tuple[str, ...] = BASELINES) -> Callable:
    """FlashTrace minus each method, paired; those that a profile does not run are named as absent."""

    def found(e: Evidence) -> list[Finding]:
        e.table(table)
        if cell == ALL and table == "table1_ruler":
            _needs_ruler(e)
        rows = e.rows(PAIRS, table=table, cell=cell)
        ran = [method for method in methods if method in set(rows["method"])]
        if not ran:
            raise Missing(f"{table}.csv, cell {cell}, {method_style(methods[0]).label}")
        shared = {"table": table, "cell": cell}
        measured = [
            e.difference(_label(method, metric, e.setting(method)), PAIRS, method=method, metric=metric, **shared)
            for metric in metrics for method in ran
        ]  # fmt: skip
        others = [method for method in methods if method not in ran]
        return measured + [Finding(_label(m, metric), math.nan, absent=True) for metric in metrics for m in others]

    return found


def _needs_ruler(e: Evidence) -> None:
    """Missing where a profile's Table 1 is HotpotQA alone."""
    if not set(e.table("table1_ruler")["cell"]) & set(NIAH_CELLS + VT_CELLS):
        raise Missing("table1_ruler.csv, cells of needles and chains")


def groups(metric: str) -> Callable[[Evidence], list[Finding]]:
    """FlashTrace minus IFR in both groups of RULER cells."""
    return lambda e: [e.difference(group, "ruler_paired_groups", cell=group, metric=metric) for group in GROUPS]


def chance(table: str, metrics: tuple[str, ...]) -> Callable[[Evidence], list[Finding]]:
    """FlashTrace minus the ranking by lot, signed so that positive is better."""

    def found(e: Evidence) -> list[Finding]:
        if table.startswith("ruler"):
            _needs_ruler(e)
        differences = [e.difference(metric, table, method="flashtrace", metric=metric) for metric in metrics]
        return [f if f.name == "recovery" else Finding(f"{f.name}, turned round", -f.value, -f.high, -f.low, f.n)
                for f in differences]  # fmt: skip

    return found  # fmt: skip


def paired(table: str, metrics: tuple[str, ...], cells: tuple[str, ...] = (), **where: str) -> Callable:
    """Rows of a table of paired differences."""
    return lambda e: [
        e.difference(" ".join(filter(None, (metric, cell))), table, metric=metric, **({"cell": cell} if cell else {}),
                     **where)
        for cell in cells or ("",)
        for metric in metrics
    ]  # fmt: skip


def all_rows(table: str, metrics: tuple[str, ...], **where: object) -> Callable[[Evidence], list[Finding]]:
    """Every row of a table of paired differences that has one of the metrics."""
    return lambda e: [
        Finding(" ".join([row["metric"], *(str(row[c]) for c in ("cell", "against") if c in row)]),
                float(row["difference"]), float(row["low"]), float(row["high"]), int(row["n"]))
        for _, row in e.rows(table, **where).iterrows() if row["metric"] in metrics
    ]  # fmt: skip


def chains_ratio(e: Evidence) -> list[Finding]:
    """A ratio of two means, with the bounds that their intervals allow at worst."""
    ours, ifr = (e.mean(m, "table1_ruler", method=m, cell="chains", metric="recovery") for m in ("flashtrace", "ifr"))
    paper = min(paper_value(1, "flashtrace", c, "recovery") / paper_value(1, "ifr", c, "recovery") for c in VT_CELLS)
    if ifr.low <= 0:
        raise Missing("recovery of IFR on chains that differs from 0")
    return [Finding("FlashTrace's recovery over IFR's", ours.value / ifr.value, ours.low / ifr.high,
                    ours.high / ifr.low, n=min(ours.n, ifr.n), paper=paper)]  # fmt: skip


def bins(e: Evidence) -> list[Finding]:
    """In each bin of length: the best baseline's MAS minus FlashTrace's, with the bounds of both at their worst."""
    table = e.rows("fig5_by_length", metric="mas")
    found = []
    for length, part in table[table["method"].isin([*BASELINES, "flashtrace"])].groupby("length"):
        rows = part.set_index("method")
        if "flashtrace" not in rows.index or len(rows) < 2:
            continue
        ours, others = rows.loc["flashtrace"], rows.drop("flashtrace")
        found.append(
            Finding(f"{length:g} tokens", float(others["mean"].min() - ours["mean"]),
                    float(others["low"].min(skipna=False) - ours["high"]),
                    float(others["high"].min(skipna=False) - ours["low"]),
                    n=int(part["n"].min()))
        )  # fmt: skip
    return found


def series(table: str, key: str, prefix: str = "", **where: object) -> Callable[[Evidence], list[Finding]]:
    """Means in the order of a column."""
    return lambda e: [
        Finding(f"{prefix}{row[key]}", float(row["mean"]), float(row["low"]), float(row["high"]), int(row["n"]))
        for _, row in sorted(e.rows(table, **where).iterrows(), key=lambda pair: _order(pair[1][key]))
    ]


def _order(value: object) -> float:
    """Number at the end of a cell's name: hotpotqa_1024 stands after hotpotqa_512."""
    return float(str(value).rpartition("_")[2])


def gain(e: Evidence) -> list[Finding]:
    """What the first recursive hop gains in recovery."""
    numbers = [e.number("recursion_recovery", c, K=1) for c in (*GAIN, "n")]
    return [Finding("recovery, K = 1 minus K = 0", *numbers[:3], int(numbers[3]))]


def rollout(e: Evidence) -> list[Finding]:
    """FlashTrace minus the rollout; what the paper calls a match is a loss no larger than its own (Table 3)."""
    e.table("table3_rollout")
    found = []
    for metric in ("rise", "mas"):
        ours, theirs = (paper_value(3, method, "morehopqa", metric) for method in ("flashtrace", "rollout"))
        where = {"table": "table3_rollout", "cell": "morehopqa", "method": "rollout", "metric": metric}
        found.append(e.difference(_label("rollout", metric), PAIRS, paper=round(ours - theirs, 6), **where))
    return found


def rollout_time(e: Evidence) -> list[Finding]:
    """Share of the rollout's time that is saved, sample by sample."""
    paper = text_value("rollout_time_saved")
    return [e.mean("share of the time saved", "table3_agreement", quantity="time saved", paper=paper)]


def trend(e: Evidence) -> list[Finding]:
    """A rank correlation, with the interval that Fisher's transformation gives it (Bonett and Wright's error)."""
    row = {"method": "attnlrp", "hop": 0, "share": "share"}
    rho, n = e.number("fig1a_trend", "rho", **row), int(e.number("fig1a_trend", "n", **row))
    low, high = rank_correlation_interval(rho, n)
    return [Finding("Spearman's correlation with |T|, AttnLRP", rho, low, high, n=n)]


def mass(quantity: str) -> Callable[[Evidence], list[Finding]]:
    """Change of a quantity of `ablations.mass_shift` from hop 0 to hop 1, for each data set that it is measured on."""
    return lambda e: [
        Finding(row.data, row.change, row.change_low, row.change_high, int(row.n))
        for row in e.rows("fig7_mass_shift", quantity=quantity, hop=1).itertuples()
    ]


def mass_at_first(e: Evidence) -> list[Finding]:
    """Share of hop 0 on T minus that on I, with the bounds of both at their worst."""
    found = []
    for data, part in e.rows("fig7_mass_shift", hop=0).groupby("data", sort=False):
        t, i = (part.set_index("quantity").loc[quantity] for quantity in ("reasoning", "prompt"))
        found.append(Finding(data, float(t["mean"] - i["mean"]), float(t["low"] - i["high"]),
                             float(t["high"] - i["low"]), int(min(t["n"], i["n"]))))  # fmt: skip
    return found


def choices(e: Evidence) -> list[Finding]:
    """Recovery under the other reading of each open choice minus that under the paper's."""
    return [Finding(f"recovery, {row.choice}", row.difference, row.low, row.high, int(row.n))
            for row in e.rows("questions_ranked", metric="recovery").itertuples()]  # fmt: skip


def causal(e: Evidence) -> list[Finding]:
    """How many more answers change with the top sentence than with one drawn by lot."""
    row = e.row("questions_causal", masked="random")
    return [Finding("answers changed, the top sentence's share minus that of one by lot",
                    *(float(row[c]) for c in ("more", "more_low", "more_high")), int(row["n"]))]  # fmt: skip
