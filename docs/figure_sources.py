"""A line under every figure and table of the HTML book: its files, their hash, and the commit that made them."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

PROFILE = "laptop"  # whose outputs the notebooks store
KINDS = {"csv": "CSV", "pdf": "PDF", "png": "PNG", "md": "Markdown", "tex": "LaTeX"}
_SHOWN = {"figure": ("png", "pdf"), "table": ("csv", "tex")}


def made_by(source: str) -> Iterator[tuple[str, str]]:
    """Kind and name of what a cell writes by ``run.figure(…, "name", …)`` or ``run.table(…, "name", …)``."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _SHOWN
            and getattr(node.func.value, "id", "") == "run"
            and len(node.args) > 1
            and isinstance(node.args[1], ast.Constant)
        ):
            yield node.func.attr, str(node.args[1].value)


def line(kind: str, name: str, figures: Path, manifest: dict) -> str:
    """Markdown with links to the files of one figure or table; empty where it has none.

    Parameters
    ----------
    figures : Path
        Folder ``figures/<profile>``.
    manifest : dict
        Of the profile: ``outputs`` (file name -> sha256) and ``git``.
    """
    suffixes = [suffix for suffix in _SHOWN[kind] if (figures / f"{name}.{suffix}").exists()]
    if not suffixes:
        return ""
    links = " · ".join(f"[{KINDS[suffix]}](../figures/{figures.name}/{name}.{suffix})" for suffix in suffixes)
    found = manifest.get("outputs", {}).get(f"{name}.{suffixes[0]}", "")
    commit = manifest.get("git", {}).get("commit", "")
    where = f"sha256 `{found[:12]}`" if found else "not in the manifest"
    made = f", run at commit `{commit[:7]}`" if commit else ""
    return f"{kind} `{name}`, made by the cell above: {links} · {where}{made}"


def add_sources(notebook: dict, figures: Path, manifest: dict) -> dict:
    """The notebook (as JSON) with such a line behind every cell that writes figures or tables."""
    cells = []
    for cell in notebook["cells"]:
        cells.append(cell)
        if cell["cell_type"] != "code":
            continue
        lines = [line(kind, name, figures, manifest) for kind, name in made_by("".join(cell["source"]))]
        text = "\n\n".join(part for part in lines if part)
        if text:
            source = f":::{{container}} sources\n{text}\n:::"
            cells.append({"cell_type": "markdown", "id": f"{cell['id']}-from", "metadata": {}, "source": source})
    return notebook | {"cells": cells}


def read_manifest(root: Path) -> dict:
    """The manifest of the profile; empty where there is none."""
    path = root / "data" / "results" / PROFILE / "manifest.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
