"""A headless browser, and pages of a tiny model to open in it."""

from dataclasses import replace

import pytest

from flashtrace_lib import Trace, trace
from flashtrace_lib.methods import Position
from scripts.get_chromium import chromium_path
from tests.oracles.tiny_chat import PROMPT, RESPONSE
from tests.support.hostile import HOSTILE

TALK = [
    {"role": "system", "content": "Be kind."}, {"role": "user", "content": f"Is it 7261? {HOSTILE}"},
    {"role": "assistant", "content": HOSTILE}, {"role": "user", "content": "Say it again."},
]  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    """Chromium, started once a module: Playwright's event loop must not run while nbval's kernels do."""
    path = chromium_path()
    if path is None:
        pytest.skip("no Chromium: install one, name it in FLASHTRACE_CHROMIUM, or run `python -m scripts.get_chromium`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path)
        yield started
        started.close()


@pytest.fixture
def browser_page(browser):
    """A new page, which ends without console errors, exceptions, failed requests and requests that leave files."""
    with browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        page, problems = context.new_page(), []
        page.on("console", lambda message: message.type == "error" and problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"exception: {error}"))
        page.on("requestfailed", lambda request: problems.append(f"failed: {request.url[:200]}"))
        page.on("request", lambda request: _is_local(request.url) or problems.append(f"remote: {request.url}"))
        yield page
        assert problems == []


def _is_local(url: str) -> bool:
    return url.startswith(("file:", "data:", "blob:", "about:", "http://127.0.0.1:", "http://localhost:"))


@pytest.fixture(scope="module")
def traced(model, tok):
    return trace(model, tok, PROMPT, RESPONSE, hops=2)


@pytest.fixture(scope="module")
def folder(traced, model, tok, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    traced.to_html(folder / "t.html")
    trace(model, tok, PROMPT, "It is 7261.", reasoning=None).to_html(folder / "direct.html")
    trace(model, tok, TALK, f"Yes. {HOSTILE}").to_html(folder / "hostile.html")
    trace(model, tok, PROMPT, RESPONSE, method=Position()).to_html(folder / "plain.html")
    trace(model, tok, PROMPT, RESPONSE, output="7261").to_html(folder / "passage.html")
    compared = trace(model, tok, PROMPT, RESPONSE)
    compared.compare("ifr", "flashtrace")
    compared.to_html(folder / "compared.html")
    compared.to_json(folder / "compared.json")
    tokens = list(traced.sample.tokens)
    tokens[traced.sample.segments.prompt[0]] = HOSTILE  # a single token: some vocabularies hold whole tags
    Trace(replace(traced.sample, tokens=tokens), traced.attribution).to_html(folder / "token.html")
    return folder
