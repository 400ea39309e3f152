"""The summary of the claims in README, between two marks: counts, and the most important rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flashtrace_lib import files

from . import judge
from .responses import mark_of
from .rules import MISSING

BEGIN, END = "<!-- claims: begin -->", "<!-- claims: end -->"
# The claims that readers ask about first; figures/claims.md has all.
HEADLINES = (
    "speedup", "naive_hops", "recovery_falls", "ruler_recovery", "r_precision", "ruler_rise", "morehopqa",
    "rollout_matched", "one_hop", "chance_ruler", "chance_math", "row_math",
)  # fmt: skip


def summary(judged: list[dict[str, Any]]) -> str:
    """Counts by profile, and the claims of ``HEADLINES`` with a verdict for every profile, in Markdown.

    A profile that measures none of ``HEADLINES`` has no column.

    Parameters
    ----------
    judged : list of dict
        From `judge.judge_all`, of all claims.
    """
    counts = judge.counts_by_verdict(judged)
    by_key = {claim["key"]: claim for claim in judged}
    profiles = [name for name in list(counts)[1:] if name != judge.OWN and _is_measured(name, by_key)]
    counts = counts[[name for name in counts if name in (list(counts)[0], *profiles, judge.OWN)]]
    rows = []
    for claim in (by_key[key] for key in HEADLINES):
        verdicts = claim["verdicts"]
        paper = f"{claim['where']}: {claim['paper']}"
        if judge.OWN in verdicts:  # one verdict, which no profile changes
            shown = [""] * len(profiles)
            paper += f"; **{verdicts[judge.OWN]['verdict']}**, by what the authors published"
        else:
            shown = [
                f"**{verdicts[name]['verdict']}**{mark_of(verdicts[name].get('marks', {}))}{_numbers(verdicts[name])}"
                for name in profiles
            ]
        rows.append([claim["claim"], *shown, paper])
    return "\n\n".join([
        judge.table(counts.columns, counts.itertuples(index=False)),
        judge.table(["claim", *profiles, "paper"], rows),
    ])  # fmt: skip


def _is_measured(profile: str, by_key: dict[str, dict[str, Any]]) -> bool:
    found = [by_key[key]["verdicts"].get(profile) for key in HEADLINES]
    return any(one is not None and one["verdict"] != MISSING for one in found)


def _numbers(found: dict[str, Any]) -> str:
    """A single number; of several, how many hold; of a series, its first and last."""
    findings = [finding for finding in found["findings"] if finding["counts"]]
    if not findings or found["verdict"] == MISSING:
        return ""
    if len(findings) == 1:
        return f"<br>{judge.entry(findings[0])}"
    if findings[0]["holds"] is None:
        return f"<br>{judge.entry(findings[0])}<br>… {judge.entry(findings[-1])}"
    return f"<br>{judge.how_many_hold(found['findings'])}"


def placed(text: str, section: str) -> str:
    """A page with the text between its marks replaced by the section.

    Raises
    ------
    ValueError
        If the page does not have each mark once, in order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in after or END in before + after:
        raise ValueError(f"the page needs one {BEGIN} and one {END} after it")
    return f"{before}{BEGIN}\n{section}\n{END}{after}"


def write_readme(judged: list[dict[str, Any]], path: Path | None = None) -> Path:
    """Put the summary of the claims into README; returns its path."""
    path = files.root() / "README.md" if path is None else path
    files.write_text(path, placed(path.read_text(encoding="utf-8"), summary(judged)))
    return path
