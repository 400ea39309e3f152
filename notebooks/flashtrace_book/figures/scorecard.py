"""The claims as one picture: verdict, and how far the first number lies from its bound."""

from typing import Any

from matplotlib.figure import Figure
from scipy.stats import t as student

from flashtrace_lib.viewer.colours import WIDTH

from ..claims import NOT, PARTLY, REPRODUCED, UNDECIDED, UNTESTABLE
from .palette import BLUE, GREEN, GREY, ORANGE, VERMILION
from .style import styled

_STYLES = {  # colour and marker of a verdict: both tell it
    REPRODUCED: (GREEN, "o"),
    PARTLY: (ORANGE, "D"),
    NOT: (VERMILION, "X"),
    UNDECIDED: (BLUE, "s"),
    UNTESTABLE: (GREY, "_"),
}
_FARTHEST = 8.0  # standard errors; what lies farther is drawn at the edge


@styled
def scorecard(judged: list[dict[str, Any]]) -> Figure:
    """One row a claim of the paper; the dot is its first number's distance from the bound, in standard errors."""
    rows = [claim for claim in judged if not claim["beyond"]]
    figure = Figure(figsize=(WIDTH * 1.25, 0.21 * len(rows) + 1.2), layout="constrained")
    axes = figure.add_subplot()
    axes.axvline(0, color=GREY, lw=0.8)
    for place, claim in enumerate(rows):
        colour, marker = _STYLES[claim["verdict"]]
        away = distance(claim)
        if away is not None:
            axes.plot(max(-_FARTHEST, min(_FARTHEST, away)), place, marker=marker, color=colour, ms=5, ls="")
        axes.text(_FARTHEST + 0.6, place, claim["verdict"], color=colour, va="center", fontsize=7, fontweight="bold")
    names = [claim["text"] if len(claim["text"]) < 74 else claim["text"][:71] + "…" for claim in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=7)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(-_FARTHEST - 0.4, _FARTHEST + 0.4)
    axes.set_xlabel("first number: standard errors from its bound (right: for the claim)")
    axes.set_title(f"{len(rows)} claims of the paper, one verdict each", loc="left")
    axes.grid(axis="y", alpha=0.3)
    return figure


def distance(claim: dict[str, Any]) -> float | None:
    """Standard errors of a claim's first number from its bound, positive where it speaks for the claim."""
    if claim["rule"] not in ("above", "below") or not claim["numbers"] or claim["numbers"][0]["low"] is None:
        return None
    first = claim["numbers"][0]
    error = (first["high"] - first["low"]) / 2 / student.ppf(0.975, max(int(first["n_effective"]) - 1, 1))
    if not error > 0:
        return None
    away = (first["value"] - claim["bound"]) / error
    return away if claim["rule"] == "above" else -away
