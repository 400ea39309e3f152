"""Profiles: what is read, and what is refused with which words."""

import dataclasses
import json

import pytest
import yaml

from flashtrace_book.methods import check_methods
from flashtrace_book.profiles import load_profile, profile_names

CELLS = {"mq_q2", "mq_q4", "mq_q8", "mv_v2", "mv_v4", "mv_v8", "h2_c3", "h4_c1", "h6_c1", "h10_c1"}


@pytest.fixture
def write(tmp_path):
    """Write a changed copy of a good profile and return its path; a value of None drops the key."""

    def _write(ruler=None, **changes):
        data = {
            "name": "mine", "description": "a test", "model": "embedded-base", "methods": ["flashtrace"],
            "ruler": {"cells": ["mq_q2", "h4_c1"], "length": 300, "samples": 2, "max_tries": 4, "max_new_tokens": 32},
        }  # fmt: skip
        data["ruler"].update(ruler or {})
        data.update(changes)
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump({key: value for key, value in data.items() if value is not None}))
        return path

    return _write


@pytest.mark.parametrize("name", profile_names())
def test_profiles_of_the_library_are_valid(name):
    profile = load_profile(name)
    assert profile.name == name
    assert json.loads(json.dumps(profile.to_dict()))["ruler"]["length"] == profile.ruler.length


def test_laptop_covers_the_ten_cells_and_smoke_is_smaller():
    laptop, smoke = load_profile("laptop"), load_profile("smoke")
    assert set(laptop.ruler.cells) == CELLS and set(smoke.ruler.cells) < CELLS
    assert smoke.ruler.samples <= laptop.ruler.samples and smoke.steps < laptop.steps
    assert all(smoke.ruler.length_of(cell) < laptop.ruler.length_of(cell) for cell in smoke.ruler.cells)
    assert any(cell.startswith("m") for cell in smoke.ruler.cells) and any(c.startswith("h") for c in smoke.ruler.cells)


def test_path_defaults_and_length_of_a_cell(write):
    profile = load_profile(write(ruler={"lengths": {"h4_c1": 400}}))
    assert (profile.hops, profile.steps, profile.dtype, profile.seed, profile.data_dir) == (1, 20, "float32", 0, None)
    assert profile.ruler.length_of("mq_q2") == 300
    assert profile.ruler.length_of("h4_c1") == 400
    assert profile.ruler.cells == ("mq_q2", "h4_c1")


def test_new_tokens_of_a_cell_stand_in_for_the_limit_of_all(write):
    ruler = load_profile(write(ruler={"new_tokens": {"h4_c1": 64}})).ruler
    assert (ruler.new_tokens_of("mq_q2"), ruler.new_tokens_of("h4_c1")) == (32, 64)


def test_profile_cannot_be_changed(write):
    with pytest.raises(dataclasses.FrozenInstanceError):
        load_profile(write()).seed = 1


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"no profile 'desktop': known are .*laptop.*smoke"):
        load_profile("desktop")


@pytest.mark.parametrize("name", ["../profiles/laptop", "missing.yaml", ""])
def test_a_name_is_no_path(name):
    with pytest.raises(ValueError, match="no profile"):
        load_profile(name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": "red"}, r"mine\.yaml: unknown key colour: known are name, description, model"),
        ({"ruler": {"lenght": 3}}, r"unknown key ruler\.lenght: known are ruler\.cells, ruler\.length"),
        ({"model": None}, "missing key model"),
        ({"name": "My profile"}, "cannot name a folder"),
        ({"methods": "flashtrace"}, "methods must be a list"),
        ({"methods": ["ifr", "ifr"]}, "names something twice"),
        ({"dtype": "int8"}, "dtype must be one of float32"),
        ({"hops": -1}, "hops must be a whole number of at least 0"),
        ({"seed": "0"}, "seed must be a whole number"),
        ({"steps": True}, "steps must be a whole number"),
        ({"data_dir": 3}, "data_dir must be a str"),
        ({"ruler": {"samples": 0}}, "ruler.samples must be a whole number of at least 1"),
        ({"ruler": {"samples": 9}}, "max_tries 4 is less than ruler.samples 9"),
        ({"ruler": {"haystack": "straw"}}, "ruler.haystack must be one of essay, essay-prefix, noise"),
        ({"ruler": {"lengths": {"mv_v8": 300}}}, "a cell of ruler.lengths must be one of mq_q2, h4_c1"),
        ({"ruler": {"lengths": {"mq_q2": 0}}}, r"ruler\.lengths\.mq_q2 must be"),
        ({"ruler": {"new_tokens": {"mv_v8": 64}}}, "a cell of ruler.new_tokens must be one of mq_q2, h4_c1"),
        ({"ruler": {"new_tokens": {"mq_q2": 0}}}, r"ruler\.new_tokens\.mq_q2 must be"),
        ({"ruler": {"one_shot": "yes"}}, "ruler.one_shot must be one of True, False, auto"),
        ({"method_options": [1]}, "method_options must be a dict"),
        ({"method_options": {"ifr": 3}}, r"method_options\.ifr must be a dict"),
        ({"ruler": {"cells": "mq_q2"}}, "ruler.cells must be a list"),
        ({"hotpotqa": {"long_lengths": [512, 256]}}, r"hotpotqa\.long_lengths must ascend"),
        ({"hotpotqa": {"samples": 9, "max_tries": 8}}, "hotpotqa.max_tries 8 is less than the samples wanted"),
        (
            {"generalisation": {"task_samples": 9, "max_tries": 8}},
            r"generalisation\.max_tries 8 is less than the samples",
        ),
        ({"generalisation": {"cells": ["mv_v8"]}}, r"generalisation\.cells mv_v8: not among ruler\.cells"),
        (
            {"generalisation": {"step_by_step": ["mv_v8"]}},
            r"generalisation\.step_by_step mv_v8: not among ruler\.cells",
        ),
        ({"hotpotqa": {"gold": "word"}}, "hotpotqa.gold must be one of sentence, paragraph"),
    ],
)
def test_what_does_not_fit_is_refused(write, changes, message):
    with pytest.raises(ValueError, match=message):
        load_profile(write(**changes))


@pytest.mark.parametrize("text", ["- a list", "a: b: c", ""])
def test_a_file_that_is_no_profile_is_refused(tmp_path, text):
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"profile odd\.yaml"):
        load_profile(path)


def test_ruler_must_be_a_mapping(tmp_path):
    path = tmp_path / "odd.yaml"
    path.write_text("name: odd\ndescription: d\nmodel: m\nmethods: [ifr]\nruler: 512\n")
    with pytest.raises(ValueError, match="ruler must be a dict"):
        load_profile(path)


def test_a_profile_may_have_no_generated_cells(write):
    assert load_profile(write(ruler={"cells": []})).ruler.cells == ()


def test_a_file_of_ones_own_cannot_take_the_name_of_a_profile_of_the_book(write):
    with pytest.raises(ValueError, match="the name 'laptop' is that of a profile of the book"):
        load_profile(write(name="laptop"))


def test_methods_and_options_are_made_before_anything_runs(write):
    check_methods(load_profile(write()))
    for changes, message in (
        ({"methods": ["nosuch"]}, "unknown methods"),
        ({"method_options": {"reagent": {"foo": 1}}}, "method reagent has no option foo"),
        ({"pilot": {"methods": ["nosuch"]}}, "unknown methods"),
    ):
        with pytest.raises(ValueError, match=message):
            check_methods(load_profile(write(**changes)))
