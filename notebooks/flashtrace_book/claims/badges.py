"""Badges of README, drawn here as SVG so that the page needs no network."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from flashtrace_lib import files

from .. import paths
from ..run import Saved
from . import judge
from .rules import DEPENDS, FAILED, PARTLY, REPRODUCED, UNDECIDED

_SHOWN = (REPRODUCED, DEPENDS, PARTLY, FAILED, UNDECIDED)
_LETTER, _PADDING = 6.6, 7  # pixels; the mean width of a letter at 11 px in a sans-serif face
# White text on the grey and on the blue has a contrast above 6.
_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{title}">'
    "<title>{title}</title>"
    '<clipPath id="r"><rect width="{width}" height="20" rx="3"/></clipPath><g clip-path="url(#r)">'
    '<rect width="{left}" height="20" fill="#4d4d4d"/>'
    '<rect x="{left}" width="{right}" height="20" fill="#0060a8"/></g>'
    '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
    '<text x="{label_x:g}" y="14" textLength="{label_width}">{label}</text>'
    '<text x="{text_x:g}" y="14" textLength="{text_width}">{text}</text></g></svg>\n'
)


def badge(label: str, text: str) -> str:
    """One badge as SVG: a label on grey, its text on blue."""
    label_width, text_width = (round(len(part) * _LETTER) for part in (label, text))
    left, right = label_width + 2 * _PADDING, text_width + 2 * _PADDING
    return _SVG.format(
        title=escape(f"{label}: {text}"), label=escape(label), text=escape(text),
        width=left + right, left=left, right=right, label_width=label_width, text_width=text_width,
        label_x=left / 2, text_x=left + right / 2,
    )  # fmt: skip


def claim_badges(judged: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Name -> SVG: for every profile that has results, the number of claims with each verdict."""
    badges = {}
    for row in judge.count_table(list(judged)).to_dict("records"):
        if row["profile"] != judge.OWN:
            text = " · ".join(f"{row[verdict]} {verdict}" for verdict in _SHOWN if row[verdict])
            badges[f"claims_{row['profile']}"] = badge(f"claims, profile {row['profile']}", text)
    return badges


def write(judged: Iterable[dict[str, Any]]) -> Saved:
    """Write the badges under ``badges/`` in the root of the figures."""
    drawn = {"python": badge("python", "3.11 to 3.13"), "licence": badge("code", "MIT"), **claim_badges(judged)}
    saved = Saved(paths.figures_root() / "badges" / f"{name}.svg" for name in drawn)
    for path, svg in zip(saved, drawn.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(path, svg)
    return saved
