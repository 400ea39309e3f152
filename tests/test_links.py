"""Links of README, docs and notebooks: those within the repository hold, and broken ones are found. No network."""

import functools
import http.server
import threading

import pytest

from scripts import check_links
from tests.environment import ROOT


@pytest.mark.parametrize("path", check_links.pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_within_the_repository_hold(path):
    assert check_links.broken_locally(check_links.prose(path), path.parent, path) == []


def test_the_pages_are_those_that_readers_open():
    names = {str(path.relative_to(ROOT)) for path in check_links.pages()}
    assert {
        "README.md",
        "docs/models.md",
        "docs/api.rst",
        "data/adapter/README.md",
        "notebooks/05_ruler.ipynb",
    } <= names


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[a](gone.md)", "link to gone.md: no such file"),
        ("![a](gone.png 'b')\n[![x](page.md)](gone.md)", "link to gone.md: no such file"),
        ("[a](page.md#nowhere)", "link to page.md#nowhere: no such heading"),
        ("[a](#nowhere)", "link to #nowhere: no such heading"),
        ("[a]: gone.md", "link to gone.md: no such file"),
        ('<img src="gone.svg">', "link to gone.svg: no such file"),
    ],
)
def test_a_broken_link_is_found(tmp_path, text, problem):
    (tmp_path / "page.md").write_text(f"# A `title`, twice\n{text}\n")
    assert check_links.broken_locally(text, tmp_path, tmp_path / "page.md") == [problem]


def test_what_holds_is_no_problem(tmp_path):
    page = tmp_path / "page (1).md"
    page.write_text("# A `title`, twice\n\n## [Links](x) & more\n\n# A title, twice\n\n<a id='here'></a>\n")
    text = """[a](page%20(1).md#a-title-twice) [b](#a-title-twice-1) [c](#links--more) [d](#here) <https://x.org/gone>
    `[code](gone.md)` [e](mailto:a@x.org) ![f](data:image/png;base64,AA)
    ```
    [fenced](gone.md)
    ```
"""
    assert check_links.broken_locally(check_links._CODE.sub("", text.replace("    `", "`")), tmp_path, page) == []


def test_links_of_all_forms_are_read():
    text = (
        "[a](https://x.org/a_(b)) <https://x.org/c> https://x.org/d. `t <https://x.org/e>`_ <a href='https://x.org/f'>"
    )
    assert check_links.links(text) == {f"https://x.org/{end}" for end in ("a_(b)", "c", "d", "e", "f")}


class _Server(http.server.BaseHTTPRequestHandler):
    """Answers a path with the status that it names, and knows no HEAD under /get."""

    def do_GET(self):  # noqa: N802
        self.send_response(int(self.path.rpartition("/")[2]))
        self.end_headers()

    def do_HEAD(self):  # noqa: N802
        self.send_response(501 if self.path.startswith("/get") else int(self.path.rpartition("/")[2]))
        self.end_headers()

    def log_message(self, *args):
        """No line for each request."""


def test_servers_are_asked(monkeypatch):
    monkeypatch.setattr(check_links, "PAUSE", 0.0)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        threading.Thread(target=functools.partial(server.serve_forever, 0.01), daemon=True).start()
        at = f"http://127.0.0.1:{server.server_port}"
        links = {f"{at}/{path}": ["a.md", "b.md"] for path in ("200", "get/200#part", "404", "500", "403")}
        broken, refused = check_links.broken_remotely(links)
        server.shutdown()
    assert broken == [f"a.md, b.md: {at}/404: 404", f"a.md, b.md: {at}/500: 500"]
    assert refused == [f"a.md, b.md: {at}/403: 403"]
    broken, _ = check_links.broken_remotely({f"{at}/200": ["a.md"]})
    assert len(broken) == 1 and "refused" in broken[0]  # nobody answers any more


def test_a_broken_page_fails_the_command(tmp_path, monkeypatch, capsys):
    assert check_links.main([]) == 0 and "all links hold" in capsys.readouterr().out
    (tmp_path / "README.md").write_text("[a](gone.md)")
    monkeypatch.setattr(check_links, "ROOT", tmp_path)
    assert check_links.main([]) == 1 and "README.md: link to gone.md: no such file" in capsys.readouterr().out
