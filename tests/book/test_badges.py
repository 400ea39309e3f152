"""Badges: SVG that says what the claims say, and fetches nothing."""

import xml.etree.ElementTree as ElementTree

from flashtrace_book.claims import badges, judge
from flashtrace_lib import files
from flashtrace_lib._version import __version__

SVG = "{http://www.w3.org/2000/svg}"


def test_a_badge_is_svg_with_both_texts_escaped():
    drawn = ElementTree.fromstring(badges.badge("a < b", "5 & more"))
    assert [text.text for text in drawn.iter(f"{SVG}text")] == ["a < b", "5 & more"]
    assert drawn.get("aria-label") == "a < b: 5 & more"
    boxes = list(drawn.iter(f"{SVG}rect"))[1:]
    assert sum(int(box.get("width")) for box in boxes) == int(drawn.get("width"))
    assert "http" not in badges.badge("a", "b").replace(SVG[1:-1], "")


def test_badges_count_the_claims_of_each_profile(tmp_path, monkeypatch):
    def found(*verdicts):
        return {"verdicts": {name: {"verdict": verdict} for name, verdict in zip("ab", verdicts, strict=True)}}

    judged = [found("reproduced", "not measured"), found("reproduced", "undecided"), found("undecided", "undecided")]
    judged.append({"verdicts": {judge.OWN: {"verdict": "not reproduced"}}})
    drawn = badges.claim_badges(judged)
    assert list(drawn) == ["claims_a", "claims_b"]
    assert "2 reproduced · 1 undecided" in drawn["claims_a"] and ">2 undecided<" in drawn["claims_b"]
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(tmp_path))
    assert {path.name for path in badges.write(judged)} == {
        "python.svg", "licence.svg", "claims_a.svg", "claims_b.svg",
    }  # fmt: skip
    assert all(path.is_file() for path in (tmp_path / "badges").iterdir())


def test_the_citation_names_this_version():
    assert f"\nversion: {__version__}\n" in (files.root() / "CITATION.cff").read_text()
