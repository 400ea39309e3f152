from flashtrace_lib.text.labels import find_boxed
from flashtrace_lib.text.locate import locate_segments


def test_boxed_braces():
    text = r"\boxed{1} then \boxed{\{1, 2\} \frac{a}{b}} and \boxed{open"
    start, stop = find_boxed(text)
    assert text[start:stop] == r"\boxed{\{1, 2\} \frac{a}{b}}"
    assert find_boxed(r"boxed{1}") is None


def test_reasoning_is_looked_for_before_the_output():
    found = locate_segments("one two one", "one", "two")
    assert found.reasoning == (0, 3) and found.output == (4, 7)
