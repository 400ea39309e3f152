"""A headless browser for tests of pages: ``from browser import browser, browser_page``."""

import pytest

from scripts.get_chromium import chromium_path

__all__ = ["browser", "browser_page", "chromium_path"]


@pytest.fixture(scope="module")
def browser():
    """Chromium, started once a module: Playwright's event loop must not run while nbval's kernels do."""
    path = chromium_path()
    if path is None:
        pytest.skip(
            "no Chromium: install one, name one in FLASHTRACE_CHROMIUM, or run `python -m scripts.get_chromium`"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path)
        yield started
        started.close()


@pytest.fixture
def browser_page(browser):
    """A new page, with ``page.problems``: console errors, exceptions, failed requests, requests that leave files."""
    with browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        page = context.new_page()
        page.problems = []
        page.on("console", lambda message: message.type == "error" and page.problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: page.problems.append(f"exception: {error}"))
        page.on("requestfailed", lambda request: page.problems.append(f"failed: {request.url[:200]}"))
        page.on("request", lambda request: _is_local(request.url) or page.problems.append(f"remote: {request.url}"))
        yield page


def _is_local(url: str) -> bool:
    return url.startswith(("file:", "data:", "blob:", "about:", "http://127.0.0.1:", "http://localhost:"))
