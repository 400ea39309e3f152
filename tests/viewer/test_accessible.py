"""The page of a trace at every width and in both schemes, for a reader without a mouse, and for one who hears it."""

import pytest

from scripts.get_axe import axe_script
from tests.viewer.test_trace_reader import opened

SMALL = "all => all.filter((e) => e.textContent.trim() && parseFloat(getComputedStyle(e).fontSize) < 11).length"
AXE = """axe.run().then((found) => found.violations.map(
    (one) => `${one.id}: ${one.nodes.map((node) => node.target + " " + node.failureSummary).join("; ")}`))"""


@pytest.fixture(scope="module")
def axe():
    try:
        return axe_script()
    except OSError as error:
        return error


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_readable_and_axe_finds_nothing(browser_page, folder, axe, width, scheme):
    browser_page.emulate_media(color_scheme=scheme)
    browser_page.set_viewport_size({"width": width, "height": 900})
    for name in ("plain", "hostile", "compared"):
        page = opened(browser_page, folder, name, by="sentences")
        assert page.evaluate("document.documentElement.scrollWidth") <= width  # nothing to scroll sideways for
        assert page.locator("main *").evaluate_all(SMALL) == 0
        first = page.locator("#response .sentence, #response .token").first.bounding_box()["y"]
        assert first < 844 and (page.locator("#fold").get_attribute("open") is None) == (width == 390)
        ink = page.locator("body").evaluate("(e) => getComputedStyle(e).color")
        assert (ink == "rgb(240, 240, 240)") == (scheme == "dark")
        if isinstance(axe, OSError):
            pytest.skip(f"axe-core is not in the cache, and npm cannot be reached: {axe}")
        page.evaluate(axe)
        assert page.evaluate(AXE) == [], name
        for opens in ("details:not([open]) summary", "#show-code", "[name=view]:enabled", "#top button"):
            page.evaluate("(all) => [...document.querySelectorAll(all)].at(-1)?.click()", opens)
        assert page.evaluate(AXE) == [], name
