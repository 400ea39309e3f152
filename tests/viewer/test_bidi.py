"""Right-to-left text reads in its own order on the page of a trace and in a heatmap, however tokens split it."""

from dataclasses import replace

import numpy as np
import pytest

from flashtrace_lib import Trace
from flashtrace_lib.viewer.html import token_heatmap

# Tokens of each line, and the same from left to right as a reader of that line sees them.
LINES = [
    (["של", "ום", " עו", "לם"], ["לם", " עו", "ום", "של"]),
    (["ال", "قطار", " إلى", " تون", "س"], ["س", " تون", " إلى", "قطار", "ال"]),
    (["רכ", "בת", " 4", "2", " Ly", "on", " עכ", "שיו"], ["שיו", " עכ", " Ly", "on", " 4", "2", "בת", "רכ"]),
    (["Say", " של", "ום", " at", " 7"], ["Say", "ום", " של", " at", " 7"]),
    (["The", " tra", "in"], ["The", " tra", "in"]),
]
TOKENS = [token for tokens, _ in LINES for token in [*tokens, "\n"]]
LEFT = """all => all.map((token) => {
    const letters = document.createRange(), text = token.firstChild;
    letters.setStart(text, text.data.search(/\\S/));  // the space before a word may stand elsewhere
    letters.setEnd(text, text.length);
    return letters.getBoundingClientRect().left;
})"""


def in_order_of_sight(shown):
    """Tokens of each line from left to right, as the browser laid them out; ``shown`` has one element a token."""
    left, out, at = shown.evaluate_all(LEFT), [], 0
    for tokens, _ in LINES:
        out.append([tokens[k] for k in np.argsort(left[at : at + len(tokens)], kind="stable")])
        at += len(tokens) + 1
    return out


@pytest.fixture
def page_of_trace(browser_page, traced, tmp_path):
    """The page of a trace whose input is ``LINES``."""
    start, stop = traced.sample.segments.prompt
    assert stop - start >= len(TOKENS)
    tokens = list(traced.sample.tokens)
    tokens[start:stop] = [*TOKENS, *[" x"] * (stop - start - len(TOKENS))]
    Trace(replace(traced.sample, tokens=tokens), traced.attribution).to_html(tmp_path / "t.html")
    browser_page.goto((tmp_path / "t.html").as_uri() + "#by=words")
    return browser_page


def test_the_page_of_a_trace(page_of_trace):
    assert in_order_of_sight(page_of_trace.locator("#input .block.input .token")) == [seen for _, seen in LINES]


def test_a_heatmap(browser_page):
    browser_page.set_content(token_heatmap(TOKENS, np.linspace(0, 1, len(TOKENS)), labels=["prompt"] * len(TOKENS)))
    assert in_order_of_sight(browser_page.locator("span[title^='token ']")) == [seen for _, seen in LINES]
