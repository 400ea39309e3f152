"""Which way imports point: from the chapters down to the sample, never up, never in a circle."""

import ast
import subprocess
import sys

import pytest

from tests.environment import ROOT

# Each room of the library, and what it may import besides itself and what every room may (files, sample).
MAY_IMPORT = {
    "text": set(), "model": {"text"}, "kernel": {"model"}, "attribution": {"model"},
    "methods": {"model", "kernel", "attribution"}, "load": {"model", "kernel"}, "viewer": {"text", "attribution"},
    "contrast": {"text", "attribution"}, "estimate": {"model", "attribution", "bench"},
    "traced": {"model", "attribution", "methods", "viewer", "verification"},
    "trace": {"text", "model", "attribution", "methods", "viewer", "contrast", "estimate", "traced"},
    "metrics": {"model", "attribution"}, "verification": {"metrics"}, "fingerprints": set(), "store": {"fingerprints"},
    "tasks": {"text", "model", "fingerprints", "store"},
    "evaluation": {"attribution", "methods", "metrics", "fingerprints", "store", "model", "load", "tasks", "cli"},
    "bench": {"fingerprints", "attribution", "methods", "load", "model", "metrics"},
    "report": {"methods", "viewer", "traced"}, "cli": {"text", "attribution", "methods", "load", "trace", "report"},
}  # fmt: skip
EVERYWHERE = {"files", "names", "sample", "_version"}


def modules(package, folder):
    """Dotted name -> source file of each module below a folder."""
    files = sorted((folder / package).rglob("*.py"))
    return {".".join(f.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): f for f in files}


LIBRARY, BOOK = modules("flashtrace_lib", ROOT), modules("flashtrace_book", ROOT / "notebooks")
ALL = LIBRARY | BOOK


def imported(name, path):
    """Modules of library and book that a module imports anywhere, those that are meant by a name in a package."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in ALL)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                found = f"{source}.{alias.name}"
                yield from [found] if found in ALL else [source] if source in ALL else []


EDGES = {name: sorted(set(imported(name, path)) - {name}) for name, path in ALL.items()}


def room(name):
    return name.split(".")[1]


@pytest.mark.parametrize("name", [name for name in LIBRARY if "." in name and room(name) != "__main__"])
def test_a_room_imports_only_what_lies_below_it(name):
    allowed = MAY_IMPORT.get(room(name), set()) | EVERYWHERE | {room(name)}
    assert room(name) in MAY_IMPORT.keys() | EVERYWHERE, "write the new room into MAY_IMPORT"
    assert [edge for edge in EDGES[name] if "." not in edge or room(edge) not in allowed] == []


def test_the_library_does_not_know_the_book():
    upwards = {name for name in LIBRARY for edge in EDGES[name] if edge.startswith("flashtrace_book")}
    assert upwards == {"flashtrace_lib.__main__"}  # hands it the commands that are its own


def test_the_rooms_form_no_circle():
    assert not circle({name: {edge for edge in others if edge != name} for name, others in MAY_IMPORT.items()})


def test_no_modules_import_each_other_in_a_circle():
    assert not circle(EDGES)


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]


def circle(edges):
    """Nodes that lie on a circle, or lead to one and are led to from one; none where there is no circle."""
    left = {node: set(edges[node]) & edges.keys() for node in edges}
    while free := [node for node in left if not left[node] or not any(node in others for others in left.values())]:
        left = {node: others - set(free) for node, others in left.items() if node not in free}
    return sorted(left)


LOADED = """
import sys
import flashtrace_lib
print(*sorted(name for name in sys.modules if name.startswith("flashtrace_")))
from flashtrace_lib import FlashTrace, Sample, load_model, trace
import flashtrace_lib.trace
assert flashtrace_lib.trace is trace and callable(trace)  # not the module of that name
print(*sorted({"matplotlib", "captum", "datasets", "gguf", "papermill", "pandas", "sklearn"} & sys.modules.keys()))
"""


def test_the_library_loads_what_is_asked_for():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, cwd=ROOT)
    own, others = (line.split() for line in (done.stdout + "\n").split("\n")[:2])
    assert len(own) <= 30 and not others
