"""What a claim is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .evidence import Evidence
from .rules import Finding, Rule


def _nothing(evidence: Evidence) -> list[Finding]:
    """For claims that no number here can judge."""
    return []


@dataclass(frozen=True)
class Claim:
    """One checkable claim of the paper.

    Parameters
    ----------
    key : str
        Its name in files.
    text : str
        What is claimed, in one line.
    where : str
        Where the paper says so: sections, tables, figures.
    paper : str
        The paper's numbers, as text.
    notebook : str
        Which notebook measures it.
    rule : Rule
        What decides.
    findings : callable
        Evidence of a profile -> what was measured. Raises `rules.Missing` where it is not there yet.
    of_the_paper : bool
        Whether it is judged by what the paper itself prints, without a profile.
    note : str
        What the number rests on, where that needs saying.
    """

    key: str
    text: str
    where: str
    paper: str
    notebook: str
    rule: Rule
    findings: Callable[[Evidence], list[Finding]] = _nothing
    of_the_paper: bool = False
    note: str = ""
