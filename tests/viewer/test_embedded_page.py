"""The page of a trace in a frame, as a notebook and the HTML book show it."""

import html
import re

import pytest

from flashtrace_lib import Trace, trace
from tests.support.hostile import HOSTILE


def test_the_frame_holds_the_page_byte_by_byte_and_the_same_each_time(traced, folder, tmp_path):
    shown = traced.page()._repr_html_()
    source = re.fullmatch(r'<iframe title="[^"]+" sandbox="([^"]+)" [^<>]*srcdoc="([^"]*)"></iframe>', shown)
    assert html.unescape(source[2]) == (folder / "t.html").read_text(encoding="utf-8")
    assert "allow-same-origin" not in source[1] and "allow-scripts" in source[1]
    again = Trace.from_json(traced.to_json(tmp_path / "t.json"))
    assert again.page()._repr_html_() == shown == traced.page()._repr_html_()
    assert repr(traced.page()) == repr(again.page()) and "0x" not in repr(traced.page())
    assert shown.isascii() and not html.unescape(shown).isascii()  # whatever encoding the host is read in
    assert "height:500px" in traced.page(height=500)._repr_html_()


@pytest.mark.parametrize("height", [0, 199, "720", 7.5, None])
def test_a_height_is_a_number_of_pixels(traced, height):
    with pytest.raises(ValueError, match="height must be a whole number of at least 200 pixels, got"):
        traced.page(height=height)


@pytest.fixture
def notebook(browser_page, tmp_path):
    """Open a page that holds what a cell shows, and give the frame in it. The host declares no encoding at all."""

    def show(result):
        text = f"<!DOCTYPE html><title>book</title><p>above</p>{result.page()._repr_html_()}<p>below</p>"
        (tmp_path / "book.html").write_text(text, encoding="utf-8")
        browser_page.goto((tmp_path / "book.html").as_uri())
        browser_page.set_default_timeout(10_000)
        frame = browser_page.frame_locator("iframe")
        frame.locator("#input .token").first.wait_for()  # a page counts as loaded before the frame's script has run
        return frame

    return show


def test_a_reader_uses_the_page_within_the_notebook(notebook, browser_page, traced):
    frame = notebook(traced)
    assert frame.locator("#chosen").inner_text().startswith("The answer O · All hops")
    frame.locator(".sentence[data-k='2'] .token").last.click()
    assert frame.locator("#chosen").inner_text().startswith("Sentence 2")
    frame.get_by_label("Text to find").fill("7261")
    frame.get_by_label("Text to find").press("Enter")
    assert frame.locator("#found").inner_text() == "1 of 3"
    box = browser_page.locator("iframe").bounding_box()
    assert box["height"] == 720 and box["width"] > 1300  # of a window of 1400
    assert browser_page.get_by_title("What the answer is attributed to").count() == 1
    assert browser_page.title() == "book"
    browser_page.set_viewport_size({"width": 400, "height": 900})
    assert browser_page.evaluate("document.documentElement.scrollWidth") <= 400


def test_hostile_text_stays_within_its_frame(notebook, browser_page, model, tok):
    frame = notebook(trace(model, tok, f"Is it 7261? {HOSTILE}", f'Yes. "></iframe>{HOSTILE}'))
    assert '<script>document.title="owned"</script>' in frame.locator("#input").inner_text()
    assert browser_page.title() == "book" and browser_page.locator("body > *").count() == 3
    assert browser_page.locator("script, img").count() == 0 and frame.locator("img").count() == 0
