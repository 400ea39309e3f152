"""Check the links of README, docs and notebooks: ``python -m scripts.check_links [--online]``.

Links within the repository are always checked, with their anchors; ``--online`` asks for the others as well. Needs
nothing but Python.
"""

import argparse
import json
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("*.md", "CITATION.cff", "codemeta.json", "docs/*.md", "docs/*.rst", "data/*.md", "data/*/*.md", "figures/*.md",
         "notebooks/*.ipynb")  # fmt: skip
REFUSED = {401, 403, 405, 406, 429, 503}  # a server that answers a browser, not a program
TRIES, PAUSE, TIMEOUT = 3, 5.0, 30.0  # seconds

_CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$|(`+)(?!`).+?(?<!`)\2(?!`)", re.M | re.S)
_LINKS = (
    re.compile(r"\]\(\s*<?([^()\s<>]+(?:\([^()\s]*\)[^()\s<>]*)*)>?(?:\s+\"[^\"]*\")?\s*\)"),  # [text](link "title")
    re.compile(r"^\s*\[[^\]^]+\]:\s+<?([^\s>]+)", re.M),  # [text]: link
    re.compile(r"\b(?:href|src)=[\"']([^\"']+)"),
    re.compile(r"(https?://[^\s<>\"'`\])]+)"),
)


def pages() -> list[Path]:
    """The files whose links are checked."""
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


def prose(path: Path) -> str:
    """The text of a page, of a notebook its Markdown cells; code is left out."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    return _CODE.sub("", text) if path.suffix in (".md", ".ipynb") else text


def links(text: str) -> set[str]:
    """Targets of all links of a text."""
    found = set()
    for pattern in _LINKS:
        found |= {target.rstrip(".,;:") for target in pattern.findall(text)}
        text = pattern.sub(" ", text)  # or the last form would find a part of it again
    return {target for target in found if not target.startswith(("mailto:", "data:", "attachment:"))}


def is_remote(link: str) -> bool:
    """Whether a link leaves the repository."""
    return link.startswith(("http://", "https://"))


def anchors(text: str) -> set[str]:
    """Names by which GitHub links the headings of a page, and those that it sets itself."""
    names: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.+?)\s*#*$", text, re.M):
        bare = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", bare).replace(" ", "-")
        count = names[slug] = names.get(slug, -1) + 1
        if count:
            names[f"{slug}-{count}"] = 0
    return set(names) | set(re.findall(r"\b(?:id|name)=[\"']([^\"']+)", text))


def broken_locally(text: str, folder: Path, own: Path | None = None) -> list[str]:
    """Links of a text in ``folder`` that lead to no file of the repository, or to no heading of it."""
    found = []
    for link in sorted(link for link in links(text) if not is_remote(link)):
        name, _, anchor = urllib.parse.unquote(link).partition("#")
        target = (folder / name).resolve() if name else own
        if target is None:
            continue
        if not target.exists():
            found.append(f"link to {link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
            found.append(f"link to {link}: no such heading")
    return found


def answer(link: str) -> int | str:
    """The status that a server gives for a link, or why there is none; tried again where a network may have failed."""
    why: int | str = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE * attempt)
        for method in ("HEAD", "GET"):  # some servers know no HEAD
            request = urllib.request.Request(
                link.partition("#")[0], method=method, headers={"User-Agent": "Mozilla/5.0"}
            )
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
                    return response.status
            except urllib.error.HTTPError as error:
                why = error.code
            except (OSError, ValueError) as error:
                why = str(error)
        if isinstance(why, int) and why < 500:
            return why
    return why


def broken_remotely(found: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    """Links that lead nowhere, and those whose server refuses to say; ``found`` maps links to their pages."""
    with ThreadPoolExecutor(8) as pool:
        answers = dict(zip(found, pool.map(answer, found), strict=True))
    lines = {link: f"{', '.join(found[link])}: {link}: {said}" for link, said in answers.items()}
    refused = [lines[link] for link, said in answers.items() if said in REFUSED]
    return [lines[link] for link, said in answers.items() if said not in REFUSED and not _is_fine(said)], refused


def _is_fine(said: int | str) -> bool:
    return isinstance(said, int) and said < 400


def _all_links() -> Iterator[tuple[str, str]]:
    """Every remote link with the page that has it."""
    for path in pages():
        yield from ((link, str(path.relative_to(ROOT))) for link in sorted(links(prose(path))) if is_remote(link))


def main(arguments: list[str] | None = None) -> int:
    """Entry point of ``make links``; 1 where a link is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--online", action="store_true", help="ask for links out of the repository, too")
    online = parser.parse_args(arguments).online
    broken = [
        f"{path.relative_to(ROOT)}: {problem}"
        for path in pages()
        for problem in broken_locally(prose(path), path.parent, path)
    ]
    remote: dict[str, list[str]] = {}
    for link, page in _all_links():
        remote.setdefault(link, []).append(page)
    if online:
        more, refused = broken_remotely(remote)
        broken += more
        print("\n".join(f"cannot be checked: {line}" for line in refused))
    print("\n".join(broken) or f"all links hold ({len(remote)} others {'asked for' if online else 'not asked for'})")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
