"""Build the HTML book: ``python docs/build_html.py build/html``.

Sphinx reads one folder and follows no links out of it, so what the book is made of is copied side by side first, laid
out as in the repository: the links between README and the notebooks then hold in the book as they do there.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # as a script, and imported by a test
from figure_sources import add_sources  # noqa: E402 - after the path above is set

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAGES = (
    "*.md", "CITATION.cff", "notebooks/*.ipynb", "data/README.md", "data/*/README.md", "docs/[!i]*.md",
    "docs/_static/*.svg", "docs/_static/*.png",
    "figures/*.md", "figures/*.png", "figures/*.csv", "figures/badges/*.svg",
    "flashtrace_lib/viewer/schemas/*.json",
)  # fmt: skip


def stage(target: Path) -> None:
    """Lay out the sources of the book in ``target``; what stood there before is gone."""
    shutil.rmtree(target, ignore_errors=True)
    not_here = ("*.py", "[!i]*.md", "__pycache__", "_static")  # index.md alone lies in the root
    shutil.copytree(HERE, target, ignore=shutil.ignore_patterns(*not_here))
    for page in sorted(path for pattern in PAGES for path in ROOT.glob(pattern)):
        copy = target / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(page, copy)  # with its time, so that a second build reads only what has changed
        if page.suffix == ".ipynb":
            notebook = add_sources(json.loads(page.read_text(encoding="utf-8")), ROOT / "figures")
            copy.write_text(json.dumps(notebook), encoding="utf-8")
    index = target / "index.md"
    index.write_text(index.read_text(encoding="utf-8").replace("notebooks/*", chapters()), encoding="utf-8")


def chapters() -> str:
    """Entries of the table of contents: the number of each chapter, its title and its file."""
    entries = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        title = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"]).splitlines()[0].lstrip("# ")
        entries.append(f"{path.stem.partition('_')[0]} {title} <notebooks/{path.stem}>")
    return "\n".join(entries)


def build(target: Path) -> int:
    """Build the pages into ``target``, with sources and Sphinx's own files beside it.

    Returns
    -------
    int
        0, or 1 where Sphinx had a warning (each is an error here) or failed.
    """
    from sphinx.cmd.build import build_main  # only here: the sources can be laid out without Sphinx

    sources = target.with_name(f"{target.name}_sources")
    stage(sources)
    caches = target.with_name(f"{target.name}_doctrees")
    return build_main(["-q", "-W", "--keep-going", "-c", str(HERE), "-d", str(caches), str(sources), str(target)])


def main() -> int:
    """Entry point of ``make html``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path, help="folder of the pages")
    target = parser.parse_args().target.resolve()
    failed = build(target)
    if not failed:
        print(f"the book is at {target / 'index.html'}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
