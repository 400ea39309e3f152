"""Verdicts by rule: what has to hold of measured numbers for a claim of the paper to count as reproduced."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise
from typing import Any

REPRODUCED, PARTLY, FAILED = "reproduced", "partly reproduced", "not reproduced"
UNTESTABLE, MISSING = "not testable at this scale", "no results yet"
VERDICTS = (REPRODUCED, PARTLY, FAILED, UNTESTABLE, MISSING)
MIN_SAMPLES = 4  # a bootstrap interval of fewer samples is hardly more than their range


class Missing(Exception):
    """A result that is not there yet; the message says which."""


@dataclass(frozen=True)
class Finding:
    """One measured number.

    Parameters
    ----------
    name : str
        What it is, for readers.
    value : float
        The number: a mean, a paired difference, a ratio.
    low, high : float
        Its 95 % interval; nan where it has none.
    n : int, optional
        Samples behind it; None where it is not a mean over samples.
    paper : float
        The paper's number for the same; nan where it prints none.
    scale : float
        How far the measurement went (tokens, say), for rules that ask for a scale.
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    n: int | None = None
    paper: float = math.nan
    scale: float = math.inf

    def __post_init__(self) -> None:
        if math.isnan(self.value):
            raise Missing(f"{self.name} is not defined (nan)")
        if math.isnan(self.low) != math.isnan(self.high) or self.low > self.high:
            raise ValueError(f"{self.name}: [{self.low}, {self.high}] is no interval")

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval, or the number itself where it has none."""
        return (self.value, self.value) if math.isnan(self.low) else (self.low, self.high)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: None for what there is none of, six significant digits."""
        return {
            key: (float(f"{value:.6g}") if math.isfinite(value) else None) if isinstance(value, float) else value
            for key, value in asdict(self).items()
        }


@dataclass(frozen=True)
class Rule:
    """How findings become a verdict.

    Parameters
    ----------
    text : str
        The rule in words; it is printed beside the verdicts.
    holds : callable, optional
        Finding -> bool. All of them: reproduced; some: partly; none: not reproduced.
    series : callable, optional
        Findings in order -> verdict, for a rule about all of them together.
    scale : float
        A finding that fails at a smaller scale refutes nothing.
    hopeless : bool
        Whether nothing that could be measured here decides.
    """

    text: str
    holds: Callable[[Finding], bool] | None = None
    series: Callable[[Sequence[Finding]], str] | None = None
    scale: float = 0.0
    hopeless: bool = False

    def verdict(self, findings: Sequence[Finding]) -> str:
        """One of ``VERDICTS``. Findings of fewer than ``MIN_SAMPLES`` samples do not count."""
        if self.hopeless:
            return UNTESTABLE
        if not findings:
            return MISSING
        counted = [finding for finding in findings if finding.n is None or finding.n >= MIN_SAMPLES]
        if not counted or (self.series is not None and len(counted) < len(findings)):
            return UNTESTABLE
        if self.series is not None:
            return self.series(counted)
        held = [finding for finding in counted if self.holds(finding)]
        if len(held) == len(counted):
            return REPRODUCED
        if held:
            return PARTLY
        return UNTESTABLE if all(finding.scale < self.scale for finding in counted) else FAILED


def above_zero(what: str = "the difference") -> Rule:
    """The interval lies above 0."""
    return Rule(f"the 95 % interval of {what} lies above 0", lambda f: f.bounds[0] > 0)


def below_zero(what: str = "the difference") -> Rule:
    """The interval lies below 0."""
    return Rule(f"the 95 % interval of {what} lies below 0", lambda f: f.bounds[1] < 0)


def holds_zero() -> Rule:
    """The interval of a difference holds 0: no difference was found."""
    return Rule("the 95 % interval of the difference holds 0", lambda f: f.bounds[0] <= 0 <= f.bounds[1])


def at_least(bound: float, what: str = "the number", scale: float = 0.0) -> Rule:
    """The number, and its whole interval where it has one, is at least ``bound``."""
    return Rule(f"{what} is at least {bound:g}{_from(scale)}", lambda f: f.bounds[0] >= bound, scale=scale)


def at_most(bound: float, what: str = "the number", scale: float = 0.0) -> Rule:
    """The number, and its whole interval where it has one, is at most ``bound``."""
    return Rule(f"{what} is at most {bound:g}{_from(scale)}", lambda f: f.bounds[1] <= bound, scale=scale)


def reaches_down_to(bound: float, what: str) -> Rule:
    """The number, or the lower end of its interval, is at most ``bound``: a greater one is not shown."""
    return Rule(f"{what}, or the lower end of its interval, is at most {bound:g}", lambda f: f.bounds[0] <= bound)


def at_least_the_papers(what: str = "the number", scale: float = 0.0) -> Rule:
    """The number is at least the paper's."""
    return Rule(f"{what} is at least the paper's{_from(scale)}", lambda f: f.value >= f.paper, scale=scale)


def at_most_the_papers(what: str = "the number", scale: float = 0.0) -> Rule:
    """The number is at most the paper's."""
    return Rule(f"{what} is at most the paper's{_from(scale)}", lambda f: f.value <= f.paper, scale=scale)


def equals_the_papers(tolerance: float = 1e-9) -> Rule:
    """The number is the paper's."""
    return Rule("the number is the paper's", lambda f: abs(f.value - f.paper) <= tolerance)


def rising() -> Rule:
    """A series rises from one to the next; partly where only its end lies above its beginning."""
    return Rule("rises from each to the next; partly: the last lies above the first", series=_rising)


def falling() -> Rule:
    """A series falls from one to the next; partly where only its end lies below its beginning."""
    text = "falls from each to the next; partly: the last lies below the first"
    return Rule(text, series=lambda findings: _rising(findings[::-1]))


def level() -> Rule:
    """A series stays level: every two intervals overlap."""
    return Rule("every two intervals of the series overlap", series=_level)


def untestable(reason: str) -> Rule:
    """A claim that cannot be judged here, and why."""
    return Rule(reason, hopeless=True)


def _rising(findings: Sequence[Finding]) -> str:
    if len(findings) < 2:
        return UNTESTABLE
    if all(b.value > a.value for a, b in pairwise(findings)):
        return REPRODUCED
    return PARTLY if findings[-1].value > findings[0].value else FAILED


def _level(findings: Sequence[Finding]) -> str:
    if len(findings) < 2:
        return UNTESTABLE
    apart = any(a.bounds[1] < b.bounds[0] or b.bounds[1] < a.bounds[0] for a, b in combinations(findings, 2))
    return FAILED if apart else REPRODUCED


def _from(scale: float) -> str:
    return f" (refuted only by measurements from {scale:g} tokens on)" if scale else ""
