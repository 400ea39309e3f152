from flashtrace_lib.text.locate import find_boxed, locate_segments


def test_boxed_braces():
    text = r"\boxed{1} then \boxed{\{1, 2\} \frac{a}{b}} and \boxed{open"
    start, stop = find_boxed(text)
    assert text[start:stop] == r"\boxed{\{1, 2\} \frac{a}{b}}"
    assert find_boxed(r"boxed{1}") is None


def test_reasoning_is_looked_for_before_the_output():
    text = "one two one"
    thought, out = locate_segments(text, "one", "two")
    assert text[slice(*thought)] == "one" and thought[0] == 0 and out == (4, 7)
