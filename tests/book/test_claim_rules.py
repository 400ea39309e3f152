"""The rules of the verdicts: each on cases made by hand, and none says more than its intervals do."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashtrace_book.claims import rules
from flashtrace_book.claims.claim import CLAIMS
from flashtrace_book.claims.rules import FAILED, MISSING, PARTLY, REPRODUCED, UNDECIDED, UNTESTABLE, Finding, Missing
from flashtrace_lib.metrics.intervals import MIN_SAMPLES

NAN = math.nan


def f(value, low=NAN, high=NAN, n=10, **more):
    return Finding("x", value, low, high, n, **more)


def g(value, low=NAN, high=NAN, **more):
    """A number that is no mean over samples."""
    return f(value, low, high, None, **more)


CASES = [
    (rules.above_zero(), [f(1, 0.5, 2), f(2, 0.1, 3)], REPRODUCED),
    (rules.above_zero(), [f(1, 0.5, 2), f(2, -0.1, 3)], PARTLY),
    (rules.above_zero(), [f(2, -0.1, 3)], UNDECIDED),
    (rules.above_zero(), [f(2, -0.1, 3), f(-2, -3, -1)], FAILED),
    (rules.above_zero(), [f(-2, -3, -1)], FAILED),
    (rules.above_zero(), [f(1, 0.5, 2, n=5)], UNTESTABLE),
    (rules.above_zero(), [f(1)], UNTESTABLE),  # a mean of samples without an interval
    (rules.above_zero(), [f(1, 0.5, 2, n=5), f(-1, -2, 0.5, n=6)], UNDECIDED),
    (rules.above_zero(), [f(1, 0.5, 2, n=None)], REPRODUCED),
    (rules.above_zero(), [], MISSING),
    (rules.below_zero(), [f(-1, -2, -0.1)], REPRODUCED),
    (rules.below_zero(), [f(-1, -2, 0)], UNDECIDED),
    (rules.below_zero(), [f(1, 0.5, 2)], FAILED),
    (rules.above_zero(), [f(-0.3, -0.6, 0)], UNDECIDED),  # a bound of 0 refutes nothing
    (rules.below_zero(), [f(0.3, 0, 0.6)], UNDECIDED),
    (rules.above_zero(), [f(0, 0, 0)], UNDECIDED),
    (rules.within(0.1), [f(0.05, -0.1, 0.1)], REPRODUCED),
    (rules.within(0.1), [f(0, -0.2, 0.2)], UNDECIDED),  # holding 0 shows no agreement
    (rules.within(0.1), [f(0.2, 0.11, 0.3)], FAILED),
    (rules.within(0.1), [f(-0.2, -0.3, -0.11)], FAILED),
    (rules.at_least(3), [g(3)], REPRODUCED),
    (rules.at_least(3), [f(3.5, 2.9, 4)], UNDECIDED),
    (rules.at_least(3), [f(2.5, 2, 2.9)], FAILED),
    (rules.at_most(3), [g(3)], REPRODUCED),
    (rules.at_most(3), [f(2.5, 2, 3.1)], UNDECIDED),
    (rules.at_most(3), [g(3.1)], FAILED),
    (rules.at_least_the_papers(), [g(2, paper=2)], REPRODUCED),
    (rules.at_least_the_papers(), [g(2, paper=2.1)], FAILED),
    (rules.at_least_the_papers(), [f(2, 1, 3, paper=1.5)], UNDECIDED),
    (rules.at_least_the_papers(), [g(2)], UNDECIDED),  # the paper prints none: nothing is shown
    (rules.at_least_the_papers(scale=100), [g(2, paper=3, scale=99)], UNTESTABLE),
    (rules.at_least_the_papers(scale=100), [g(2, paper=3, scale=100)], FAILED),
    (rules.at_least_the_papers(scale=100), [g(4, paper=3, scale=10)], REPRODUCED),
    (rules.at_least_the_papers(scale=100), [g(2, 2, math.inf, paper=3, scale=100)], UNDECIDED),  # "at least 2"
    (rules.at_most_the_papers(), [g(2, paper=2)], REPRODUCED),
    (rules.at_most_the_papers(), [g(2, paper=1.9), g(1, paper=1.9)], PARTLY),
    (rules.at_most_the_papers(), [f(2, 1, 3, paper=1.9)], UNDECIDED),
    (rules.at_most_the_papers(), [f(2, 1.95, 3, paper=1.9)], FAILED),
    (rules.equals_the_papers(), [g(100, paper=100)], REPRODUCED),
    (rules.equals_the_papers(), [g(0, paper=100)], FAILED),
    (rules.rising(), [g(1), g(2), g(3)], REPRODUCED),
    (rules.rising(), [g(1), g(0), g(3)], PARTLY),
    (rules.rising(), [g(1), g(2), g(1)], FAILED),
    (rules.rising(), [f(1, 0, 2), f(3, 2.1, 4)], REPRODUCED),
    (rules.rising(), [f(1, 0, 2), f(3, 1.9, 4)], UNDECIDED),
    (rules.rising(), [f(1, 0, 2), f(2, 1, 3), f(3, 2.1, 4)], PARTLY),
    (rules.rising(), [g(1), f(2, 1, 3, n=5)], UNTESTABLE),
    (rules.rising(), [g(1)], UNTESTABLE),
    (rules.falling(), [g(3), g(2), g(1)], REPRODUCED),
    (rules.falling(), [g(3), g(4), g(1)], PARTLY),
    (rules.falling(), [g(1), g(1)], FAILED),
    (rules.linear(), [f(1, 0.9, 1.1)], REPRODUCED),
    (rules.linear(), [f(0.6, 0.3, 0.8)], UNDECIDED),  # fixed costs beside those that grow
    (rules.linear(), [f(1, 0.5, 1.1)], UNDECIDED),
    (rules.linear(), [f(1.5, 1.2, 1.9)], FAILED),
    (rules.untestable("no"), [], UNTESTABLE),
]


@pytest.mark.parametrize(("rule", "findings", "verdict"), CASES)
def test_a_rule_on_a_case_made_by_hand(rule, findings, verdict):
    assert rule.verdict(findings) == verdict


WIDTHS = st.floats(0, 3)
INTERVALS = st.tuples(st.floats(-3, 3), WIDTHS, WIDTHS).map(lambda t: (t[0] - t[1], t[0], t[0] + t[2]))
OPPOSITES = [
    (rules.above_zero(), lambda x: x <= 0),
    (rules.below_zero(), lambda x: x >= 0),
    (rules.within(0.5), lambda x: abs(x) > 0.5),
    (rules.at_least(1), lambda x: x < 1),
    (rules.at_most(1), lambda x: x > 1),
    (rules.linear(0.5), lambda x: abs(x - 1) > 0.5),
    (rules.at_least_the_papers(), lambda x: x < 1),
    (rules.at_most_the_papers(), lambda x: x > 1),
]


@pytest.mark.parametrize(("rule", "opposite"), OPPOSITES)
@given(st.lists(INTERVALS, min_size=1, max_size=4), st.integers(1, 12))
@settings(derandomize=True, max_examples=60)
def test_nothing_is_reproduced_while_an_interval_holds_the_opposite(rule, opposite, intervals, n):
    findings = [f(value, low, high, n=n, paper=1) for low, value, high in intervals]
    found = rule.verdict(findings)
    if found == REPRODUCED:
        assert n >= MIN_SAMPLES
        assert not any(opposite(x) for low, _, high in intervals for x in np.linspace(low, high, 5))
    if found == FAILED:  # and nothing is refuted by an interval that holds the claim throughout
        assert any(opposite(low) and opposite(high) for low, _, high in intervals)


@given(st.lists(INTERVALS, min_size=2, max_size=5))
@settings(derandomize=True, max_examples=100)
def test_a_series_is_not_reproduced_while_intervals_hold_the_opposite(intervals):
    findings = [f(value, low, high) for low, value, high in intervals]
    if rules.rising().verdict(findings) == REPRODUCED:
        assert all(b[0] > a[2] for a, b in pairwise(intervals))


def test_every_rule_has_a_case():
    made = {getattr(rule.holds or rule.series, "__qualname__", "untestable").split(".")[0] for rule, *_ in CASES}
    used = {getattr(c.rule.holds or c.rule.series, "__qualname__", "untestable").split(".")[0] for c in CLAIMS}
    assert used <= made


def test_a_claim_about_more_than_was_measured_is_at_most_partly_reproduced():
    rule = rules.above_zero()
    absent = Finding("another baseline", math.nan, absent=True)
    held, refuted, open_ = f(1, 0.5, 1.5), f(-1, -1.5, -0.5), f(0, -1, 1)
    assert rule.verdict([held, held]) == REPRODUCED
    assert rule.verdict([held, held, absent]) == PARTLY
    assert rule.verdict([refuted, absent]) == FAILED
    assert rule.verdict([open_, absent]) == UNDECIDED
    assert rule.verdict([absent]) == UNTESTABLE


def test_what_is_no_number_gets_no_verdict():
    with pytest.raises(Missing, match="not defined"):
        f(NAN)
    with pytest.raises(ValueError, match="no interval"):
        f(1, 3, 2)
    with pytest.raises(ValueError, match="no interval"):
        f(1, 3)
