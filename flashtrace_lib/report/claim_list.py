"""The claims of the paper, from its abstract to its appendix: what is claimed, what is measured, which rule decides."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..groups import ALL
from . import claim_rules as rules
from .claim_efficiency import EFFICIENCY
from .claim_evidence import Evidence
from .claim_paper import IN_THE_PAPER
from .claim_rules import Finding, Missing
from .claim_types import Claim
from .paper_numbers import NIAH_CELLS, RULER_CELLS, VT_CELLS, paper_value
from .style import HIGHER_IS_BETTER, method_style

BASELINES = ("perturbation", "reagent", "clp", "ifr", "attnlrp")
GROUPS = ("needles", "chains")
BEYOND = "beyond the paper"


def _label(method: str, metric: str, what: str = "") -> str:
    return f"{metric.replace('_', '-')} against {method_style(method).label}{what and f', {what}'}"


def _against(table: str, cell: str, metrics: tuple[str, ...], methods: tuple[str, ...] = BASELINES) -> Callable:
    """FlashTrace minus each method, paired; methods that a profile does not run are left out."""

    def found(e: Evidence) -> list[Finding]:
        rows = e.rows("claims_paired", table=table, cell=cell)
        ran = [method for method in methods if method in set(rows["method"])]
        if not ran:
            raise Missing(f"{table}.csv, cell {cell}, {method_style(methods[0]).label}")
        shared = {"table": table, "cell": cell}
        return [
            e.difference(_label(method, metric), "claims_paired", method=method, metric=metric, **shared)
            for metric in metrics for method in ran
        ]  # fmt: skip

    return found


def _groups(metric: str) -> Callable[[Evidence], list[Finding]]:
    """FlashTrace minus IFR in both groups of RULER cells."""
    return lambda e: [e.difference(group, "ruler_paired_groups", cell=group, metric=metric) for group in GROUPS]


def _chance(table: str, metrics: tuple[str, ...]) -> Callable[[Evidence], list[Finding]]:
    """FlashTrace minus the ranking by lot, signed so that positive is better."""

    def found(e: Evidence) -> list[Finding]:
        differences = [e.difference(metric, table, method="flashtrace", metric=metric) for metric in metrics]
        return [f if f.name == "recovery" else Finding(f.name, -f.value, -f.high, -f.low, f.n) for f in differences]

    return found  # fmt: skip


def _paired(table: str, metrics: tuple[str, ...], cells: tuple[str, ...] = (), **where: str) -> Callable:
    """Rows of a table of paired differences."""
    return lambda e: [
        e.difference(" ".join(filter(None, (metric, cell))), table, metric=metric, **({"cell": cell} if cell else {}),
                     **where)
        for cell in cells or ("",)
        for metric in metrics
    ]  # fmt: skip


def _all_rows(table: str, metrics: tuple[str, ...], **where: object) -> Callable[[Evidence], list[Finding]]:
    """Every row of a table of paired differences that has one of the metrics."""
    return lambda e: [
        Finding(" ".join([row["metric"], *(str(row[c]) for c in ("cell", "against") if c in row)]),
                float(row["difference"]), float(row["low"]), float(row["high"]), int(row["n"]))
        for _, row in e.rows(table, **where).iterrows() if row["metric"] in metrics
    ]  # fmt: skip


def _chains_ratio(e: Evidence) -> list[Finding]:
    ours = {m: e.number("table1_ruler", "mean", method=m, cell="chains", metric="recovery")
            for m in ("flashtrace", "ifr")}  # fmt: skip
    paper = min(paper_value(1, "flashtrace", c, "recovery") / paper_value(1, "ifr", c, "recovery") for c in VT_CELLS)
    n = int(e.number("table1_ruler", "n", method="ifr", cell="chains", metric="recovery"))
    return [Finding("FlashTrace's recovery over IFR's", ours["flashtrace"] / ours["ifr"], n=n, paper=paper)]


def _bins(e: Evidence) -> list[Finding]:
    """In each bin of length: the best baseline's MAS minus FlashTrace's."""
    table = e.rows("fig5_by_length", metric="mas")
    found = []
    for length, part in table[table["method"].isin([*BASELINES, "flashtrace"])].groupby("length"):
        means = part.set_index("method")["mean"]
        margin = float(means.drop("flashtrace").min() - means["flashtrace"])
        found.append(Finding(f"{length:g} tokens", margin, n=int(part["n"].min())))
    return found


def _series(table: str, key: str, prefix: str = "", **where: object) -> Callable[[Evidence], list[Finding]]:
    """Means in the order of a column."""
    return lambda e: [
        Finding(f"{prefix}{row[key]}", float(row["mean"]), float(row["low"]), float(row["high"]), int(row["n"]))
        for _, row in sorted(e.rows(table, **where).iterrows(), key=lambda pair: _order(pair[1][key]))
    ]


def _order(value: object) -> float:
    """Number at the end of a cell's name: hotpotqa_1024 stands after hotpotqa_512."""
    return float(str(value).rpartition("_")[2])


def _hops(e: Evidence) -> list[Finding]:
    return [
        Finding(f"K = {k}", *(e.number("recursion_recovery", c, K=k) for c in ("recovery", "low", "high")),
                int(e.number("recursion_recovery", "n", K=k)))
        for k in (1, 2, 3)
    ]  # fmt: skip


def _gain(e: Evidence) -> list[Finding]:
    numbers = [e.number("recursion_recovery", c, K=1) for c in ("gain", "gain_low", "gain_high", "n")]
    return [Finding("recovery, K = 1 minus K = 0", *numbers[:3], int(numbers[3]))]


def _rollout_loss(e: Evidence) -> list[Finding]:
    found = []
    for metric, paper in (("rise", 0.102), ("mas", 0.064)):
        ours = {m: e.number("table3_rollout", "mean", method=m, cell="morehopqa", metric=metric)
                for m in ("flashtrace", "rollout")}  # fmt: skip
        n = int(e.number("table3_rollout", "n", method="rollout", cell="morehopqa", metric=metric))
        found.append(
            Finding(f"relative increase of {metric}", ours["flashtrace"] / ours["rollout"] - 1, n=n, paper=paper)
        )
    return found


def _trend(e: Evidence) -> list[Finding]:
    row = {"method": "attnlrp", "hop": 0, "share": "share"}
    rho, n = e.number("fig1a_trend", "rho", **row), int(e.number("fig1a_trend", "n", **row))
    return [Finding("Spearman's correlation with |T|, AttnLRP", rho, n=n)]


def _mass(**quantities: str) -> Callable[[Evidence], list[Finding]]:
    """Shifts of the mass in every store that has several hops: quantities of `claim_tables.mass_shift`, by label."""
    stores = {"recursion": "RULER", "morehopqa": "MoreHopQA"}
    return lambda e: [
        Finding(f"{stores[row.store]} {label.replace('_', ' ')}".strip(), row.difference, row.low, row.high, int(row.n))
        for label, quantity in quantities.items()
        for row in e.rows("claims_mass", quantity=quantity).itertuples()
    ]


def _ahead(metric: str, cells: tuple[str, ...] = RULER_CELLS, methods: tuple[str, ...] = BASELINES) -> str:
    """In how many cells of the paper's Table 1 FlashTrace is ahead of these methods, or level with them."""
    sign = 1 if HIGHER_IS_BETTER[metric] else -1
    ahead = [
        all(sign * paper_value(1, "flashtrace", c, metric) >= sign * paper_value(1, m, c, metric) for m in methods)
        for c in cells
    ]
    return f"{sum(ahead)} of {len(ahead)} cells"


PILOT = (
    Claim("mass_grows", "The share of the mass on the reasoning grows with its length", "3.2, Fig. 1a",
          "“grows proportionally”", "01_pilot_study", rules.at_least(0.9, "the rank correlation"), _trend),
    Claim("mass_levels", "The reasoning takes over 90 % of the mass, 80 % when it is short", "Fig. 1a", "80 % → > 90 %",
          "01_pilot_study", rules.untestable("the paper gives no lengths for its two shares")),
    Claim("recovery_falls", "Reasoning makes standard methods recover less of the evidence", "3.2, Fig. 1b",
          "26 % → < 10 %", "01_pilot_study", rules.below_zero("the paired change"),
          lambda e: [e.difference(f"recovery, {method_style(m).label}", "fig1b_change", method=m, metric="recovery",
                                  paper=-0.16 if m == "perturbation" else math.nan)
                     for m in ("perturbation", "ifr", "attnlrp")]),
)  # fmt: skip

MAIN = (
    Claim("ruler_recovery", "FlashTrace recovers more evidence than IFR, on needles and on chains", "5.1, Table 1",
          _ahead("recovery", NIAH_CELLS + VT_CELLS, ("ifr",)), "05_ruler",
          rules.above_zero(), _groups("recovery")),
    Claim("ruler_recovery_all", "FlashTrace recovers more evidence than every baseline", "5.1, Table 1",
          _ahead("recovery"), "05_ruler", rules.above_zero(), _against("table1_ruler", ALL, ("recovery",))),
    Claim("chains_ratio", "On chains FlashTrace recovers three times what IFR does, or more", "Table 1", "3.0 to 5.1 ×",
          "05_ruler", rules.at_least_the_papers("the ratio"), _chains_ratio),
    Claim("ruler_rise", "RISE of FlashTrace is below that of every baseline on RULER", "5.1, Table 1",
          _ahead("rise"), "05_ruler", rules.below_zero(), _against("table1_ruler", ALL, ("rise",))),
    Claim("ruler_mas", "MAS of FlashTrace is below that of every baseline on RULER", "5.1, Table 1", _ahead("mas"),
          "05_ruler", rules.below_zero(), _against("table1_ruler", ALL, ("mas",))),
    Claim("hotpotqa_margin", "FlashTrace is below IFR on HotpotQA, where the margin is most pronounced", "5.1, Table 1",
          "RISE 0.033 / 0.074", "05_ruler", rules.below_zero(),
          _paired("ruler_paired", ("rise", "mas"), ("hotpotqa",))),
    Claim("math", "FlashTrace has the lowest RISE and MAS on MATH (GSM8K, see below)", "5.1, Table 2",
          "0.348, 0.446", "06_math", rules.below_zero(), _against("table2_math", "gsm8k", ("rise", "mas"))),
    Claim("morehopqa", "FlashTrace has the lowest RISE and MAS on MoreHopQA", "5.1, Table 2", "0.128, 0.205",
          "07_morehopqa", rules.below_zero(), _against("table2_morehopqa", "morehopqa", ("rise", "mas"))),
    Claim("length_level", "MAS of FlashTrace is stable across lengths of the reasoning", "5.1, Fig. 5", "–", "06_math",
          rules.level(), _series("fig5_by_length", "length", "|T| = ", metric="mas", method="flashtrace")),
    Claim("length_ahead", "FlashTrace has the lowest MAS at every length of the reasoning", "5.1, Fig. 5", "–",
          "06_math", rules.at_least(0, "the margin over the best baseline"), _bins),
    Claim("rollout_matched", "FlashTrace matches the exhaustive rollout", "5.2, Table 3", "RISE +0.012, MAS +0.012",
          "07_morehopqa", rules.holds_zero(), _against("table3_rollout", "morehopqa", ("rise", "mas"), ("rollout",))),
    Claim("rollout_loss", "What it loses against the rollout is small", "Table 3", "RISE +10.2 %, MAS +6.4 %",
          "07_morehopqa", rules.at_most_the_papers("the loss"), _rollout_loss),
    Claim("rollout_time", "FlashTrace saves most of the rollout's time", "Table 3", "93.6 %", "07_morehopqa",
          rules.at_least_the_papers("the share of time saved"),
          lambda e: [Finding("time saved (medians)", 1 - e.number("table3_seconds", "median", method="flashtrace")
                             / e.number("table3_seconds", "median", method="rollout"), paper=0.936)]),
    Claim("aider", "On generated code FlashTrace is below IFR on the last line and on all tokens", "5.2, Table 4",
          "0.013 / 0.71", "08_aider", rules.below_zero(),
          _against("table4_aider", "exercism", ("rise", "mas"), ("ifr_last_line", "ifr"))),
    Claim("second_model", "The gains hold for a second model", "5.2, Table 5", "RISE 0.171 / 0.206",
          "09_generalisation", rules.below_zero(), _all_rows("table5_paired", ("rise", "mas")),
          note="the paper's is of another family; where both models are the embedded one's, this is none"),
)  # fmt: skip

RECURSION = (
    Claim("hop0_on_t", "Hop 0 puts more mass on the reasoning than on the input", "4.3, Fig. 3", "–", "03_recursion",
          rules.above_zero("mass on T minus mass on I"), _mass(_="reasoning over input")),
    Claim("hop1_leaves_t", "From hop 0 to hop 1 the mass on the reasoning decreases", "H, Fig. 7", "–", "03_recursion",
          rules.below_zero("the paired change"), _mass(of_all="reasoning", of_I_and_T="reasoning of both")),
    Claim("hop1_to_input", "From hop 0 to hop 1 mass shifts to the input", "H, Fig. 7", "–", "03_recursion",
          rules.above_zero("the paired change"), _mass(_="input")),
    Claim("hop1_earlier", "Within the reasoning the mass shifts to earlier tokens", "H", "–", "03_recursion",
          rules.below_zero("the paired change of the mean place in T"), _mass(_="place")),
    Claim("one_hop", "A single recursive hop improves faithfulness", "abstract, 5", "–", "03_recursion",
          rules.above_zero("the paired gain"), _gain),
    Claim("one_hop_ruler", "One hop lowers RISE and MAS on RULER", "abstract, 5", "–", "10_ablations",
          rules.below_zero("K = 1 minus K = 0"), _paired("table7_ruler", ("rise", "mas"), (ALL,))),
    Claim("hops_metrics", "One hop lowers RISE and MAS on MoreHopQA", "H, Table 7", "+0.001, −0.004", "10_ablations",
          rules.below_zero("K = 1 minus K = 0"),
          _against("table7_hops", "morehopqa", ("rise", "mas"), ("flashtrace_k0",))),
    Claim("hops_stable", "Further hops change little", "H, Table 7", "RISE 0.128 to 0.133", "03_recursion",
          rules.level(), _hops),
)  # fmt: skip

APPENDIX = (
    Claim("unfiltered", "The lead over IFR does not need the filter of correct answers", "K.1, Table 8",
          "0.036 / 0.059", "10_ablations", rules.below_zero(), _all_rows("table8_paired", ("rise", "mas"))),
    Claim("longer", "RISE of FlashTrace falls as the context grows", "K.2, Table 8", "0.036 → 0.025", "10_ablations",
          rules.falling(), _series("table8_unfiltered", "cell", method="flashtrace", metric="rise")),
    Claim("last_token", "The last token alone is a worse target, on HotpotQA", "M.1, Table 10", "RISE 0.033 / 0.214",
          "10_ablations", rules.below_zero(),
          _against("table1_ruler", "hotpotqa", ("rise", "mas"), ("last_token",))),
    Claim("last_token_ruler", "The last token alone is a worse target, on all cells of Table 1", "M.1", "–", "05_ruler",
          rules.below_zero(), _against("table1_ruler", ALL, ("rise", "mas"), ("last_token",))),
    Claim("mean_pooling", "Averaging the rows of single tokens recovers fewer evidence tokens", "M.1", "see Table 1",
          "05_ruler", rules.above_zero(), _against("table1_ruler", ALL, ("recovery",), ("mean_pooling",))),
    Claim("sentences", "Spans of sentences are at least as faithful as spans of tokens", "M.2", "not measured",
          "10_ablations", rules.reaches_down_to(0, "sentences minus tokens"),
          _all_rows("appendix_m_paired", ("rise", "mas"), method="sentence")),
    Claim("failures", "Diffuse evidence and structural tokens are where it fails", "N", "not measured", "10_ablations",
          rules.untestable("the paper describes them and defines no measurement")),
)  # fmt: skip

CONTROLS = (
    Claim("r_precision", "The lead in recovery does not hang on the cut at a tenth of the input", BEYOND, "–",
          "05_ruler", rules.above_zero(), _groups("r_precision")),
    Claim("chance_ruler", "FlashTrace beats a ranking by lot on RULER", BEYOND, "–", "05_ruler",
          rules.above_zero("the lead"), _chance("ruler_against_random", ("recovery", "rise", "mas"))),
    Claim("chance_math", "FlashTrace beats a ranking by lot on mathematics", BEYOND, "–", "06_math",
          rules.above_zero("the lead"), _chance("math_against_random", ("rise", "mas"))),
    Claim("chance_morehopqa", "FlashTrace beats a ranking by lot on MoreHopQA", BEYOND, "–", "07_morehopqa",
          rules.above_zero("the lead"), _chance("morehopqa_against_random", ("recovery", "rise", "mas"))),
)  # fmt: skip

CLAIMS: tuple[Claim, ...] = (*EFFICIENCY, *PILOT, *MAIN, *RECURSION, *APPENDIX, *CONTROLS, *IN_THE_PAPER)
