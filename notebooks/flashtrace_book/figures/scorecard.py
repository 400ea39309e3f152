"""The scorecard: a strip for each claim, with the paper's value, ours, the verdict and the checks of the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from ..claims.judge import entry, how_many_hold
from ..claims.responses import LEGEND, mark_of
from ..claims.robustness import NOT_MEASURED, OPEN, OPPOSITE, SAME
from ..claims.rules import DEPENDS, FAILED, MISSING, PARTLY, REPRODUCED, UNDECIDED, UNTESTABLE
from .style import styled

# Blue holds, orange does not, grey says nothing: three kinds that every eye tells apart, and the words stand in them.
COLOURS = {
    REPRODUCED: ("#0060A8", "white"), DEPENDS: ("#6FA8DC", "black"), PARTLY: ("#BBD6EE", "black"),
    FAILED: ("#D55E00", "white"), UNDECIDED: ("#D9D9D9", "black"), UNTESTABLE: ("#F0F0F0", "black"),
    MISSING: ("white", "black"),
}  # fmt: skip
MARKS = {  # of a check's sign: marker, filling, edge
    SAME: ("o", "#0060A8", "#0060A8"), OPEN: ("o", "white", "#7F7F7F"), OPPOSITE: ("X", "#D55E00", "#D55E00"),
    NOT_MEASURED: (".", "#D9D9D9", "#D9D9D9"),
}  # fmt: skip
_ROW = 0.3  # inches
_X = {"claim": 0.0, "paper": 0.44, "ours": 0.582, "verdict": 0.768, "checks": 0.9}  # of the width
_LETTERS = {"claim": 92, "paper": 24, "ours": 36}


@styled
def scorecard(judged: Sequence[dict[str, Any]], profile: str, title: str = "") -> Figure:
    """Draw the verdicts of one profile.

    Parameters
    ----------
    judged : sequence of dict
        From `judge.judge_all`; claims without a verdict under the profile are left out.
    profile : str
        Or `judge.OWN`.

    Raises
    ------
    ValueError
        If no claim has a verdict under the profile.
    """
    rows = [(claim, claim["verdicts"][profile]) for claim in judged if profile in claim["verdicts"]]
    if not rows:
        raise ValueError(f"no claim has a verdict under profile {profile!r}: run `python -m flashtrace_lib claims`")
    fig, ax = plt.subplots(figsize=(14, _ROW * (len(rows) + 3)))
    ax.set_position((0, 0, 1, 1 - _ROW / fig.get_figheight()))
    ax.set(xlim=(0, 1), ylim=(len(rows) + 1.2, -1.6))
    ax.axis("off")
    if title:
        ax.set_title(title, loc="left")
    for name, x in _X.items():
        head = {"ours": "found, with 95 % interval"}.get(name, name)
        ax.text(x, -0.8, head, weight="bold", va="center", fontsize=9)
    for y, (claim, found) in enumerate(rows):
        _strip(ax, y, claim, found)
    ax.text(0.003, len(rows) + 0.3, LEGEND, va="center", fontsize=8)
    names = {SAME: "same sign", OPEN: "interval holds 0", OPPOSITE: "opposite sign", NOT_MEASURED: "not measured"}
    handles = [
        Line2D([], [], ls="", marker=marker, mfc=face, mec=edge, ms=6, label=names[sign])
        for sign, (marker, face, edge) in MARKS.items()
    ]
    ax.legend(handles=handles, title=None, ncols=4, loc="lower right", frameon=False, fontsize=8,
              bbox_to_anchor=(1.0, 0.0))  # fmt: skip
    return fig


def found_text(found: dict[str, Any]) -> str:
    """Our numbers in a few words: the one number, or how many of several hold."""
    findings = [finding for finding in found["findings"] if finding["counts"]]
    if not findings or found["verdict"] in (MISSING, UNTESTABLE):
        return "–"
    if len(findings) == 1:
        return entry(findings[0]).rsplit(": ", 1)[1]
    if findings[0]["holds"] is None:
        return " … ".join(entry(finding).rsplit(": ", 1)[1] for finding in (findings[0], findings[-1]))
    return how_many_hold(found["findings"])


def _strip(ax: Axes, y: int, claim: dict[str, Any], found: dict[str, Any]) -> None:
    """One claim at height ``y``."""
    if y % 2 == 0:
        ax.axhspan(y - 0.5, y + 0.5, color="#F7F7F7", lw=0, zorder=0)
    texts = {"claim": claim["claim"], "paper": claim["paper"], "ours": found_text(found)}
    for name, text in texts.items():
        shown = shorten(text, _LETTERS[name], placeholder=" …")
        ax.text(_X[name] + 0.003, y, shown, va="center", fontsize=8)
    fill, ink = COLOURS[found["verdict"]]
    left, width = _X["verdict"], _X["checks"] - _X["verdict"] - 0.012
    box = FancyBboxPatch((left, y - 0.36), width, 0.72, boxstyle="round,pad=0,rounding_size=0.008", fc=fill, ec="0.6",
                         lw=0.5, mutation_aspect=30)  # fmt: skip
    ax.add_patch(box)
    verdict = found["verdict"].replace(" at this scale", "") + mark_of(found.get("marks", {}))
    ax.text(left + width / 2, y, verdict, color=ink, ha="center", va="center", fontsize=8)
    for k, check in enumerate((found.get("checked") or {"checks": []})["checks"]):
        marker, face, edge = MARKS[check["sign"]]
        ax.plot(_X["checks"] + 0.004 + 0.0095 * k, y, ls="", marker=marker, mfc=face, mec=edge, ms=5, mew=0.8)
