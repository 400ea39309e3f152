"""Badges of README as files of the book: drawn here, so that the page needs no network."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from flashtrace_lib import files

from .. import paths
from ..run import Saved
from . import judge

_LETTER, _PAD, _HEIGHT = 6.6, 7, 20  # pixels; a letter's mean width at 11 px in a sans-serif face
_GREY, _BLUE = "#4d4d4d", "#0060a8"  # white text on either has a contrast above 6


def badge(label: str, text: str) -> str:
    """One badge as SVG: what it is about on grey, what is so on blue."""
    widths = [round(len(part) * _LETTER) + 2 * _PAD for part in (label, text)]
    total, said = sum(widths), escape(f"{label}: {text}")
    middles = (widths[0] / 2, widths[0] + widths[1] / 2)
    words = "".join(
        f'<text x="{x:g}" y="14" textLength="{width - 2 * _PAD}">{escape(part)}</text>'
        for x, width, part in zip(middles, widths, (label, text), strict=True)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{_HEIGHT}" role="img" aria-label="{said}">'
        f"<title>{said}</title>"
        f'<clipPath id="r"><rect width="{total}" height="{_HEIGHT}" rx="3"/></clipPath><g clip-path="url(#r)">'
        f'<rect width="{widths[0]}" height="{_HEIGHT}" fill="{_GREY}"/>'
        f'<rect x="{widths[0]}" width="{widths[1]}" height="{_HEIGHT}" fill="{_BLUE}"/></g>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f"{words}</g></svg>\n"
    )


def claim_badges(judged: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Name -> SVG: how many claims of each verdict, a badge for every profile that has results."""
    found = {}
    for row in judge.count_table(list(judged)).to_dict("records"):
        profile = row.pop("profile")
        if profile != judge.OWN:
            judged_here = ("reproduced", "partly reproduced", "not reproduced", "undecided")
            text = " · ".join(f"{row[verdict]} {verdict}" for verdict in judged_here if row[verdict])
            found[f"claims_{profile}"] = badge(f"claims, profile {profile}", text)
    return found


def write(judged: Iterable[dict[str, Any]]) -> Saved:
    """Write the badges under ``badges/`` in the root of the figures."""
    drawn = {"python": badge("python", "3.11"), "licence": badge("code", "MIT"), **claim_badges(judged)}
    saved = Saved(Path(paths.figures_root()) / "badges" / f"{name}.svg" for name in drawn)
    for path, svg in zip(saved, drawn.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(path, svg)
    return saved
