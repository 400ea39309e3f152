"""Where the paper disagrees with itself, or with the code and the traces that its authors have published."""

from __future__ import annotations

from functools import partial

from ..paper_numbers import PAPER, paper_value
from . import rules
from .claim import Claim
from .evidence import Evidence
from .rules import Finding, Rule

STEPS = 20  # groups of the deletion curve (appendix F)
_TRACES = "read off the 100 traces published for the row: items of GSM8K, whose RISE and MAS are 0.3484 and 0.4456"
_CODE = "read in the authors' published code"


def least_rise() -> float:
    """The floor of RISE on the grid: trapezoids of a response that is gone at the first step, 1 / 2K."""
    return 1 / (2 * STEPS)


def least_printed_mas() -> float:
    """The floor of MAS as appendix F prints it, for scores in descending order.

    RISE + |f − c| = max(c, 2f − c) is at least the cumulative share c, and the top k of N scores carry at least k/N of
    the mass: the mean over k = 1, …, K of k/K is (K + 1) / 2K.
    """
    return (STEPS + 1) / (2 * STEPS)


def masked_of_remaining() -> float:
    """Share of the input that is masked after all steps if each takes 5 % of what remains."""
    return 1 - 0.95**STEPS


def _lowest(metric: str) -> Finding:
    values = [(value, table) for table, rows in PAPER.items() for (_, _, m), value in rows.items() if m == metric]
    value, table = min(values)
    return Finding(f"lowest {metric.upper()} printed (Table {table})", value)


def _ifr_cost() -> list[Finding]:
    """Table 8: seconds of IFR over those of AttnLRP, the cheapest method there."""
    seconds = partial(paper_value, 8, metric="seconds")
    cells = {n: f"hotpotqa_{n}" for n in (2048, 4096)}
    ratios = {n: seconds("ifr", cell) / seconds("attnlrp", cell) for n, cell in cells.items()}
    return [Finding(f"IFR's seconds over AttnLRP's, {n} tokens", ratio) for n, ratio in ratios.items()]


def _one_hop() -> list[Finding]:
    changes = {metric: paper_value(7, "flashtrace_k1", "morehopqa", metric)
               - paper_value(7, "flashtrace_k0", "morehopqa", metric) for metric in ("rise", "mas")}  # fmt: skip
    return [Finding(f"{metric.upper()}, one hop minus none (Table 7)", change) for metric, change in changes.items()]


def _claim(key: str, text: str, where: str, paper: str, rule: Rule, findings, notebook: str, note: str = "") -> Claim:
    def found(evidence: Evidence) -> list[Finding]:
        return findings()

    return Claim(key, text, where, paper, notebook, rule, found, of_the_paper=True, note=note)


IN_THE_PAPER = (
    _claim("row_math", "The row MATH is measured on MATH", "5, Table 2", "100 samples of MATH",
           rules.equals_the_papers(), lambda: [Finding("of 100 published traces, problems of MATH", 0, paper=100)],
           "06_math", _TRACES),
    _claim("printed_mas", "The tables hold MAS as appendix F prints it", "F.2", "0.106 to 0.745",
           rules.at_least(least_printed_mas(), "MAS"), lambda: [_lowest("mas")], "11_metric_audit",
           "the printed formula cannot give less than (K + 1) / 2K"),
    _claim("printed_rise", "A RISE of 0.013 is possible where masking lowers the likelihood", "Table 4", "0.013",
           rules.at_least(least_rise(), "RISE"), lambda: [_lowest("rise")], "11_metric_audit",
           "by the trapezoids of the published code, twenty steps cannot give less than 1 / 2K"),
    _claim("remaining", "Masking 5 % of the remaining tokens a step masks the whole input in 20 steps", "F.2",
           "k = 0.05, 0.10, …, 1", rules.equals_the_papers(),
           lambda: [Finding("share masked after 20 steps", masked_of_remaining(), paper=1)], "11_metric_audit"),
    _claim("cheapest_baseline", "IFR, of which FlashTrace is 130 times as fast, is the most efficient baseline",
           "5.1, Table 8", "130 × over IFR", rules.at_most(1, "IFR's time over AttnLRP's"), _ifr_cost, "04_efficiency",
           "Table 8 is of short answers: there AttnLRP takes less time than IFR, and than FlashTrace; of other "
           "baselines at 5k tokens the paper prints no numbers"),
    _claim("who_wrote_t", "The model that is explained wrote the reasoning", "E.4", "Qwen3-8B",
           rules.equals_the_papers(), lambda: [Finding("parameters of the model asked, billions", 235, paper=8)],
           "06_math", _CODE),
    _claim("random_hundred", "The 100 samples are drawn at random", "E.4", "random 100", rules.equals_the_papers(),
           lambda: [Finding("drawn at random (1) or first accepted in file order (0)", 0, paper=1)], "06_math", _CODE),
    _claim("own_hop", "One hop significantly improves faithfulness", "H, Table 7", "RISE +0.001, MAS −0.004",
           rules.at_most(-0.001, "the paper's own change"), _one_hop, "10_ablations"),
)  # fmt: skip
