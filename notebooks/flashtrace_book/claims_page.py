"""The judged claims as ``claims.json``, as one page, in README, and as a badge."""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd

from flashtrace_lib import files

from . import claims
from .run import readable

HEADLINES = (  # of README, at most twelve, none beyond the paper
    "speed_130", "hop_is_a_pass", "mass_grows", "reasoning_hurts", "ruler_recovery", "ruler_rise", "hotpotqa_margin",
    "math_lowest", "rollout_match", "code_targets", "second_model", "one_hop",
)  # fmt: skip
_COLOURS = {"reproduced": "#2e7d32", "partly reproduced": "#9a6700", "not reproduced": "#b3261e"}
_MARK = re.compile(r"(<!-- claims: begin -->\n).*?(<!-- claims: end -->)", re.DOTALL)


def write(folder: Path) -> tuple[pd.DataFrame, list[Path]]:
    """Judge all claims and write page, JSON and badge into ``folder``, and README's table; counts and files."""
    judged = claims.judge(folder)
    written = [folder / "claims.json", folder / "claims.md", folder / "badges" / "claims.svg"]
    for path, text in zip(written, (claims.to_json(judged), page(judged), badge(judged)), strict=True):
        files.write_text(path, text)
    readme = files.root() / "README.md"
    if folder == files.root() / "figures" and readme.is_file():
        text = readme.read_text(encoding="utf-8")
        files.write_text(readme, _MARK.sub(lambda m: m[1] + headline_table(judged) + m[2], text))
        written.append(readme)
    return claims.counts(judged), written


def chapter_seconds() -> dict[str, Any]:
    """About what seconds `make figure` takes in each chapter, and on which machine (``scripts/chapter_seconds.py``)."""
    return json.loads(Path(__file__).with_name("chapter_seconds.json").read_text(encoding="utf-8"))


def page(judged: list[dict[str, Any]]) -> str:
    """``claims.md``: one table of the paper's claims, one of the questions beyond it, and how they were judged."""
    p = claims.tests(judged)
    holm, bh = claims.holm_corrected(p), claims.benjamini_hochberg(p)
    counted = claims.counts(judged)
    mine, own = ([c for c in judged if c["beyond"] == beyond] for beyond in (False, True))
    lines = [
        "# Claims of the paper, and what was found",
        "",
        "One verdict a claim, by the rule beside it, on the strongest evidence there is. Answers that the model "
        "wrote itself and finished decide: the right ones for metrics against the evidence, all of them for metrics "
        "by deletion. Teacher-forced answers are printed apart and never pooled with them. A number stands with its "
        "95 % interval, n, and, where samples share a record, the effective n. The paper's model has 8 billion "
        f"parameters; ours are {readable('reasoner')} (`reasoner`) and {readable('qwen')} (`qwen`): *not reproduced* "
        "speaks of these, and of the paper where the numbers are its own. The command of the last column draws it "
        f"again from stored results, in about the seconds beside it ({chapter_seconds()['machine']}, busy as well).",
        "",
        *_table(counted.rename(columns=str)),
        "",
        f"Tests that decide a claim against a bound: {len(p)}. Their 95 % intervals leave the bound out in "
        f"{int((p < 0.05).sum())}; {int((holm < 0.05).sum())} survive Holm's correction at 5 %, "
        f"{int((bh < 0.05).sum())} Benjamini and Hochberg's.",
        "",
        "## The paper's claims",
        "",
        *_claim_table(mine),
        "",
        "## Questions beyond the paper",
        "",
        *_claim_table(own),
        "",
        "## Rules",
        "",
        *[f"* `{name}`: {text}." for name, text in claims.RULES.items()],
        "* *reproduced*: every number that decides holds, and no check is against it. *partly*: some hold, or a check "
        "is against it. *not reproduced*: none holds and one is on the other side. *undecided*: the intervals hold the "
        "bound. *not testable here*: no interval (fewer than six independent samples), or a reason in words.",
        "",
    ]
    return "\n".join(lines)


def _claim_table(judged: list[dict[str, Any]]) -> list[str]:
    rows = []
    for claim in judged:
        checks = "<br>".join(f"{number_text(check)} *{check['state']}*" for check in claim["checks"])
        row = {
            "claim": claim["text"],
            "paper": f"{claim['paper']} ({claim['where']})",
            "ours": "<br>".join(map(number_text, claim["numbers"])),
            "checks": checks or claim["no_checks"],
            "beside, not counted": "<br>".join(map(number_text, claim["beside"])),
            "answers": claim["answers"],
            "models": claim["models"],
            "verdict": f"**{claim['verdict']}**" + (f": {claim['why']}" if claim["why"] else ""),
            "rule": f"`{claim['rule']}` {claim['bound']:g}" + (f"; {claim['note']}" if claim["note"] else ""),
            "where": _again(claim, "../notebooks"),
        }
        rows.append({name: text or "–" for name, text in row.items()})
    return _table(pd.DataFrame(rows))


def _again(claim: dict[str, Any], folder: str) -> str:
    """The chapter of a claim, the command that draws its figure again, and about what seconds that takes."""
    name = claim["chapter"]
    command = f"make figure NAME={claim['figure']}" if claim["figure"] else f"flashtrace book {name[:2]}"
    return f"[{name[:2]}]({folder}/{name}.ipynb) `{command}`, about {chapter_seconds()['seconds'][name]} s"


def number_text(number: dict[str, Any]) -> str:
    """``label: 0.12 [0.05, 0.19], n = 20 (12 independent)``."""
    text = f"{number['label']}: {number['value']:.3g}".removeprefix(": ")
    if number["low"] is not None:
        text += f" [{number['low']:.3g}, {number['high']:.3g}]"
    if number["n"] is not None:
        text += f", n = {number['n']:.0f}"
        if number["n_effective"] not in (None, number["n"]):
            text += f" ({number['n_effective']:.0f} independent)"
    return text


def _table(frame: pd.DataFrame) -> list[str]:
    rows = [list(frame.columns), ["---"] * len(frame.columns), *frame.astype(str).to_numpy().tolist()]
    return ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]


def headline_table(judged: list[dict[str, Any]]) -> str:
    """README's table: the headline claims, one number each."""
    by_id, rows = {claim["id"]: claim for claim in judged}, []
    for name in HEADLINES:
        claim = by_id[name]
        row = {
            "claim": claim["text"],
            "paper": claim["paper"],
            "here": number_text(claim["numbers"][0]) if claim["numbers"] else "–",
            "verdict": f"**{claim['verdict']}**",
            "chapter, and its figure again": _again(claim, "notebooks"),
        }
        rows.append(row)
    return "\n".join(_table(pd.DataFrame(rows))) + "\n"


def badge(judged: list[dict[str, Any]]) -> str:
    """An SVG with the counts of the paper's claims by verdict."""
    counted = claims.counts(judged).set_index("verdict")["of the paper"]
    parts = [
        ("claims of the paper", "#555555"),
        *((f"{n} {v}", _COLOURS.get(v, "#5f6368")) for v, n in counted.items()),
    ]
    widths = [round(6.2 * len(text) + 14) for text, _ in parts]
    body, x = [], 0
    for (text, colour), width in zip(parts, widths, strict=True):
        body.append(f'<rect x="{x}" width="{width}" height="20" fill="{colour}"/>'
                    f'<text x="{x + width / 2:g}" y="14" fill="#fff" text-anchor="middle">{text}</text>')  # fmt: skip
        x += width
    title = "; ".join(text for text, _ in parts)
    drawn = f'<g font-family="DejaVu Sans,Verdana,sans-serif" font-size="11">{"".join(body)}</g>'
    size = f'width="{x}" height="20" role="img" aria-label="{title}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><title>{title}</title>{drawn}</svg>\n'


def short_table(judged: list[dict[str, Any]]) -> pd.DataFrame:
    """Claim, verdict and first number of each claim, for a chapter's page."""
    rows = []
    for claim in judged:
        here = number_text(claim["numbers"][0]) if claim["numbers"] else "–"
        row = {"claim": claim["text"], "paper": claim["paper"], "verdict": f"**{claim['verdict']}**", "here": here}
        rows.append(row | {"chapter": claim["chapter"]})
    return pd.DataFrame(rows)
