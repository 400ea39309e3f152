"""The list of claims: sound, complete, and read with an error that names the line of a mistake."""

import re

import numpy as np
import pytest
import yaml

from flashtrace_book.claims.claim import CLAIMS, MEASURED, read_claims
from flashtrace_book.claims.numbers import BASELINES
from flashtrace_book.claims.printed_numbers import PRINTED, STEPS, masked_of_remaining
from flashtrace_book.claims.rules import RULES
from flashtrace_book.paper_numbers import NIAH_CELLS, RULER_CELLS, VT_CELLS, paper_value
from flashtrace_lib.metrics import HIGHER_IS_BETTER
from tests.environment import ROOT

FILE = ROOT / "notebooks" / "flashtrace_book" / "claims" / "claims.yaml"
BY_KEY = {claim.key: claim for claim in CLAIMS}


def test_the_list_of_claims_is_sound():
    assert len({claim.key for claim in CLAIMS}) == len(CLAIMS) >= 25
    books = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    books |= {path.stem for path in (ROOT / "notebooks" / "py").glob("*.py")}
    assert {claim.notebook for claim in CLAIMS} <= books
    assert all(claim.where and claim.paper for claim in CLAIMS)


def test_every_function_that_the_list_may_name_is_named():
    entries = yaml.safe_load(FILE.read_text())
    assert len(entries) == len(CLAIMS)
    for field, functions in (("rule", RULES), ("measured", MEASURED), ("printed", PRINTED)):
        calls = [entry[field] for entry in entries if field in entry]
        assert {call if isinstance(call, str) else next(iter(call)) for call in calls} == set(functions)


def ahead(metric, cells=RULER_CELLS, methods=BASELINES):
    """In how many cells of the paper's Table 1 FlashTrace is ahead of these methods."""
    sign = 1 if HIGHER_IS_BETTER[metric] else -1
    value = {(m, c): sign * paper_value(1, m, c, metric) for m in ("flashtrace", *methods) for c in cells}
    return f"{sum(all(value['flashtrace', c] > value[m, c] for m in methods) for c in cells)} of {len(cells)} cells"


def test_the_counts_of_cells_are_those_of_the_papers_table():
    assert BY_KEY["ruler_recovery"].paper == ahead("recovery", NIAH_CELLS + VT_CELLS, ("ifr",))
    for metric, key in {"recovery": "ruler_recovery_all", "rise": "ruler_rise", "mas": "ruler_mas"}.items():
        assert BY_KEY[key].paper == ahead(metric)


def test_the_papers_own_bounds():
    """The floor of the printed MAS, by search: no curve and no scores in descending order come below it."""
    floor = (STEPS + 1) / (2 * STEPS)
    assert BY_KEY["printed_mas"].rule.text.startswith(f"MAS is at least {floor:g} ")
    assert BY_KEY["printed_rise"].rule.text.startswith(f"RISE is at least {1 / (2 * STEPS):g} ")
    rng = np.random.default_rng(0)
    for _ in range(300):
        scores = np.sort(rng.exponential(size=STEPS) ** rng.uniform(0, 3))[::-1]
        curve = np.minimum.accumulate(rng.uniform(size=STEPS) ** rng.uniform(0, 9))
        printed = curve.mean() + np.abs(curve - np.cumsum(scores) / scores.sum()).mean()
        assert printed >= floor - 1e-12
    even = np.arange(1, STEPS + 1) / STEPS
    assert np.abs(0 - even).mean() == pytest.approx(floor)
    assert masked_of_remaining()[0].value == pytest.approx(0.6415, abs=1e-4)


GOOD = """\
- key: growth
  text: Time grows
  where: "4"
  paper: O(N)
  notebook: 04_efficiency
  rule: {at_most: {bound: 1}}
  measured: growth_with_input
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("  paper: O(N)\n", "", 1, "the claim lacks the field paper"),
        ("paper:", "papers:", 4, "unknown field 'papers': known are key, text"),
        ("paper:", "text:", 4, "the claim has the field 'text' twice"),
        ('"4"', "4", 3, "where must be text; put a number in quotes"),
        ("at_most", "at_mots", 6, "rule has no function 'at_mots': known are above_zero"),
        ("bound: 1", "bond: 1", 6, "rule at_most: missing a required argument: 'bound'"),
        ("bound: 1", "bound: one", 6, "rule at_most: Unknown format code 'g'"),
        ("{at_most: {bound: 1}}", "[at_most, 1]", 6, "rule must be given as a name, or as {name: {option: value}}"),
        ("growth_with_input", "growht", 7, "measured has no function 'growht': known are against_methods"),
        ("growth_with_input", "{growth_with_input: {axis: input}}", 7, "measured growth_with_input: got an unexpected"),
        ("  measured: growth_with_input\n", "", 1, "a claim is either measured or printed, and neither if"),
        ("measured: growth_with_input", "printed: masked_of_remaining\n  measured: mass_trend", 1, "a claim is either"),
        ("{at_most: {bound: 1}}", "{untestable: {reason: none}}", 1, "a claim is either measured or printed"),
        ("{at_most: {bound: 1}}", "{at_most: {bound: 1}", 7, "expected ',' or '}'"),
        (GOOD, GOOD + GOOD, 8, "there is a claim 'growth' above"),
        (GOOD, "- growth\n", 1, "a claim must be given as `field: value` lines"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path, old, new, line, message):
    path = tmp_path / "claims.yaml"
    path.write_text(GOOD)
    assert [claim.key for claim in read_claims(path)] == ["growth"]
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ValueError, match=re.escape(f"claims.yaml, line {line}: {message}")):
        read_claims(path)


def test_a_file_without_a_list_is_refused(tmp_path):
    path = tmp_path / "claims.yaml"
    for text in ("", "key: growth\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match="must hold a list of claims"):
            read_claims(path)
