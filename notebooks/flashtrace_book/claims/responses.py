"""Whose responses a claim rests on: ‡ teacher-forced, § right or wrong; without a mark, right answers of the model."""

from __future__ import annotations

from collections.abc import Sequence

from flashtrace_lib.tasks.responses import FORCED, MARKS, UNFILTERED

from ..samples import cell_group
from .evidence import Evidence
from .rules import Missing

LEGEND = "‡: some of the responses were teacher-forced; §: some are right or wrong answers, not right ones alone"


def marked(evidence: Evidence, samples: Sequence[str]) -> dict[str, list[str]]:
    """The cells that are not right answers of the model itself, by their mark.

    Parameters
    ----------
    evidence : Evidence
    samples : sequence of str
        Tables of `samples.count_table`, such as ``ruler_samples``; ``table/part`` takes one cell, or one group of
        cells, of it. A table that the profile has not made says nothing.

    Returns
    -------
    dict
        ``‡`` and ``§``, as far as there are such cells, to their names.
    """
    found: dict[str, list[str]] = {}
    for entry in samples:
        name, _, part = entry.partition("/")
        try:
            rows = evidence.rows(name)
        except Missing:
            continue
        rows = rows[rows["kept"] > 0]
        if part:
            rows = rows[(rows["cell"] == part) | (rows["cell"].map(cell_group) == part)]
        for kind in (FORCED, UNFILTERED):
            mark = MARKS[kind].strip()
            cells = rows.loc[rows["responses"] == kind + MARKS[kind], "cell"]
            if len(cells):
                found[mark] = list(dict.fromkeys([*found.get(mark, []), *cells]))
    return found


def mark_of(found: dict[str, list[str]]) -> str:
    """The marks alone, to stand behind a verdict; empty where there are none."""
    return "".join(f" {mark}" for mark in found)
