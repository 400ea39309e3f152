"""Every public name of the library is explained, and explains only what is there."""

import ast
import re

import pytest

from tests.environment import ROOT

FILES = sorted([*(ROOT / "flashtrace_lib").rglob("*.py"), *(ROOT / "notebooks" / "flashtrace_book").rglob("*.py")])
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
CLASSES = {node.name: node for tree in TREES.values() for node in tree.body if isinstance(node, ast.ClassDef)}
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.M)
ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?$", re.M)


def public(tree):
    """The module itself, its public classes and functions, and the public methods of those classes."""
    yield tree
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node
            members = node.body if isinstance(node, ast.ClassDef) else []
            yield from (m for m in members if isinstance(m, ast.FunctionDef) and not m.name.startswith("_"))


def undocumented(tree):
    """Names without a docstring."""
    return [getattr(node, "name", "the module") for node in public(tree) if not ast.get_docstring(node)]


def described(node):
    """Names under the heading "Parameters" of a docstring."""
    text = ast.get_docstring(node) or ""
    parts = SECTION.split(text)  # text, heading, text, heading, text, ...
    held = dict(zip(parts[1::2], parts[2::2], strict=True)).get("Parameters", "")
    return [name.lstrip("*") for names in ENTRY.findall(held) for name in names.split(", ")]


def accepted(node, classes):
    """What a function, or a class with its bases, takes."""
    if isinstance(node, ast.FunctionDef):
        a = node.args
        given = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
        return {arg.arg for arg in given} - {"self", "cls"}
    init = next((m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"), None)
    if init:
        return accepted(init, classes)
    fields = {m.target.id for m in node.body if isinstance(m, ast.AnnAssign)}
    bases = [classes[base.id] for base in node.bases if getattr(base, "id", "") in classes]
    return fields.union(*(accepted(base, classes) for base in bases))


def invented(tree):
    """Parameters that are described and not taken."""
    classes = CLASSES | {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    nodes = (node for node in public(tree) if not isinstance(node, ast.Module))
    return [f"{n.name}: {name}" for n in nodes for name in described(n) if name not in accepted(n, classes)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_public_name_has_a_docstring_that_fits(path):
    assert not undocumented(TREES[path])
    assert not invented(TREES[path])


def test_what_is_missing_or_invented_is_found():
    bare = ast.parse("class A:\n    def f(self): pass\n    def _g(self): pass\ndef h(): pass\ndef _i(): pass\n")
    assert undocumented(bare) == ["the module", "A", "f", "h"]
    text = '"""Doc.\n\n    Parameters\n    ----------\n    a, b : int\n        Of c.\n    **d\n    """'
    assert invented(ast.parse(f"def f(a, *, b, **d):\n    {text}\n")) == []
    assert invented(ast.parse(f"def f(a):\n    {text}\n")) == ["f: b", "f: d"]
    base = "class B:\n    b: int = 0\n"
    assert invented(ast.parse(f"{base}class C(B):\n    {text}\n    a: int\n    d: int\n")) == []
    assert invented(ast.parse(f"class C:\n    {text}\n    a: int\n")) == ["C: b", "C: d"]
