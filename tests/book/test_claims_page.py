"""The page of claims when a chapter puts the verdicts of its own profile there."""

import json

import pytest

from flashtrace_book import paths
from flashtrace_book.claims import judge
from flashtrace_book.claims.page import PAGE, with_the_page
from tests.environment import ROOT

COMMITTED = json.loads((ROOT / "figures" / PAGE).read_text())


def of_profile(name, changed=None):
    """The committed claims with the verdicts of one profile alone; ``changed`` stands for each of them."""
    kept = (name, judge.OWN)
    return [
        claim | {"verdicts": {key: changed or found for key, found in claim["verdicts"].items() if key in kept}}
        for claim in COMMITTED
    ]


@pytest.fixture(autouse=True)
def page(tmp_path, monkeypatch):
    """A page that is none of the checkout's; what would be judged again is a word."""
    monkeypatch.setattr(judge, "judge_all", lambda: "judged again")
    monkeypatch.setattr(judge, "profiles_with_tables", lambda: ["evidence", "laptop", "real"])
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(tmp_path))
    return paths.figures_root() / PAGE


@pytest.mark.parametrize("written", [True, False], ids=["its own page", "the committed page"])
def test_verdicts_of_other_profiles_are_those_of_the_page(page, written):
    if written:
        page.write_text(json.dumps(COMMITTED))
    assert with_the_page(of_profile("laptop")) == COMMITTED
    new = {"verdict": "new", "missing": "", "findings": []}
    for claim, before in zip(with_the_page(of_profile("laptop", new)), COMMITTED, strict=True):
        kept = set() if judge.OWN in before["verdicts"] else {"evidence", "real"}
        assert {name for name, found in claim["verdicts"].items() if found == before["verdicts"][name]} == kept
        assert list(claim["verdicts"]) == list(before["verdicts"])


def test_everything_is_judged_again_where_the_page_is_of_other_claims_or_lacks_a_profile(page, monkeypatch):
    page.write_text(json.dumps(COMMITTED[1:]))
    assert with_the_page(of_profile("laptop")) == "judged again"
    page.write_text(json.dumps([COMMITTED[0] | {"rule": "another"}, *COMMITTED[1:]]))
    assert with_the_page(of_profile("laptop")) == "judged again"
    page.write_text("[{")
    assert with_the_page(of_profile("laptop")) == "judged again"
    page.write_text(json.dumps(of_profile("evidence")))
    assert with_the_page(of_profile("laptop")) == "judged again"
    monkeypatch.setattr(judge, "profiles_with_tables", lambda: ["laptop"])  # one that is gone is on the page no more
    shown = with_the_page(of_profile("laptop"))
    assert {name for claim in shown for name in claim["verdicts"]} == {"laptop", judge.OWN}
