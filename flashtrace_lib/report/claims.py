"""Every claim of the paper beside what was measured, with a verdict by rule: ``figures/claims.md``, ``claims.json``.

No model is needed: verdicts follow from the stored tables alone. A claim that fails is reported as failing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pandas as pd

from .. import paths
from ..profiles import profile_names
from .claim_evidence import Evidence
from .claim_list import CLAIMS
from .claim_rules import MIN_SAMPLES, MISSING, VERDICTS, Missing
from .claim_types import Claim
from .output import Saved

NO_EVIDENCE = ("smoke",)  # profiles that check that the book runs
_MANY = 4  # findings that a cell of the table shows in full


def profiles_with_tables() -> list[str]:
    """Profiles that have generated tables and are meant as evidence."""
    return [name for name in profile_names() if name not in NO_EVIDENCE and paths.figures_dir(name).is_dir()]


def judge(claim: Claim, profile: str = "") -> dict[str, Any]:
    """Verdict on one claim, JSON-ready.

    Returns
    -------
    dict
        ``verdict``, ``missing`` (the result that is not there yet, else ``""``) and ``findings``: each a `Finding` as
        a dict, with ``holds``, None where the rule is about all of them together.
    """
    try:
        findings, missing = claim.findings(Evidence(profile)), ""
    except Missing as error:
        findings, missing = [], str(error)
    verdict = claim.rule.verdict(findings)
    shown = [f.to_dict() | {"holds": None if claim.rule.holds is None else claim.rule.holds(f)} for f in findings]
    return {"verdict": verdict, "missing": missing, "findings": shown}


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
        One a claim: ``key, claim, where, paper, notebook, rule, note`` and ``verdicts``, a dict of profile to what
        `judge` returns; under ``"paper"`` for a claim that is judged by what the paper itself prints.
    """
    profiles = list(profiles_with_tables() if profiles is None else profiles)
    return [
        {
            "key": claim.key, "claim": claim.text, "where": claim.where, "paper": claim.paper,
            "notebook": claim.notebook, "rule": claim.rule.text, "note": claim.note,
            "verdicts": {"paper": judge(claim)} if claim.of_the_paper else {p: judge(claim, p) for p in profiles},
        }
        for claim in claims
    ]  # fmt: skip


def count_table(judged: list[dict[str, Any]]) -> pd.DataFrame:
    """Number of claims of each verdict, a row a profile (``paper``: what the paper says about itself)."""
    counts: dict[str, Counter] = {}
    for claim in judged:
        for profile, found in claim["verdicts"].items():
            counts.setdefault(profile, Counter())[found["verdict"]] += 1
    return pd.DataFrame([{"profile": p, **{v: c[v] for v in VERDICTS}} for p, c in counts.items()])


def verdict_table(judged: list[dict[str, Any]], profile: str) -> pd.DataFrame:
    """What a reader wants of one profile: ``claim, paper, ours, verdict, notebook``."""
    rows = []
    for claim in judged:
        if profile in claim["verdicts"]:
            found = claim["verdicts"][profile]
            rows.append({
                "claim": claim["claim"], "paper": f"{claim['where']}: {claim['paper']}", "ours": _ours(found, claim),
                "verdict": found["verdict"], "notebook": claim["notebook"],
            })  # fmt: skip
    return pd.DataFrame(rows, columns=["claim", "paper", "ours", "verdict", "notebook"])


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
        paths.write_text(path, text)
    return saved


def markdown(judged: list[dict[str, Any]]) -> str:
    """The verdicts as a page: counts, a table a profile, the rules."""
    counts = count_table(judged)
    rule_of = {text: f"R{i}" for i, text in enumerate(dict.fromkeys(c["rule"] for c in judged), 1)}
    blocks = [
        "# Claims of the paper, and what was found",
        "Every verdict is computed from the stored tables by the rule that stands beside it (R1, R2, …, at the end). "
        "*Ours* is FlashTrace minus the method named, with its 95 % interval, unless it says otherwise; RISE and MAS "
        f"are better when lower. Numbers of fewer than {MIN_SAMPLES} samples are shown and not judged.",
        _table(counts.columns, counts.itertuples(index=False)),
    ]
    for profile in counts["profile"]:
        title = "The paper and its published code" if profile == "paper" else f"Profile {profile}"
        rows = []
        for number, claim in enumerate(judged, 1):
            if profile in claim["verdicts"]:
                found, name = claim["verdicts"][profile], claim["notebook"]
                link = f"[{name[:2]}](../notebooks/{name}.ipynb)"
                rows.append([number, claim["claim"], f"{claim['where']}: {claim['paper']}", _ours(found, claim),
                             f"**{found['verdict']}** ({rule_of[claim['rule']]})", link])  # fmt: skip
        blocks += [f"## {title}", _table(["", "claim", "paper", "ours", "verdict", "notebook"], rows)]
    blocks += ["## Rules", "\n".join(f"* {name}: {text}" for text, name in rule_of.items())]
    blocks.append(
        "Where a rule is about single numbers: all of them, *reproduced*; some, *partly*; none, *not reproduced*."
    )
    return "\n\n".join(blocks) + "\n"


def _ours(found: dict[str, Any], claim: dict[str, Any]) -> str:
    """The numbers in a cell: all of a few; of many, how many hold and those that do not."""
    if found["missing"]:
        return f"{MISSING}: {found['missing']}"
    if not found["findings"]:
        return f"– ({claim['rule']})"
    shown, head = found["findings"], []
    if len(shown) > _MANY and shown[0]["holds"] is not None:
        failing = sorted((f for f in shown if not f["holds"]), key=lambda f: -abs(f["value"]))[:_MANY]
        held = sum(f["holds"] for f in shown)
        head = [f"{held} of {len(shown)} hold; {'the largest that do not' if failing else 'the closest'}:"]
        shown = failing or [min(shown, key=lambda f: abs(f["value"]))]
    note = [f"*{claim['note']}*"] if claim["note"] else []
    return "<br>".join([*head, *map(entry, shown), *note])


def entry(finding: dict[str, Any]) -> str:
    """``name: value [low, high], n = 10``; a minus sign where there is one."""
    text = f"{finding['name']}: {finding['value']:.3g}"
    if finding["low"] is not None:
        text += f" [{finding['low']:.3g}, {finding['high']:.3g}]"
    text += f", n = {finding['n']}" if finding["n"] is not None else ""
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


def _table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
