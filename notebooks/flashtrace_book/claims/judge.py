"""A verdict by rule on every claim of the paper, from stored tables: ``figures/claims.md`` and ``claims.json``.

No model is needed: verdicts follow from the stored tables alone. A claim that fails is reported as failing.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pandas as pd

from flashtrace_lib import files
from flashtrace_lib.metrics.intervals import MIN_SAMPLES

from .. import paths
from ..figures.style import method_style
from ..profiles import load_profile, profile_names
from ..run import READABLE, Saved
from .claim import CLAIMS, Claim
from .evidence import Evidence
from .responses import LEGEND, mark_of, marked
from .robustness import depends_on_the_metric, summary
from .rules import DEPENDS, MISSING, REPRODUCED, VERDICTS, Missing

OWN = "the paper"  # stands for the profile of a claim that is judged by the paper's own publications
NO_EVIDENCE = ("smoke",)  # profiles that check that the book runs
_SHORT = re.compile(r"[\d.]*|\[[\d.]+\]\(.*\)")  # a number, or a link of one
_MANY = 4  # the most findings that a cell of the table shows in full


def profiles_with_tables() -> list[str]:
    """Profiles that have generated tables and are meant as evidence."""
    return [name for name in profile_names() if name not in NO_EVIDENCE and paths.figures_dir(name).is_dir()]


def judge(claim: Claim, profile: str = "", evidence: Evidence | None = None) -> dict[str, Any]:
    """Verdict on one claim, JSON-ready.

    Parameters
    ----------
    claim : Claim
    profile : str
    evidence : Evidence, optional
        The profile's, if it has been read before.

    Returns
    -------
    dict
        ``verdict``, ``missing`` (the result that does not exist yet, else ``""``) and ``findings``: each a `Finding` as
        a dict, with ``counts`` and ``holds``, which is None if the rule is about all of them together. Where the claim
        is a comparison whose records are stored, ``checked``: see `robustness.robustness`. ``marks``: see
        `responses.marked`.
    """
    evidence = evidence or Evidence(profile)
    try:
        findings, missing = claim.findings(evidence), ""
    except Missing as error:
        findings, missing = [], str(error)
    verdict = claim.rule.verdict(findings)
    checked = _checked(claim, evidence) if findings else None
    if verdict == REPRODUCED and checked and depends_on_the_metric(checked):
        verdict = DEPENDS
    one_by_one = claim.rule.holds is not None
    shown = [
        f.to_dict() | {"counts": f.counts, "holds": (f.counts and claim.rule.holds(f)) if one_by_one else None}
        for f in findings
    ]
    marks = marked(evidence, claim.samples) if findings else {}
    optional = {"checked": checked, "marks": marks}
    return {"verdict": verdict, "missing": missing, "findings": shown} | {k: v for k, v in optional.items() if v}


def _checked(claim: Claim, evidence: Evidence) -> dict[str, Any] | None:
    """The claim's checks; None where it has none, or the profile no records for them."""
    try:
        return None if claim.checks is None else claim.checks(evidence)
    except Missing:
        return None


def judge_all(profiles: Iterable[str] | None = None, claims: Iterable[Claim] = CLAIMS) -> list[dict[str, Any]]:
    """Verdicts on all claims, JSON-ready.

    Parameters
    ----------
    profiles : iterable of str, optional
        Default: `profiles_with_tables`.
    claims : iterable of Claim

    Returns
    -------
    list of dict
        One per claim: ``key, claim, where, paper, notebook, rule, note`` and ``verdicts``, a dict from profile to the
        result of `judge`; from ``OWN`` for a claim that is judged by the paper's own publications.
    """
    evidence = {name: Evidence(name) for name in (profiles_with_tables() if profiles is None else profiles)}
    return [
        {
            "key": claim.key, "claim": claim.text, "where": claim.where, "paper": claim.paper,
            "notebook": claim.notebook, "rule": claim.rule.text, "note": claim.note,
            "verdicts": {OWN: judge(claim)} if claim.of_the_paper
            else {name: judge(claim, name, found) for name, found in evidence.items()},
        }
        for claim in claims
    ]  # fmt: skip


def count_table(judged: list[dict[str, Any]]) -> pd.DataFrame:
    """Number of claims with each verdict, one row per profile (``OWN``: claims judged by the paper itself)."""
    counts: dict[str, Counter] = {}
    for claim in judged:
        for profile, found in claim["verdicts"].items():
            counts.setdefault(profile, Counter())[found["verdict"]] += 1
    return pd.DataFrame([{"profile": p, **{v: c[v] for v in VERDICTS}} for p, c in counts.items()])


def counts_by_verdict(judged: list[dict[str, Any]]) -> pd.DataFrame:
    """`count_table` for readers: a row per verdict, a column per profile."""
    return count_table(judged).set_index("profile").T.rename_axis("verdict").rename_axis(columns=None).reset_index()


def verdict_table(judged: list[dict[str, Any]], profile: str) -> pd.DataFrame:
    """The verdicts of one profile for readers: ``claim, verdict, paper, ours, notebook``."""
    rows = []
    for claim in judged:
        if profile in claim["verdicts"]:
            found = claim["verdicts"][profile]
            rows.append({
                "claim": claim["claim"], "verdict": found["verdict"], "paper": _paper(claim),
                "ours": _ours(found, claim), "notebook": claim["notebook"],
            })  # fmt: skip
    return pd.DataFrame(rows, columns=["claim", "verdict", "paper", "ours", "notebook"])


def write(judged: list[dict[str, Any]] | None = None) -> Saved:
    """Write ``claims.md`` and ``claims.json`` under the root of the figures.

    Parameters
    ----------
    judged : list of dict, optional
        Default: `judge_all`.
    """
    judged = judge_all() if judged is None else judged
    contents = {"md": markdown(judged), "json": json.dumps(judged, indent=1, ensure_ascii=False) + "\n"}
    saved = Saved(paths.figures_root() / f"claims.{suffix}" for suffix in contents)
    for path, text in zip(saved, contents.values(), strict=True):
        files.write_text(path, text)
    return saved


def markdown(judged: list[dict[str, Any]]) -> str:
    """The verdicts as a page: counts, a table per profile, the rules."""
    counts, shown = count_table(judged), counts_by_verdict(judged)
    rule_of = {text: f"R{i}" for i, text in enumerate(dict.fromkeys(c["rule"] for c in judged), 1)}
    blocks = [
        "# Claims of the paper, and what was found",
        "Every verdict is computed from the stored results by the rule that stands beside it (R1, R2, …, at the end). "
        "*Ours* is FlashTrace minus the method named, with its 95 % interval, unless it says otherwise; RISE and MAS "
        f"are better when lower. Means of fewer than {MIN_SAMPLES} samples are shown and not judged. Seconds and "
        "memory are medians of one to three runs on one machine, without an interval. "
        + LEGEND
        + ". A verdict is about this model, these "
        "lengths and these samples; it speaks against the paper on Qwen3-8B only where the numbers are its own.",
        table(shown.columns, shown.itertuples(index=False)),
    ]
    for profile in counts["profile"]:
        title = "The paper and its published code" if profile == OWN else f"Profile {profile}"
        blocks += [f"## {title}", *setting(profile), *_profile_table(judged, profile, rule_of)]
    blocks += ["## Rules", "\n".join(f"* {name}: {text}" for text, name in rule_of.items())]
    blocks.append(
        "Where a rule is about single numbers: all of them, *reproduced*; some, *partly*; none, *not reproduced* if "
        "the opposite holds of one over its whole interval, else *undecided*. A claim that compares methods is checked "
        "under other metrics, without each cell, and against IFR with the metric's own target; where the rule holds "
        "and a check has the opposite sign over its whole interval, the verdict is *depends on the metric*."
    )
    return "\n\n".join(blocks) + "\n"


def _profile_table(judged: list[dict[str, Any]], profile: str, rule_of: dict[str, str]) -> list[str]:
    """What one profile has measured as a table, and how many claims are left; ``rule_of`` names the rules."""
    rows, left = [], 0
    for number, claim in enumerate(judged, 1):
        if profile in claim["verdicts"]:
            found, notebook = claim["verdicts"][profile], claim["notebook"]
            if found["verdict"] == MISSING:
                left += 1
                continue
            verdict = f"**{found['verdict']}**{mark_of(found.get('marks', {}))} ({rule_of[claim['rule']]})"
            chapter = notebook.split("_")[0]
            link = f"[{chapter}](../notebooks/{notebook}.ipynb)"
            rows.append([number, claim["claim"], verdict, _paper(claim), _ours(found, claim), link])
    measured = [table(["", "claim", "verdict", "paper", "ours", "notebook"], rows)] if rows else []
    return measured + ([f"Not measured in this profile: {left} of {left + len(rows)} claims."] if left else [])


def setting(profile: str) -> list[str]:
    """How a profile differs from the paper's setting, as paragraphs; none for an unknown profile."""
    if profile not in profile_names():
        return []
    known = load_profile(profile)
    model = READABLE.get(known.model, f"`{known.model}`")
    methods = [
        f"{method_style(method).label} with {', '.join(f'{option} {value}' for option, value in options.items())}"
        for method, options in known.method_options.items()
    ]
    changed = f", but {', '.join(methods)}" if methods else ""
    return [f"The model is {model}; the paper's is Qwen3-8B. Methods run with the library's defaults{changed}."]


def _paper(claim: dict[str, Any]) -> str:
    return f"{claim['where']}: {claim['paper']}"


def _ours(found: dict[str, Any], claim: dict[str, Any]) -> str:
    """Our numbers for a cell of the table; of many, a summary."""
    if found["missing"]:
        return f"{MISSING}: {found['missing']}"
    if not found["findings"]:
        return f"– ({claim['rule']})"
    lines = [entry(finding) for finding in found["findings"]]
    if len(lines) > _MANY and found["findings"][0]["holds"] is not None:
        lines = _many(found["findings"])
    lines += [f"({summary(found['checked'])})"] if found.get("checked") else []
    lines += [f"{mark} {', '.join(cells)}" for mark, cells in found.get("marks", {}).items()]
    note = [f"*{claim['note']}*"] if claim["note"] else []
    return "<br>".join(lines + note)


def _many(findings: list[dict[str, Any]]) -> list[str]:
    """How many findings hold, and the largest that do not; if all hold, the closest to 0."""
    failing = [finding for finding in findings if not finding["holds"]]
    head = f"{len(findings) - len(failing)} of {len(findings)} hold"
    if not failing:
        closest = min(findings, key=lambda f: math.inf if f["value"] is None else abs(f["value"]))
        return [f"{head}; the closest:", entry(closest)]
    largest = sorted(failing, key=lambda f: -abs(f["value"] or 0))[:_MANY]
    return [f"{head}; the largest that do not:", *map(entry, largest)]


def how_many_hold(findings: list[dict[str, Any]]) -> str:
    """``2 of 3 numbers hold``, of those that a verdict may depend on; the others, if any, are counted beside them."""
    counted = [finding for finding in findings if finding["counts"]]
    head = f"{sum(finding['holds'] for finding in counted)} of {len(counted)} numbers hold"
    others = len(findings) - len(counted)
    return f"{head}, {others} not judged" if others else head


def entry(finding: dict[str, Any]) -> str:
    """A finding as ``name: value [low, high], n = 10``, with − for minus and ∞ for a missing bound."""
    if finding["absent"]:
        return f"{finding['name']}: {MISSING}"
    text = f"{finding['name']}: {_number(finding['value'])}"
    if finding["low"] is not None and (finding["low"], finding["high"]) != (finding["value"],) * 2:
        text += f" [{_number(finding['low'])}, {_number(finding['high'])}]"
    text += f", n = {finding['n']}" if finding["n"] is not None else ""
    return text if finding["counts"] else f"{text} (not judged)"


def _number(value: float | None) -> str:
    return "∞" if value is None else re.sub("^-", "−", f"{value:.3g}")


def table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table in Markdown; columns that hold only numbers, or links of numbers, are aligned on the right."""
    columns, rows = list(columns), [list(row) for row in rows]
    right = [all(_SHORT.fullmatch(str(row[k])) for row in rows) for k in range(len(columns))]
    lines = [columns, ["---:" if short else "---" for short in right], *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
