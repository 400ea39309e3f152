"""The scorecard shows what the page of claims says, a strip for each claim."""

import json

import pytest
from matplotlib.patches import FancyBboxPatch

from flashtrace_book.claims import rules
from flashtrace_book.figures import scorecard
from tests.environment import ROOT

JUDGED = json.loads((ROOT / "figures" / "claims.json").read_text())


def test_every_claim_of_the_profile_has_a_strip_with_its_verdict():
    shown = [claim for claim in JUDGED if "laptop" in claim["verdicts"]]
    fig = scorecard.scorecard(JUDGED, "laptop", title="t")
    [ax] = fig.axes
    boxes = [patch for patch in ax.patches if isinstance(patch, FancyBboxPatch)]
    assert len(boxes) == len(shown)
    assert [text.get_text() for text in ax.texts if text.get_ha() == "center"] == [
        found["verdict"].replace(" at this scale", "") + "".join(f" {mark}" for mark in found.get("marks", {}))
        for found in (claim["verdicts"]["laptop"] for claim in shown)
    ]
    marks = [line for line in ax.lines]
    checked = [claim["verdicts"]["laptop"].get("checked", {"checks": []})["checks"] for claim in shown]
    assert len(marks) == sum(map(len, checked)) > 0


def test_every_verdict_and_sign_has_a_look():
    assert set(scorecard.COLOURS) == set(rules.VERDICTS)
    signs = {
        check["sign"]
        for claim in JUDGED
        for found in claim["verdicts"].values()
        for check in found.get("checked", {"checks": []})["checks"]
    }
    assert signs <= set(scorecard.MARKS)


def test_an_unknown_profile_is_refused():
    with pytest.raises(ValueError, match="no claim has a verdict under profile 'x'"):
        scorecard.scorecard(JUDGED, "x")


def test_our_numbers_in_a_few_words():
    one = {
        "name": "a: b",
        "value": 0.5,
        "low": 0.4,
        "high": 0.6,
        "n": 8,
        "counts": True,
        "absent": False,
        "holds": True,
    }
    assert scorecard.found_text({"verdict": "reproduced", "findings": [one]}) == "0.5 [0.4, 0.6], n = 8"
    two = [one, one | {"holds": False}]
    assert scorecard.found_text({"verdict": "partly reproduced", "findings": two}) == "1 of 2 numbers hold"
    absent = one | {"value": None, "counts": False, "absent": True, "holds": False}
    partly = {"verdict": "partly reproduced", "findings": [one, one, absent]}
    assert scorecard.found_text(partly) == "2 of 2 numbers hold, 1 not judged"
    assert scorecard.found_text({"verdict": "not measured", "findings": []}) == "–"
