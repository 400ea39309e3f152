"""A headless browser for tests of pages: ``from browser import browser, browser_page``."""

import os
import shutil

import pytest

__all__ = ["browser", "browser_page", "chromium_path"]
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium_path() -> str | None:
    """Executable of a Chromium: ``FLASHTRACE_CHROMIUM``, else the first on the PATH; None where there is none."""
    return os.environ.get("FLASHTRACE_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


@pytest.fixture(scope="module")
def browser():
    """Chromium, started once a module: Playwright's event loop must not run while nbval's kernels do."""
    path = chromium_path()
    if path is None:
        pytest.skip("no Chromium: install one (apt-get install chromium), or name one in FLASHTRACE_CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path)
        yield started
        started.close()


@pytest.fixture
def browser_page(browser):
    """A new page, with ``page.problems``: console errors, exceptions, requests that leave the files."""
    with browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        page = context.new_page()
        page.problems = []
        page.on("console", lambda message: message.type == "error" and page.problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: page.problems.append(f"exception: {error}"))
        page.on("request", lambda r: r.url.startswith(("file:", "data:")) or page.problems.append(f"remote: {r.url}"))
        yield page
