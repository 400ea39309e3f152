"""The reader of settings: types, limits and keys of a class of its own, and the profiles through it and back."""

import dataclasses
import json
from dataclasses import dataclass, field

import pytest

from flashtrace_book.profiles import Profile, load_profile, profile_names
from flashtrace_book.settings import Settings, file_names, load, read


@dataclass(frozen=True)
class Part(Settings, section="part"):
    """Settings under one key."""

    size: int
    share: float = 0.5
    names: tuple[str, ...] = ("a",)


@dataclass(frozen=True)
class Whole(Settings):
    """Settings with one section."""

    part: Part
    shift: int = field(default=0, metadata={"least": -1})
    rate: float = field(default=1.0, metadata={"above": 0})
    kind: str | None = field(default=None, metadata={"choices": ("x", "y")})
    bounds: tuple[int, ...] | None = None
    extra: tuple[str, ...] = field(default=(), metadata={"may_be_empty": True})
    on: bool = True
    sizes: dict[str, int] = field(default_factory=dict)


def test_values_keep_their_types_and_lists_become_tuples():
    made = read(Whole, {"part": {"size": 2, "share": 1, "names": ["b", "c"]}, "bounds": [1, 3], "sizes": {"k": 4}})
    assert made == Whole(Part(2, 1, ("b", "c")), bounds=(1, 3), sizes={"k": 4})
    assert isinstance(made.part.share, int) and made.extra == () and made.kind is None
    assert read(Whole, {"part": made.part, "bounds": None, "shift": -1}).part is made.part


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"part": 3}, "^part must be a dict, got 3"),
        ({"part": {}}, r"^missing key part\.size: add it"),
        ({"part": {"size": 1, "sze": 1}}, r"^unknown key part\.sze: known are part\.size, part\.share, part\.names"),
        ({"part": {"size": 1.0}}, r"^part\.size must be a whole number of at least 1, got 1\.0"),
        ({"part": {"size": True}}, r"^part\.size must be a whole number"),
        ({"part": {"size": 1, "share": float("nan")}}, r"^part\.share must be a finite number >= 0, got nan"),
        ({"part": {"size": 1, "names": []}}, r"^part\.names must be a list of one or more names"),
        ({"shift": -2}, "^shift must be a whole number of at least -1"),
        ({"rate": 0}, "^rate must be a finite number > 0, got 0"),
        ({"rate": "1e-3"}, r"^rate must .*write 1\.0e-3"),
        ({"kind": "z"}, "^kind must be one of x, y, got 'z'"),
        ({"bounds": [3, 3]}, "^bounds must ascend"),
        ({"extra": "ab"}, "^extra must be a list of names, got 'ab'"),
        ({"on": 1}, "^on must be true or false, got 1"),
        ({"sizes": {"k": 0}}, r"^sizes\.k must be a whole number of at least 1"),
        ({"sizes": {1: 1}}, "^a key of sizes must be a str, got 1"),
        ({1: 1}, "^unknown key 1: known are part, shift"),
    ],
)
def test_the_error_names_section_and_field(changes, message):
    with pytest.raises(ValueError, match=message):
        read(Whole, {"part": {"size": 1}} | changes)


def test_a_changed_copy_is_checked_too():
    made = Part(1)
    with pytest.raises(ValueError, match=r"part\.size must be"):
        dataclasses.replace(made, size=0)


def test_files_are_found_by_name_or_path_and_named_in_errors(tmp_path):
    (tmp_path / "mine.yaml").write_text("part: {size: 1}\nrate: 2.0\n")
    assert file_names(tmp_path) == ["mine"]
    made = load(Whole, tmp_path, "mine", "recipe")
    assert made == load(Whole, tmp_path / "elsewhere", tmp_path / "mine.yaml", "recipe") == Whole(Part(1), rate=2.0)
    assert load(Whole, tmp_path, "mine", "recipe", rate=3.0, kind="x") == Whole(Part(1), rate=3.0, kind="x")
    with pytest.raises(ValueError, match=r"recipe mine\.yaml: rate must be"):
        load(Whole, tmp_path, "mine", "recipe", rate=-1)
    with pytest.raises(
        ValueError, match="no recipe 'yours': known are mine; a recipe of your own is named by the path"
    ):
        load(Whole, tmp_path, "yours", "recipe")


@pytest.mark.parametrize("name", profile_names())
def test_a_profile_survives_json(name):
    profile = load_profile(name)
    assert read(Profile, json.loads(json.dumps(profile.to_dict()))) == profile
