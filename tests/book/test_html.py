"""The HTML book builds without a warning or a network, and every page reads well in a browser."""

import functools
import http.server
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import flashtrace_lib
from flashtrace_book import profiles
from flashtrace_lib import evaluation, metrics, tasks
from tests.environment import ROOT
from tests.support.browser import browser, browser_page  # noqa: F401 - fixtures
from tests.support.page_checks import contrast, math, missing_images, open_page, overflow, set_dark

NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
PAGES = ["index", "api", "data/adapter/README", "docs/platforms", "docs/completeness", "figures/claims", "search"]
PAGES += ["genindex"] + [f"notebooks/{name}" for name in NOTEBOOKS]


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The built pages."""
    pages = tmp_path_factory.mktemp("book") / "html"
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "build_html.py"), str(pages)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return pages


def test_every_notebook_is_a_page_of_the_table_of_contents(book):
    index = (book / "index.html").read_text(encoding="utf-8")
    for name in NOTEBOOKS:
        assert (book / "notebooks" / f"{name}.html").is_file()
        number = name.partition("_")[0]
        assert f'class="reference internal" href="notebooks/{name}.html">{number} ' in index


def test_the_reference_has_the_public_api(book):
    reference = (book / "api.html").read_text(encoding="utf-8")
    public = [f"flashtrace_lib.{name}" for name in flashtrace_lib.__all__ if name not in ("METHODS", "__version__")]
    for part in (evaluation, metrics, profiles, tasks):
        public += [f"{part.__name__}.{name}" for name in part.__all__ if callable(getattr(part, name))]
    methods = flashtrace_lib.METHODS.values()
    for name in public:
        assert f'id="{name}"' in reference, f"docs/api.rst lacks {name}"
    for method in methods:
        ids = (f'id="flashtrace_lib.{method.__name__}"', f'id="flashtrace_lib.methods.{method.__name__}"')
        assert any(one in reference for one in ids), f"docs/api.rst lacks {method.__name__}"
    assert 'class="problematic"' not in reference and "system-message" not in reference
    assert "<p>Parameters" not in reference and "-----" not in reference  # every section of a docstring was understood


def test_a_name_in_a_docstring_is_a_link(book):
    reference = (book / "api.html").read_text(encoding="utf-8")
    links = re.findall(r'<a [^>]*href="#([\w.]+)"[^>]*><code class="xref[^>]*>(.*?)</code>', reference)
    found = {(place, re.sub("<.*?>", "", text)) for place, text in links}
    assert ("flashtrace_lib.text.render_prompt", "render_prompt") in found  # the module left out
    assert ("flashtrace_lib.viewer.html.token_heatmap", "html.token_heatmap") in found  # the package left out


@pytest.mark.filterwarnings("ignore:.*MystReferenceResolver")  # myst-parser's own, about Sphinx to come
def test_a_warning_fails_the_build(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import build_html

    pages = {name: tmp_path / name for name in ("docs", "root")}
    for folder in pages.values():
        folder.mkdir()
    (pages["docs"] / "index.md").write_text("# A book\n\n[nowhere](missing.md)\n")
    (pages["docs"] / "conf.py").write_text('extensions = ["myst_parser"]\n')
    monkeypatch.setattr(build_html, "HERE", pages["docs"])
    monkeypatch.setattr(build_html, "ROOT", pages["root"])
    assert build_html.build(tmp_path / "html") == 1


@pytest.mark.parametrize("name", PAGES)
def test_page(book, browser_page, name):  # noqa: F811
    open_page(browser_page, book / f"{name}.html")
    assert not missing_images(browser_page)
    assert not math(browser_page)
    assert not overflow(browser_page)
    assert not contrast(browser_page)
    set_dark(browser_page)
    assert not contrast(browser_page)
    browser_page.set_viewport_size({"width": 400, "height": 800})
    assert not overflow(browser_page)
    assert not browser_page.problems


def test_no_table_shows_the_marks_of_its_bold_numbers(book):
    for name in NOTEBOOKS:
        cells = re.findall(r"<t[dh][^>]*>[^<]*", (book / "notebooks" / f"{name}.html").read_text(encoding="utf-8"))
        assert not [cell for cell in cells if "**" in cell], name


OUT_OF_SIGHT = """rows => rows.filter(row => {
    const cell = row.cells[[...row.closest("table").rows[0].cells].findIndex(c => c.innerText.trim() === "verdict")];
    let box = row.closest("table");
    while (getComputedStyle(box).overflowX === "visible") box = box.parentElement;
    return !cell || cell.getBoundingClientRect().right > box.getBoundingClientRect().right + 1;
}).map(row => row.innerText.slice(0, 80))"""


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("name", ["notebooks/13_claims", "figures/claims"])
def test_every_verdict_is_in_sight(book, browser_page, name, width):  # noqa: F811
    browser_page.set_viewport_size({"width": width, "height": 900})
    open_page(browser_page, book / f"{name}.html")
    rows = browser_page.locator("article table:has(:text-is('verdict')) tbody tr")
    assert rows.count() >= 50 and rows.evaluate_all(OUT_OF_SIGHT) == []


WIDE = """() => [...document.querySelectorAll("article table")].filter(table => {
    let box = table.parentElement;
    while (getComputedStyle(box).overflowX === "visible") box = box.parentElement;
    return table.scrollWidth > box.clientWidth;
}).map(table => table.innerText.slice(0, 60))"""


@pytest.mark.parametrize("name", ["index", "notebooks/13_claims", "figures/claims"])
def test_tables_of_claims_fit_a_desk(book, browser_page, name):  # noqa: F811
    open_page(browser_page, book / f"{name}.html")
    assert browser_page.evaluate(WIDE) == []


BAD = """<html><body><article style="background: #fff">
<img src="nowhere.png"><span class="math">x^2</span><p style="color: #aaa">faint</p>
<div style="width: 1500px">wide</div><div style="overflow-x: auto"><div style="width: 1600px">scrolls</div></div>
<p style="color: #767676">dark enough</p><p style="color: #777; font-size: 30px">large enough</p>
</article><script>window.MathJax = {startup: {promise: Promise.resolve()}}</script></body></html>"""


def test_what_is_wrong_with_a_page_is_found(browser_page, tmp_path):  # noqa: F811
    (tmp_path / "bad.html").write_text(BAD)
    open_page(browser_page, tmp_path / "bad.html")
    assert [Path(source).name for source in missing_images(browser_page)] == ["nowhere.png"]
    assert math(browser_page) == ["x^2"]
    assert [found.rpartition(": ")[2] for found in overflow(browser_page)[1:]] == ["wide"]
    assert overflow(browser_page)[0].startswith("the page is 15")
    assert [found.rpartition(": ")[2] for found in contrast(browser_page)] == ["faint"]
    assert any(problem.startswith("failed: ") for problem in browser_page.problems)


def test_formulas_are_typeset(book, browser_page):  # noqa: F811
    open_page(browser_page, book / "notebooks" / "02_span_aggregation.html")
    assert browser_page.locator("article mjx-container svg").count() > 10


def test_a_heatmap_keeps_dark_text_in_the_dark(book, browser_page):  # noqa: F811
    open_page(browser_page, book / "notebooks" / "03_recursion.html")
    set_dark(browser_page)
    token = browser_page.locator("article .output span[title^='token ']").first
    assert token.evaluate("e => getComputedStyle(e).color") == "rgb(26, 26, 26)"


@pytest.fixture
def served(book):
    """Address of the pages behind a web server, where a page may read another."""
    handler = functools.partial(_Quiet, directory=str(book))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """No line for each request."""


def search(page, words):
    """Type words into the search of the sidebar, and wait until the results are all there."""
    page.locator(".search-button__button:visible").first.click()
    page.locator("input[name=q]:visible").first.fill(words)
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results h2:text-is('Search Results')", state="attached", timeout=20_000)
    return page.locator("#search-results ul.search > li")


def test_search_finds_pages(book, browser_page):  # noqa: F811
    open_page(browser_page, book / "index.html")
    found = search(browser_page, "recursion")
    assert found.locator("a[href*='03_recursion']").count() and found.count() >= 2
    assert not browser_page.problems


def test_search_quotes_what_it_found(served, browser_page):  # noqa: F811
    browser_page.goto(f"{served}/index.html")
    found = search(browser_page, "recursion")
    quote = found.filter(has=browser_page.locator("a[href*='03_recursion']")).first.locator("p.context")
    quote.wait_for(timeout=20_000)
    assert "recursi" in quote.inner_text().lower()
    assert not browser_page.problems


def test_search_for_a_word_of_no_page_finds_none(book, browser_page):  # noqa: F811
    open_page(browser_page, book / "index.html")
    assert search(browser_page, "zyzzyva").count() == 0


def test_figures_and_tables_name_their_files(book):
    page = (book / "notebooks" / "05_ruler.html").read_text(encoding="utf-8")
    found = re.search(r'<div class="sources docutils container">\s*<p>(.*?)</p>', page, re.S)[1]
    assert "made by the cell above" in found and "sha256" in found and "commit" in found
    links = re.findall(r'href="([^"]+)"', found)
    assert links and all((book / "notebooks" / link).resolve().is_file() for link in links)


def test_what_a_cell_writes_is_read_from_its_code(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from figure_sources import add_sources, made_by

    source = 'run.figure(fig, "one", "A title")\nother.figure(fig, "two", "")\nrun.table(frame,\n  "three", "T")\n'
    assert list(made_by(source)) == [("figure", "one"), ("table", "three")]
    for name in ("one.png", "three.csv"):
        (tmp_path / name).touch()
    manifest = {"outputs": {"one.png": "ab" * 32}, "git": {"commit": "1234567890"}}
    cells = [
        {"cell_type": "code", "id": "a", "source": [source]},
        {"cell_type": "code", "id": "b", "source": ["run.go()"]},
    ]
    first, said, last = add_sources({"cells": cells}, tmp_path, manifest)["cells"]
    assert first == cells[0] and last == cells[1] and said["cell_type"] == "markdown"
    assert "[PNG]" in said["source"] and "abababababab" in said["source"] and "1234567`" in said["source"]
    assert "[CSV]" in said["source"] and "not in the manifest" in said["source"] and "PDF" not in said["source"]
