"""How reliable heatmaps are, in sentences made from the stored tables of a profile: no number is typed in."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from flashtrace_lib.metrics.intervals import interval_text

from .. import paths

TASKS = {"ruler": "RULER and HotpotQA", "math": "mathematics", "morehopqa": "MoreHopQA"}
METHOD = "flashtrace"
_STRUCTURE = {"first token": "the first token", "template": "the template", "connective": "function words"}


def measured(profile: str, method: str = METHOD) -> list[str]:
    """The book's measurements of a method, as sentences with 95 % intervals; empty if nothing is stored yet.

    Parameters
    ----------
    profile : str
        Whose tables are read, ``figures/<profile>/``.
    method : str
        Registered name.
    """
    parts = (_against_random, _of_hops, _on_the_question, _on_structure, _causal)
    return [text for part in parts for text in part(profile, method)]


def _against_random(profile: str, method: str) -> Iterator[str]:
    """Deletion and recovery, against the random baseline."""
    for task, name in TASKS.items():
        for row in _rows(profile, f"{task}_against_random", method):
            if math.isnan(row.low):  # too few samples to say more or less
                continue
            verdict = {method: "more", "random": "less"}.get(row.better, "no more")
            if row.metric == "rise":
                yield f"{name}: {_deletion(row, verdict)}"
            if row.metric == "recovery":
                yield f"{name}: {_recovery(row, verdict)}"


def _deletion(row: tuple, verdict: str) -> str:
    change = _change(row.difference, row.low, row.high, row.n)
    return f"deleting its top words hurts the answer {verdict} than deleting at random (RISE {change})."


def _recovery(row: tuple, verdict: str) -> str:
    change = _change(row.difference, row.low, row.high, row.n)
    return f"its top tenth holds {verdict} of the evidence than a random tenth (recovery {change})."


def _of_hops(profile: str, method: str) -> Iterator[str]:
    """Gain from one recursive hop; the table is FlashTrace's."""
    for row in _table(profile, "recursion_recovery") if method == METHOD else []:
        if row.K == 1 and not math.isnan(row.gain_low):
            verdict = "more" if row.gain_low > 0 else "less" if row.gain_high < 0 else "no more"
            change = _change(row.gain, row.gain_low, row.gain_high, row.n)
            yield f"One hop back through the reasoning finds {verdict} of the evidence than none (recovery {change})."


def _on_the_question(profile: str, method: str) -> Iterator[str]:
    """Share of the score that lies on the question, which every prompt has."""
    for task, name in TASKS.items():
        for row in _rows(profile, f"{task}_question_share", method):
            interval = interval_text(100 * row.low, 100 * row.high, ".0f")
            yield (
                f"{name}: {row.mass:.0%} of the score {interval} lies on the question, "
                f"which has {row.tokens:.0%} of the words (n = {row.n})."
            )


def _on_structure(profile: str, method: str) -> Iterator[str]:
    """Share of the first hop on tokens that carry no meaning (appendix N); the table is FlashTrace's."""
    for row in _table(profile, "appendix_n_structure") if method == METHOD else []:
        if row.hop == 0:
            interval = interval_text(100 * row.low, 100 * row.high, ".1f")
            yield (
                f"{row.mean:.1%} of the first hop's mass {interval} lies on {_STRUCTURE.get(row.kind, row.kind)}, "
                f"{row.tokens:.1%} of the tokens (n = {row.n})."
            )


def _causal(profile: str, method: str) -> Iterator[str]:
    """Change of the answer without the sentence ranked first; the table is FlashTrace's."""
    rows = {row.masked: row for row in _table(profile, "questions_causal")} if method == METHOD else {}
    if {"top", "random"} <= set(rows):
        top, random = rows["top"], rows["random"]
        yield (
            f"The sentence that it ranks first, the question aside, was taken out: {top.changed:.0%} of the answers "
            f"changed. A random one was taken out: {random.changed:.0%} (difference {100 * random.more:+.0f} points "
            f"{interval_text(100 * random.more_low, 100 * random.more_high, '.0f')}, n = {top.n})."
        )


def _change(value: float, low: float, high: float, n: int) -> str:
    return f"{value:+.2f} {interval_text(low, high, '.2f')}, n = {n}"


def _rows(profile: str, name: str, method: str) -> list:
    """Rows of one method."""
    return [row for row in _table(profile, name) if row.method == method]


def _table(profile: str, name: str) -> list:
    """Rows of a stored table, empty if it does not exist."""
    path = paths.stored_table(profile, name)
    return [] if path is None else list(pd.read_csv(path).itertuples(index=False))
