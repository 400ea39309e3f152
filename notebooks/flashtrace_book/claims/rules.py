"""Verdicts by rule: what has to hold of measured numbers for a claim of the paper to count as reproduced."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from flashtrace_lib.metrics.intervals import MIN_SAMPLES

REPRODUCED, PARTLY, FAILED = "reproduced", "partly reproduced", "not reproduced"
UNDECIDED, UNTESTABLE, MISSING = "undecided", "not testable at this scale", "not measured"
VERDICTS = (REPRODUCED, PARTLY, FAILED, UNDECIDED, UNTESTABLE, MISSING)
LEVEL = 0.012  # a change that counts as none: what the paper itself calls a match (Table 3)


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
    absent : bool
        The claim is about it, and it was not measured: there is no number.
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    n: int | None = None
    paper: float = math.nan
    scale: float = math.inf
    absent: bool = False

    def __post_init__(self) -> None:
        if math.isnan(self.value) and not self.absent:
            raise Missing(f"{self.name} is not defined (nan)")
        if math.isnan(self.low) != math.isnan(self.high) or self.low > self.high:
            raise ValueError(f"{self.name}: [{self.low}, {self.high}] is no interval")

    @property
    def counts(self) -> bool:
        """Whether a verdict may rest on it: a mean over samples needs enough of them, and an interval."""
        return not self.absent and (self.n is None or (self.n >= MIN_SAMPLES and not math.isnan(self.low)))

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
        Finding -> bool: the claim holds over the whole interval. All of them: reproduced; some: partly.
    refuted : callable, optional
        Finding -> bool: the opposite holds over the whole interval. Where none holds, one of these decides between not
        reproduced and undecided.
    series : callable, optional
        Findings in order -> verdict, for a rule about all of them together.
    scale : float
        Findings of a smaller scale may show that a claim holds, and never that it does not.
    hopeless : bool
        Whether nothing that could be measured here decides.
    """

    text: str
    holds: Callable[[Finding], bool] | None = None
    refuted: Callable[[Finding], bool] | None = None
    series: Callable[[Sequence[Finding]], str] | None = None
    scale: float = 0.0
    hopeless: bool = False

    def verdict(self, findings: Sequence[Finding]) -> str:
        """One of ``VERDICTS``; findings that do not count are left out, and with one absent no claim is reproduced."""
        if self.hopeless:
            return UNTESTABLE
        if not findings:
            return MISSING
        counted = [finding for finding in findings if finding.counts]
        if not counted or (self.series is not None and len(counted) < len(findings)):
            return UNTESTABLE
        if self.series is not None:
            return self.series(counted)
        held = [finding for finding in counted if self.holds(finding)]
        if len(held) == len(counted):  # of what was measured
            return PARTLY if any(finding.absent for finding in findings) else REPRODUCED
        if held:
            return PARTLY
        reached = [finding for finding in counted if finding.scale >= self.scale]
        if not reached:
            return UNTESTABLE
        return FAILED if any(self.refuted(finding) for finding in reached) else UNDECIDED


def above_zero(what: str = "the difference") -> Rule:
    """The interval lies above 0; one that ends at 0 refutes nothing, as little as it shows anything."""
    text = f"the 95 % interval of {what} lies above 0"
    return Rule(text, lambda f: f.bounds[0] > 0, lambda f: f.bounds[1] < 0)


def below_zero(what: str = "the difference") -> Rule:
    """The interval lies below 0; one that ends at 0 refutes nothing, as little as it shows anything."""
    text = f"the 95 % interval of {what} lies below 0"
    return Rule(text, lambda f: f.bounds[1] < 0, lambda f: f.bounds[0] > 0)


def at_least(bound: float, what: str = "the number") -> Rule:
    """The number, and its whole interval where it has one, is at least ``bound``."""
    text = f"{what} is at least {bound:g} over all of its interval"
    return Rule(text, lambda f: f.bounds[0] >= bound, lambda f: f.bounds[1] < bound)


def at_most(bound: float, what: str = "the number") -> Rule:
    """The number, and its whole interval where it has one, is at most ``bound``."""
    text = f"{what} is at most {bound:g} over all of its interval"
    return Rule(text, lambda f: f.bounds[1] <= bound, lambda f: f.bounds[0] > bound)


def at_least_the_papers(what: str = "the number", scale: float = 0.0) -> Rule:
    """The number, and its whole interval where it has one, is at least the paper's."""
    text = f"{what} is at least the paper's over all of its interval{_from(scale)}"
    return Rule(text, lambda f: f.bounds[0] >= f.paper, lambda f: f.bounds[1] < f.paper, scale=scale)


def at_most_the_papers(what: str = "the number", scale: float = 0.0) -> Rule:
    """The number, and its whole interval where it has one, is at most the paper's."""
    text = f"{what} is at most the paper's over all of its interval{_from(scale)}"
    return Rule(text, lambda f: f.bounds[1] <= f.paper, lambda f: f.bounds[0] > f.paper, scale=scale)


def equals_the_papers(tolerance: float = 1e-9) -> Rule:
    """The number is the paper's; for what is counted or computed, not estimated."""
    return Rule("the number is the paper's", lambda f: abs(f.value - f.paper) <= tolerance,
                lambda f: abs(f.value - f.paper) > tolerance)  # fmt: skip


def within(margin: float = LEVEL, what: str = "the difference") -> Rule:
    """The whole interval lies close to 0; one that merely holds 0 shows no agreement."""
    return Rule(f"the 95 % interval of {what} lies within ±{margin:g}",
                lambda f: -margin <= f.bounds[0] and f.bounds[1] <= margin,
                lambda f: f.bounds[0] > margin or f.bounds[1] < -margin)  # fmt: skip


def rising() -> Rule:
    """A series rises from one to the next; partly where only its end lies above its beginning."""
    text = "each interval lies above the one before; partly: the last above the first"
    return Rule(text, series=_rising)


def falling() -> Rule:
    """A series falls from one to the next; partly where only its end lies below its beginning."""
    text = "each interval lies below the one before; partly: the last below the first"
    return Rule(text, series=lambda findings: _rising(findings[::-1]))


def level(margin: float = LEVEL) -> Rule:
    """A series stays level. Intervals that overlap do not show that: all of them must lie close together."""
    text = f"all intervals lie within {margin:g} of each other; refuted where two do not overlap"
    return Rule(text, series=lambda findings: _level(findings, margin))


def untestable(reason: str) -> Rule:
    """A claim that cannot be judged here, and why."""
    return Rule(reason, hopeless=True)


def _rising(findings: Sequence[Finding]) -> str:
    if len(findings) < 2:
        return UNTESTABLE
    first, last = findings[0].bounds, findings[-1].bounds
    if all(b.bounds[0] > a.bounds[1] for a, b in pairwise(findings)):
        return REPRODUCED
    if last[0] > first[1]:
        return PARTLY
    return FAILED if last[1] <= first[0] else UNDECIDED


def _level(findings: Sequence[Finding], margin: float) -> str:
    if len(findings) < 2:
        return UNTESTABLE
    lows, highs = zip(*(finding.bounds for finding in findings), strict=True)
    if max(highs) - min(lows) <= margin:
        return REPRODUCED
    return FAILED if max(lows) > min(highs) else UNDECIDED


def _from(scale: float) -> str:
    return f" (refuted only from {scale:g} tokens on)" if scale else ""
