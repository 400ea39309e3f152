"""How far heatmaps can be trusted, in sentences made from the stored tables of a profile: no number is typed in."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from flashtrace_lib import files
from flashtrace_lib.metrics.intervals import interval_text

from .. import paths

TASKS = {"ruler": "RULER and HotpotQA", "math": "mathematics", "morehopqa": "MoreHopQA"}
METHOD = "flashtrace"
_STRUCTURE = {"first token": "the first token", "template": "the template", "connective": "function words"}


def measured(profile: str, method: str = METHOD) -> list[str]:
    """What the book measured of a method, as sentences with 95 % intervals; empty where nothing is stored yet.

    Parameters
    ----------
    profile : str
        Whose tables are read, ``figures/<profile>/``.
    method : str
        Registered name.
    """
    parts = (_against_lot, _of_hops, _on_the_question, _on_structure, _causal)
    return [text for part in parts for text in part(profile, method)]


def _against_lot(profile: str, method: str) -> Iterator[str]:
    """Deletion and recovery, against a ranking of the same tokens by lot."""
    for task, name in TASKS.items():
        for row in _rows(profile, f"{task}_against_random", method):
            verdict = {method: "more", "random": "less"}.get(row.better, "no more")
            says = {
                "rise": f"deleting its top words hurts the answer {verdict} than deleting by lot (RISE",
                "recovery": f"its top tenth holds {verdict} of the evidence than a tenth by lot (recovery",
            }
            if row.metric in says and not math.isnan(row.low):  # too few samples say neither more nor less
                numbers = f"{row.difference:+.2f} {interval_text(row.low, row.high, '.2f')}, n = {row.n}"
                yield f"{name}: {says[row.metric]} {numbers})."


def _of_hops(profile: str, method: str) -> Iterator[str]:
    """What one recursive hop adds; the table is FlashTrace's."""
    rows = _table(profile, "recursion_recovery") if method == METHOD else []
    for row in rows:
        if row.K == 1 and not math.isnan(row.gain_low):
            verdict = "more" if row.gain_low > 0 else "less" if row.gain_high < 0 else "no more"
            numbers = f"{row.gain:+.2f} {interval_text(row.gain_low, row.gain_high, '.2f')}, n = {row.n}"
            yield f"One hop back through the reasoning finds {verdict} of the evidence than none (recovery {numbers})."


def _on_the_question(profile: str, method: str) -> Iterator[str]:
    """How much of the score the question takes, which every prompt has."""
    for task, name in TASKS.items():
        for row in _rows(profile, f"{task}_question_share", method):
            interval = interval_text(100 * row.low, 100 * row.high, ".0f")
            yield (
                f"{name}: {row.mass:.0%} of the score {interval} lies on the question, "
                f"which has {row.tokens:.0%} of the words (n = {row.n})."
            )


def _on_structure(profile: str, method: str) -> Iterator[str]:
    """How much of the first hop lies on tokens that carry no meaning (appendix N); the table is FlashTrace's."""
    for row in _table(profile, "appendix_n_structure") if method == METHOD else []:
        if row.hop == 0:
            interval = interval_text(100 * row.low, 100 * row.high, ".1f")
            yield (
                f"{row.mean:.1%} of the first hop's mass {interval} lies on {_STRUCTURE.get(row.kind, row.kind)}, "
                f"{row.tokens:.1%} of the tokens (n = {row.n})."
            )


def _causal(profile: str, method: str) -> Iterator[str]:
    """Whether the answer changes without the sentence that is ranked first; the table is FlashTrace's."""
    rows = {row.masked: row for row in _table(profile, "questions_causal")} if method == METHOD else {}
    if {"top", "random"} <= set(rows):
        top, drawn = rows["top"], rows["random"]
        yield (
            f"Without the sentence ranked first, the question aside, {top.changed:.0%} of the answers change, without "
            f"one drawn by lot {drawn.changed:.0%} (difference {100 * drawn.more:+.0f} points "
            f"{interval_text(100 * drawn.more_low, 100 * drawn.more_high, '.0f')}, n = {top.n})."
        )


def _rows(profile: str, name: str, method: str) -> list:
    """Rows of one method."""
    return [row for row in _table(profile, name) if row.method == method]


def _table(profile: str, name: str) -> list:
    """Rows of a stored table, empty where there is none.

    Where figures are sent elsewhere, as by the tests, the checkout's own stand in.
    """
    for folder in (paths.figures_dir(profile), files.root() / "figures" / profile):
        path = folder / f"{name}.csv"
        if path.is_file():
            return list(pd.read_csv(path).itertuples(index=False))
    return []
