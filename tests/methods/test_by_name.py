"""A method that is named: found, with its hops, or refused with the names there are."""

import pytest

from flashtrace_lib.methods import GIM, IFR, METHODS, FlashTrace, chosen_method, with_hops


def test_a_name_is_the_method_with_its_defaults():
    for name in METHODS:
        assert chosen_method(name) == METHODS[name]()
    assert chosen_method(None, 2) == chosen_method("flashtrace", 2) == FlashTrace(hops=2)
    mine = FlashTrace(hops=3)
    assert chosen_method(mine) is mine


def test_hops_are_for_methods_that_have_them():
    assert "flashtrace" in with_hops() and "ifr" not in with_hops()
    assert chosen_method("ifr") == IFR()
    with pytest.raises(ValueError, match=r"'ifr' has no hops: leave hops out, or choose one of flashtrace, "):
        chosen_method("ifr", 1)
    with pytest.raises(ValueError, match="hops=2 beside a method that has its options: give hops to the method"):
        chosen_method(FlashTrace(), 2)


@pytest.mark.parametrize("given, message", [
    ("IFR", r"there is no method 'IFR'\. Did you mean 'ifr'\? Known: flashtrace, "),
    ("attn_lrp", r"Did you mean 'attnlrp'\?"), ("xxxxxxxxx", r"there is no method 'xxxxxxxxx'\. Known: "),
    (GIM, r"method is the class GIM: call it; it must be one that attributes"),
    (7, r"method is 7; it must be one that attributes, like FlashTrace\(\), or the name of one"),
])  # fmt: skip
def test_what_is_no_method_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        chosen_method(given)
