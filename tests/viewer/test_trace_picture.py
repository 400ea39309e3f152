"""The page's picture and its Python: what is saved is what is shown."""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from flashtrace_lib import Trace


@pytest.fixture
def page(browser_page, folder):
    browser_page.goto((folder / "t.html").as_uri() + "#by=words")
    browser_page.set_default_timeout(20_000)
    return browser_page


def saved(page):
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as PNG").click()
    return download.value.suggested_filename, Image.open(download.value.path()).convert("RGB")


def test_the_picture_has_the_colours_of_the_page(page, traced):
    name, picture = saved(page)
    assert name == "trace_answer_words.png"
    box = page.locator("#input").bounding_box()
    assert picture.width >= 2 * box["width"] and picture.height > 2 * box["height"]
    pixels = np.asarray(picture).reshape(-1, 3)
    assert (pixels == 255).all(1).mean() > 0.5, "the page's paper"
    strongest = page.evaluate("getComputedStyle(spans[state.order[0]]).backgroundColor")
    shade = 1.0 if strongest.startswith("rgb(") else float(re.split("[/,]", strongest)[-1].strip(" )"))
    mixed = np.round(np.array([243, 112, 27]) * shade + 255 * (1 - shade))
    assert (np.abs(pixels - mixed).max(1) <= 2).sum() > 20, "the highest score is coloured"


def test_another_view_is_another_picture(page):
    first = saved(page)[1]
    page.locator(".number").first.click()
    name, second = saved(page)
    assert name == "trace_sentence_1_words.png" and np.asarray(first).tobytes() != np.asarray(second).tobytes()


def run_code(page, tmp_path, traced):
    traced.to_json(tmp_path / "trace.json")
    code = page.locator("#code").text_content()
    code = code.replace("print(", "import torch; torch.save(", 1).replace(")  # of each", ', "shown.pt")  # of each')
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120)
    return torch.load(tmp_path / "shown.pt", weights_only=False)


def test_the_code_gives_what_is_shown(page, traced, tmp_path):
    button = page.get_by_role("button", name="Show code")
    assert page.locator("#code").is_hidden()
    button.click()
    assert page.locator("#code").is_visible() and button.get_attribute("aria-expanded") == "true"
    stored = Trace.from_json(traced.to_json(tmp_path / "t.json"))
    assert run_code(page, tmp_path, traced).tolist() == stored.attribution.scores.tolist()
    with_hops = next(k for k, target in enumerate(stored.targets) if len(target.attribution.hops) > 1)
    page.locator(".number").nth(with_hops).click()
    page.locator("#views label", has_text="Difference").locator("input").check()
    hops = stored.targets[with_hops].attribution.hops
    assert run_code(page, tmp_path, traced).tolist() == (hops[1].scores - hops[0].scores).tolist()
    button.click()
    assert page.locator("#code").is_hidden()
