"""Hash of the code that a function or a class runs: what a stored time was measured of."""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Iterator
from copy import deepcopy
from functools import cache, lru_cache
from pathlib import Path

from ..fingerprints import DOCUMENTED, dump_code, fingerprint

_PACKAGE = __name__.partition(".")[0]
Place = tuple[str, str]  # module, name in it


def code_of(*objects: type | object) -> str:
    """Hash of the definitions that ``objects`` reach by name within this library, theirs included.

    Followed are the names of functions, classes and module constants, also through imports; the methods of a class
    belong to it, but for its alternative constructors, which have run before a clock starts. Comments, docstrings,
    annotations of functions, imports, file names and the places of definitions do not count, nor does code that is not
    reached: a change there leaves a time what it was. Other packages are not followed; their versions are noted in the
    manifest. A version that was measured to take the time of an earlier one (``same_times.json``) has that one's hash.

    Parameters
    ----------
    objects : classes or functions
        At the top level of their modules.

    Returns
    -------
    str
        20 hexadecimal digits.

    Raises
    ------
    ValueError
        If the definition of one cannot be found.
    """
    code = _code_of(tuple((thing.__module__, thing.__qualname__.partition(".")[0]) for thing in objects))
    return _as_fast().get(code, code)


@cache
def _as_fast() -> dict[str, str]:
    """Hashes of versions measured to take the time of an earlier one (``scripts/same_times.py``), to its hash."""
    measured = json.loads(Path(__file__).with_name("same_times.json").read_text(encoding="utf-8"))
    return {code: found["as"] for code, found in measured.items()}


@lru_cache(maxsize=256)
def _code_of(roots: tuple[Place, ...]) -> str:
    for module, name in roots:
        if name not in _module(module).definitions:
            raise ValueError(f"{module} defines no {name} at its top level: its code cannot be told from its name")
    return fingerprint(sorted({_dump(node) for node in reached(roots).values()}))


def reached(roots: tuple[Place, ...]) -> dict[tuple[str, int], ast.stmt]:
    """Top-level statements that ``roots`` reach, by module and line."""
    found: dict[tuple[str, int], ast.stmt] = {}
    todo, seen = list(roots), set()
    while todo:
        place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        module = _module(place[0])
        for node in [*module.definitions.get(place[1], ()), *module.effects]:
            if (place[0], node.lineno) not in found:
                found[place[0], node.lineno] = node
                todo += module.names(node)
    return found


class _Module:
    """What the top level of a source file defines, imports and does."""

    def __init__(self, name: str, path: Path):
        tree = _Bare().visit(ast.parse(path.read_text(encoding="utf-8")))
        self.package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.effects: list[ast.stmt] = []  # such as the registration of a function under a name
        self.imports = {alias: place for node in ast.walk(tree) for alias, place in self._imported(node)}
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                continue
            bound = list(_bound(node))
            for name_ in bound:
                self.definitions.setdefault(name_, []).append(node)
            self.effects += [] if bound else [node]

    def _imported(self, node: ast.AST) -> Iterator[tuple[str, Place]]:
        """Name in this module, and the module of the library and the name there that it stands for."""
        if not isinstance(node, ast.ImportFrom):
            return
        base = self.package
        for _ in range(max(node.level - 1, 0)):
            base = base.rpartition(".")[0]
        source = ".".join(filter(None, (base if node.level else "", node.module)))
        if source.partition(".")[0] == _PACKAGE:
            yield from ((alias.asname or alias.name, (source, alias.name)) for alias in node.names)

    def names(self, node: ast.stmt) -> Iterator[Place]:
        """Definitions of the library that a statement names."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                yield from self.resolve(part.id)
            elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                source, name = self.imports.get(part.value.id, ("", ""))
                if source and _path(f"{source}.{name}"):
                    yield from _module(f"{source}.{name}").resolve(part.attr, f"{source}.{name}")

    def resolve(self, name: str, here: str = "") -> Iterator[Place]:
        """Where ``name`` is defined, through imports of imports; nothing where that is not in the library."""
        if name in self.definitions:
            yield here or self.name, name
        elif name in self.imports:
            source, original = self.imports[name]
            if not _path(f"{source}.{original}"):  # a module is followed by what is taken from it
                yield from _module(source).resolve(original, source)

    name = ""


class _Bare(ast.NodeTransformer):
    """Take off what shapes nothing that is timed: docstrings, annotations of functions, alternative constructors."""

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
        if isinstance(node, ast.ClassDef):
            node.body = [part for part in node.body if not _constructs(part, node.name)] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        return super().visit(node)


def _constructs(node: ast.stmt, name: str) -> bool:
    """Whether this is a classmethod that is annotated to return an object of its own class."""
    return (
        isinstance(node, ast.FunctionDef)
        and any(isinstance(mark, ast.Name) and mark.id == "classmethod" for mark in node.decorator_list)
        and isinstance(node.returns, ast.Name)
        and node.returns.id == name
    )


class _WithoutImports(ast.NodeTransformer):
    """Take imports off: the same code may come from another place."""

    def visit_Import(self, node: ast.AST) -> None:  # noqa: N802
        return None

    visit_ImportFrom = visit_Import  # noqa: N815


def _dump(node: ast.stmt) -> str:
    return dump_code(_WithoutImports().visit(deepcopy(node)))


def _bound(node: ast.stmt) -> Iterator[str]:
    """Names that a top-level statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    if isinstance(node, ast.If | ast.Try | ast.With):
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.stmt) and not isinstance(part, ast.Import | ast.ImportFrom):
                yield from _bound(part)
        return
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    for target in filter(None, targets):
        yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))


@cache
def _module(name: str) -> _Module:
    path = _path(name)
    if path is None:
        raise ValueError(f"the source of {name} cannot be found: its code has no hash")
    module = _Module(name, path)
    module.name = name
    return module


@cache
def _path(name: str) -> Path | None:
    """Source file of a module; None where there is none of this name."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None
