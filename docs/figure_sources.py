"""A line under every figure and table of the HTML book: its files."""

import ast
from collections.abc import Iterator
from pathlib import Path

KINDS = {"csv": "CSV", "png": "PNG"}
_SHOWN = {"figure": ("png",), "table": ("csv",)}


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


def line(kind: str, name: str, figures: Path) -> str:
    """Markdown with links to the files of one figure or table; empty where it has none."""
    suffixes = [suffix for suffix in _SHOWN[kind] if name and (figures / f"{name}.{suffix}").exists()]
    links = " · ".join(f"[{KINDS[suffix]}](../figures/{name}.{suffix})" for suffix in suffixes)
    return f"{kind} `{name}`, made by the cell above: {links}" if links else ""


def add_sources(notebook: dict, figures: Path) -> dict:
    """The notebook (as JSON) with such a line behind every cell that writes figures or tables."""
    cells = []
    for cell in notebook["cells"]:
        cells.append(cell)
        if cell["cell_type"] != "code":
            continue
        lines = [line(kind, name, figures) for kind, name in made_by("".join(cell["source"]))]
        text = "\n\n".join(part for part in lines if part)
        if text:
            source = f":::{{container}} sources\n{text}\n:::"
            cells.append({"cell_type": "markdown", "id": f"{cell['id']}-from", "metadata": {}, "source": source})
    return notebook | {"cells": cells}
