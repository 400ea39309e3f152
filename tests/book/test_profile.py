"""Profiles: three of the book's own, and errors that name section and key."""

import pytest
import yaml

from flashtrace_book.experiments import MAKERS
from flashtrace_book.experiments.groups import Group, Plan, method_named
from flashtrace_book.profile import FOLDER, load_profile, read


@pytest.mark.parametrize("name", ["book", "paper", "smoke"])
def test_every_section_can_be_read_and_every_method_made(name):
    profile = load_profile(name)
    assert set(profile.results) <= set(load_profile("book").results)
    for section, parts in profile.results.items():
        assert set(parts) <= set(MAKERS), section
        for number, data in enumerate(parts.get("groups", ())):
            group = read(Group, data, f"{section}[{number}]")
            assert group.model in profile.models
            for plan in group.plans:
                for label in read(Plan, plan, section).methods:
                    method_named(profile, label)


@pytest.mark.parametrize(("changes", "message"), [
    ({"nonsense": 1}, "unknown key nonsense"), ({"models": {"a": {"lode": "x"}}}, "models.a has the unknown key lode"),
    ({"models": {"a": {}}}, "models.a lacks load"), ({"models": {"a": 3}}, "models.a must hold"),
])  # fmt: skip
def test_a_wrong_profile_says_where(tmp_path, changes, message):
    data = yaml.safe_load((FOLDER / "smoke.yaml").read_text(encoding="utf-8"))
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(data | changes), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_profile(tmp_path / "mine.yaml")


def test_an_unknown_profile_lists_the_three_known_ones():
    with pytest.raises(ValueError, match="choose one of book, paper, smoke"):
        load_profile("laptop")
