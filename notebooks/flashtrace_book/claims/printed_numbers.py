"""The numbers behind claims that the paper's own numbers, or its published code and traces, confirm or contradict."""

from __future__ import annotations

from typing import Any

from ..paper_numbers import PAPER, paper_value
from .rules import Finding

STEPS = 20  # of the deletion curve (appendix F)


def stated(name: str, value: float, paper: float) -> list[Finding]:
    """A number read in the published code or traces, beside the paper's."""
    return [Finding(name, value, paper=paper)]


def published(numbers: list[dict[str, Any]]) -> list[Finding]:
    """Numbers out of the authors' public files, as fields of `Finding`; the claim's note names file and commit."""
    return [Finding(**number) for number in numbers]


def lowest_printed(metric: str) -> list[Finding]:
    """The lowest value of a metric in any table of the paper."""
    values = [(value, table) for table, rows in PAPER.items() for (_, _, m), value in rows.items() if m == metric]
    value, table = min(values)
    return [Finding(f"lowest {metric.upper()} printed (Table {table})", value)]


def masked_of_remaining() -> list[Finding]:
    """Share of the input that is masked after all steps if each step masks 5 % of the remaining tokens."""
    return [Finding(f"share masked after {STEPS} steps", 1 - 0.95**STEPS, paper=1)]


def ifr_over_attnlrp(published: list[dict[str, Any]]) -> list[Finding]:
    """Table 8: seconds of IFR over those of AttnLRP, the cheapest method there; before it what was published later."""
    return [Finding(**number) for number in published] + [
        Finding(
            f"IFR's seconds over AttnLRP's, {n} tokens",
            paper_value(8, "ifr", f"hotpotqa_{n}", "seconds") / paper_value(8, "attnlrp", f"hotpotqa_{n}", "seconds"),
        )
        for n in (2048, 4096)
    ]


def cells_ahead(metric: str, baseline: str = "ifr", table: int = 1) -> list[Finding]:
    """Share of a table's cells in which FlashTrace is below a baseline, by the paper's own numbers."""
    cells = [cell for method, cell, m in PAPER[table] if (method, m) == ("flashtrace", metric)]
    values = [[paper_value(table, method, cell, metric) for cell in cells] for method in ("flashtrace", baseline)]
    ahead = sum(ours < theirs for ours, theirs in zip(*values, strict=True))
    name = f"share of the {len(cells)} cells of Table {table} in which its {metric.upper()} is lower"
    return [Finding(name, ahead / len(cells))]


def one_hop_minus_none() -> list[Finding]:
    """Table 7: the change of RISE and MAS with the first recursive hop."""
    return [
        Finding(
            f"{metric.upper()}, one hop minus none (Table 7)",
            paper_value(7, "flashtrace_k1", "morehopqa", metric) - paper_value(7, "flashtrace_k0", "morehopqa", metric),
        )
        for metric in ("rise", "mas")
    ]


# The functions that claims.yaml may name under "printed".
PRINTED = {
    f.__name__: f
    for f in (
        stated, published, lowest_printed, masked_of_remaining, cells_ahead, ifr_over_attnlrp, one_hop_minus_none,
    )
}  # fmt: skip
