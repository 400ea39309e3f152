"""Rules that turn measured numbers into a verdict on a claim of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from flashtrace_lib.metrics.intervals import MIN_SAMPLES

REPRODUCED, PARTLY, FAILED = "reproduced", "partly reproduced", "not reproduced"
DEPENDS = "depends on the metric"  # the rule holds, and a check of `robustness` has the opposite sign
UNDECIDED, UNTESTABLE, MISSING = "undecided", "not testable at this scale", "not measured"
VERDICTS = (REPRODUCED, DEPENDS, PARTLY, FAILED, UNDECIDED, UNTESTABLE, MISSING)
LEVEL = 0.012  # a change that counts as none: the largest that the paper itself calls a match (Table 3)


class Missing(Exception):
    """A result does not exist yet; the message says which."""


@dataclass(frozen=True)
class Finding:
    """One measured number.

    Parameters
    ----------
    name : str
        Description for readers.
    value : float
        The number: a mean, a paired difference, a ratio.
    low, high : float
        Its 95 % interval; nan for a number without one.
    n : int, optional
        Samples behind it; None for a number that is no mean over samples.
    paper : float
        The paper's number for the same quantity; nan if it prints none.
    scale : float
        Size at which it was measured, such as a number of tokens, for rules that ask for a scale.
    absent : bool
        The claim covers this number, but it was not measured.
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
        """Whether a verdict may depend on it: a mean over samples needs an interval, and enough samples."""
        return not self.absent and (self.n is None or (self.n >= MIN_SAMPLES and not math.isnan(self.low)))

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval; for a number without one, the number twice."""
        return (self.value, self.value) if math.isnan(self.low) else (self.low, self.high)

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON: floats with six significant digits, None for nan and infinity."""
        return {
            key: (float(f"{value:.6g}") if math.isfinite(value) else None) if isinstance(value, float) else value
            for key, value in asdict(self).items()
        }


@dataclass(frozen=True)
class Rule:
    """How findings become a verdict: one by one (``holds``, ``refuted``), all together (``series``), or never.

    Parameters
    ----------
    text : str
        The rule in words; it is printed beside the verdicts.
    holds : callable, optional
        Finding -> bool: the claim holds over the whole interval. If it holds for all findings, the claim is
        reproduced; for some, partly.
    refuted : callable, optional
        Finding -> bool: the opposite holds over the whole interval. If the claim holds for no finding, it is not
        reproduced where one is refuted, and undecided otherwise.
    series : callable, optional
        Findings in order -> verdict, for a rule about all of them together.
    scale : float
        Findings below this scale can show that a claim holds, but cannot refute it.
    testable : bool
        False for a claim that nothing measured here can decide.
    """

    text: str
    holds: Callable[[Finding], bool] | None = None
    refuted: Callable[[Finding], bool] | None = None
    series: Callable[[Sequence[Finding]], str] | None = None
    scale: float = 0.0
    testable: bool = True

    def verdict(self, findings: Sequence[Finding]) -> str:
        """One of ``VERDICTS``.

        Findings that do not count are left out, but a series needs all of its members. A claim with an absent finding
        is at most partly reproduced.
        """
        if not self.testable:
            return UNTESTABLE
        if not findings:
            return MISSING
        counted = [finding for finding in findings if finding.counts]
        if not counted or (self.series is not None and len(counted) < len(findings)):
            return UNTESTABLE
        if self.series is not None:
            return self.series(counted)
        verdict = self._one_by_one(counted)
        return PARTLY if verdict == REPRODUCED and any(finding.absent for finding in findings) else verdict

    def _one_by_one(self, findings: Sequence[Finding]) -> str:
        held = [self.holds(finding) for finding in findings]
        if any(held):
            return REPRODUCED if all(held) else PARTLY
        large_enough = [finding for finding in findings if finding.scale >= self.scale]
        if not large_enough:
            return UNTESTABLE
        return FAILED if any(self.refuted(finding) for finding in large_enough) else UNDECIDED


def above_zero(quantity: str = "the difference") -> Rule:
    """The interval lies above 0. It refutes the claim only if it lies below 0; one that touches 0 does neither."""
    text = f"the 95 % interval of {quantity} lies above 0"
    return Rule(text, lambda f: f.bounds[0] > 0, lambda f: f.bounds[1] < 0)


def below_zero(quantity: str = "the difference") -> Rule:
    """The interval lies below 0. It refutes the claim only if it lies above 0; one that touches 0 does neither."""
    text = f"the 95 % interval of {quantity} lies below 0"
    return Rule(text, lambda f: f.bounds[1] < 0, lambda f: f.bounds[0] > 0)


def at_least(bound: float, quantity: str = "the number") -> Rule:
    """The number, with its whole interval, is at least ``bound``."""
    text = f"{quantity} is at least {bound:g} over all of its interval"
    return Rule(text, lambda f: f.bounds[0] >= bound, lambda f: f.bounds[1] < bound)


def at_most(bound: float, quantity: str = "the number") -> Rule:
    """The number, with its whole interval, is at most ``bound``."""
    text = f"{quantity} is at most {bound:g} over all of its interval"
    return Rule(text, lambda f: f.bounds[1] <= bound, lambda f: f.bounds[0] > bound)


def at_least_the_papers(quantity: str = "the number", scale: float = 0.0) -> Rule:
    """The number, with its whole interval, is at least the paper's."""
    text = f"{quantity} is at least the paper's over all of its interval{_from(scale)}"
    return Rule(text, lambda f: f.bounds[0] >= f.paper, lambda f: f.bounds[1] < f.paper, scale=scale)


def at_most_the_papers(quantity: str = "the number", scale: float = 0.0) -> Rule:
    """The number, with its whole interval, is at most the paper's."""
    text = f"{quantity} is at most the paper's over all of its interval{_from(scale)}"
    return Rule(text, lambda f: f.bounds[1] <= f.paper, lambda f: f.bounds[0] > f.paper, scale=scale)


def equals_the_papers(tolerance: float = 1e-9) -> Rule:
    """The number is the paper's; for numbers that are counted or computed, not estimated."""
    text = "the number is the paper's"
    return Rule(text, lambda f: abs(f.value - f.paper) <= tolerance, lambda f: abs(f.value - f.paper) > tolerance)


def within(margin: float = LEVEL, quantity: str = "the difference") -> Rule:
    """The whole interval lies close to 0; an interval that merely contains 0 shows no agreement."""
    return Rule(
        f"the 95 % interval of {quantity} lies within ±{margin:g}",
        lambda f: -margin <= f.bounds[0] and f.bounds[1] <= margin,
        lambda f: f.bounds[0] > margin or f.bounds[1] < -margin,
    )


def rising() -> Rule:
    """A series rises at every step; partly reproduced if only its last member lies above its first."""
    text = "each interval lies above the one before; partly: the last above the first"
    return Rule(text, series=_rising)


def falling() -> Rule:
    """A series falls at every step; partly reproduced if only its last member lies below its first."""
    text = "each interval lies below the one before; partly: the last below the first"
    return Rule(text, series=lambda findings: _rising(findings[::-1]))


def linear(margin: float = 0.15) -> Rule:
    """An exponent of 1. One below it shows fixed costs beside those that grow, and refutes nothing."""
    text = f"the exponent, with its whole interval, lies within {margin:g} of 1; refuted only by a larger one"
    return Rule(
        text, lambda f: 1 - margin <= f.bounds[0] and f.bounds[1] <= 1 + margin, lambda f: f.bounds[0] > 1 + margin
    )


def untestable(reason: str) -> Rule:
    """The claim cannot be judged here, for a stated reason."""
    return Rule(reason, testable=False)


# The rules that claims.yaml may name.
RULES: dict[str, Callable[..., Rule]] = {
    rule.__name__: rule
    for rule in (
        above_zero, below_zero, at_least, at_most, at_least_the_papers, at_most_the_papers, equals_the_papers, within,
        rising, falling, linear, untestable,
    )
}  # fmt: skip


def _rising(findings: Sequence[Finding]) -> str:
    if len(findings) < 2:
        return UNTESTABLE
    first, last = findings[0].bounds, findings[-1].bounds
    if all(b.bounds[0] > a.bounds[1] for a, b in pairwise(findings)):
        return REPRODUCED
    if last[0] > first[1]:
        return PARTLY
    return FAILED if last[1] <= first[0] else UNDECIDED


def _from(scale: float) -> str:
    return f" (refuted only from {scale:g} tokens on)" if scale else ""
