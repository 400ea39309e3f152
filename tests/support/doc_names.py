"""Which names in a text of the documentation exist: ``problems(text)`` lists those that do not.

Looked at is what stands between back-ticks, and the blocks of code: Python names with their keywords, commands
with their options, make targets, files, notebooks, figures and tables.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import shlex
import tomllib
from functools import cache
from types import ModuleType

from flashtrace_book.cli import FORWARDED
from flashtrace_book.profiles import profile_names
from tests.environment import ROOT

LIBRARY = ROOT / "flashtrace_lib"
BOOK = ROOT / "notebooks" / "flashtrace_book"
PACKAGES = ("flashtrace_lib", "flashtrace_book")
FOREIGN = {"model", "tokenizer"}  # variables of the examples that hold objects of transformers
SUFFIXES = (".py", ".md", ".rst", ".toml", ".yml", ".yaml", ".txt", ".ipynb", ".json", ".html", ".png")


@cache
def trees() -> dict[str, ast.Module]:
    """Parsed modules of the library and of scripts by dotted name."""
    files = [(path, ROOT) for path in [*LIBRARY.rglob("*.py"), *(ROOT / "scripts").glob("*.py")]]
    files += [(path, BOOK.parent) for path in BOOK.rglob("*.py")]
    return {
        ".".join(path.relative_to(above).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text())
        for path, above in sorted(files)
    }


@cache
def identifiers() -> frozenset[str]:
    """Everything that the library defines: modules, classes, functions, arguments, fields, variables."""
    found = {part for name in trees() for part in name.split(".")}
    for node in (node for tree in trees().values() for node in ast.walk(tree)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return frozenset(found)


@cache
def words() -> frozenset[str]:
    """String constants of the library, docstrings left out: options, keys, cells, variables of the environment."""
    nodes = (node for tree in trees().values() for node in ast.walk(tree))
    texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return frozenset(text for text in texts if "\n" not in text and len(text) < 100)


@cache
def outputs() -> frozenset[str]:
    """Figures and tables of every profile, and notebooks, without suffix."""
    return frozenset(path.stem for pattern in ("figures/*/*", "notebooks/*.ipynb") for path in ROOT.glob(pattern))


@cache
def project() -> dict:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@cache
def settings() -> frozenset[str]:
    """Extras, markers of tests and tags of notebooks' cells."""
    markers = (text.partition(":")[0] for text in project()["tool"]["pytest"]["ini_options"]["markers"])
    return frozenset([*project()["project"]["optional-dependencies"], *markers, "parameters", "audit"])


def problems(text: str) -> list[str]:
    """What ``text``, Markdown or reStructuredText, names and the project has not."""
    found, made = [], set(re.findall(r"^(?:class|def) (\w+)", text, re.M))
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S):
        lines = [re.sub(r"\s+#.*", "", line) for line in block.splitlines()]
        found += _code(block) if language == "python" else []
        found += [problem for line in lines if language == "sh" for problem in _commands(line)]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for span in re.findall(r"(?<!`)(`{1,2})(?!`)(.+?)\1", prose):
        found += _span(span[1].strip())
    made |= set(re.findall(r"--(?:prompt|response|html|json) ([\w.]+)", text))  # files of the reader
    return [problem for problem in found if problem.partition(" ")[2] not in made]  # an example defines names


def _span(text: str) -> list[str]:
    """Between back-ticks: a command, an option, a file or a piece of Python."""
    bare = text.replace("<profile>", "laptop").replace("…", "...")
    if re.match(r"((\w+=\S* )*(make|pip|git)|\S*python -m) ", bare):
        return _commands(bare)
    if bare.startswith("--"):
        return [] if any(bare.split()[0] in options(name) for name in trees()) else [f"option {text}"]
    marks = [part for part in text.split("…") if part] if re.match(r"[<\\/]", text) else []  # such as <think>…</think>
    if text in words() | settings() or (marks and all(any(part in word for word in words()) for part in marks)):
        return []
    if re.fullmatch(r"[\w.\-*/]+", bare) and ("/" in bare or bare.endswith(SUFFIXES)):
        return [] if _is_file(bare) else [f"file {text}"]
    if re.match(r"(fig|table)\d|\d\d_", text):
        return [] if text in outputs() else [f"figure, table or notebook {text}"]
    if text in outputs() or text in profile_names():
        return []
    try:
        return _code(bare.partition(" -> ")[0])
    except SyntaxError:
        return [f"neither a name, nor a file, nor Python: {text}"]


def _is_file(name: str) -> bool:
    """Whether a file or folder has this name: in the project, in a folder of the library, or made by a run."""
    name = name.replace("NAME", "05_ruler").rstrip("/")
    if name.split("/")[0] in ("build", ".venv"):
        made = [(ROOT / "Makefile").read_text(), *words()]
        return all(any(part in text for text in made) for part in name.split("/") if part != "laptop")
    folders = [ROOT, *(path for top in (LIBRARY, BOOK) for path in [top, *top.rglob("*")] if path.is_dir())]
    return any((folder / name).exists() for folder in folders)


def _commands(line: str) -> list[str]:
    """Commands of a shell, as far as they are ours."""
    return [problem for part in re.split(r"&&|;", line) for problem in _command(shlex.split(part.replace("<", "")))]


def _command(arguments: list[str]) -> list[str]:
    while arguments and re.match(r"\w+=", arguments[0]):
        arguments = arguments[1:]
    match arguments:
        case ["make", *rest]:
            return _make(rest)
        case ["pip", "install", *rest]:
            extras = [name for text in rest for held in re.findall(r"\[(.*)\]", text) for name in held.split(",")]
            files = [f"file {name}" for name in rest if name.endswith(".txt") and not (ROOT / name).exists()]
            return files + [f"extra {name}" for name in extras if name not in settings()]
        case [python, "-m", module, *rest] if python.endswith("python"):
            return _module(module, rest)
    return []


def _make(rest: list[str]) -> list[str]:
    makefile, found = (ROOT / "Makefile").read_text(), []
    for word in rest:
        name, is_setting, value = word.partition("=")
        pattern = rf"\$\((or \$\()?{name}\b|^{name}\s*\?=" if is_setting else rf"^{re.escape(name)}:"
        found += [] if re.search(pattern, makefile, re.M) else [f"make {word}"]
        found += [f"profile {value}"] if name == "PROFILE" and value not in profile_names() else []
    return found


def _module(module: str, rest: list[str]) -> list[str]:
    given = [word for word in rest if re.fullmatch(r"--?[a-zA-Z][\w-]*", word)]
    if module.partition(".")[0] not in PACKAGES:
        return [f"file {word}" for word in rest if word.endswith(".py") and not (ROOT / word).exists()]
    if module not in trees():
        return [f"module {module}"]
    if module == "flashtrace_lib" and rest:
        if rest[0] not in subcommands():
            return [f"command {rest[0]}"]
        module = FORWARDED.get(rest[0], "flashtrace_book.cli")
    return [f"option {word} of {module}" for word in given if word not in options(module)]


def _first_arguments(module: str, function: str) -> set[str]:
    calls = (node for node in ast.walk(trees()[module]) if isinstance(node, ast.Call) and node.args)
    named = (call for call in calls if getattr(call.func, "attr", "") == function)
    return {arg.value for call in named for arg in call.args if isinstance(arg, ast.Constant)}


@cache
def options(module: str) -> set[str]:
    """Options of a module's command line."""
    return _first_arguments(module, "add_argument")


@cache
def subcommands() -> set[str]:
    """What ``python -m flashtrace_lib`` can do."""
    return _first_arguments("flashtrace_book.cli", "add_parser")


def _code(source: str) -> list[str]:
    """Python: imports, dotted names, keywords and choices; what a block itself defines is known there."""
    tree, found = ast.parse(source), []
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    if any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)):
        return []  # a module of the library to be: the tests run it
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith(PACKAGES):
            held = importlib.import_module(node.module)
            found += [f"{node.module}.{alias.name}" for alias in node.names if not hasattr(held, alias.name)]
        elif isinstance(node, ast.Name) and node.id not in own | identifiers() | words() | set(dir(builtins)):
            found.append(f"name {node.id}")
        elif isinstance(node, ast.Attribute) and not _has(node):
            found.append(f"name {ast.unparse(node)}")
        elif isinstance(node, ast.Call):
            found += _keywords(node)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            text = node.value.value
            known = not isinstance(text, str) or not re.fullmatch(r"\w+", text) or text in words()
            found += [] if known else [f"choice {text}"]
    return found


@cache
def packages() -> list[str]:
    """Folders of library and book, in which a name may be meant without its package."""
    return sorted({name.rpartition(".")[0] for name in trees() if name.startswith(PACKAGES) and "." in name})


def _resolve(node: ast.AST) -> object | None:
    """The module, class or function of the library that a dotted name means, if it means one."""
    parts = ast.unparse(node).removeprefix("flashtrace_lib.").split(".")
    for package in ("flashtrace_lib", "flashtrace_lib.methods", "flashtrace_book.figures", "flashtrace_lib.tasks"):
        held = importlib.import_module(package)
        for end in range(1, len(parts) + 1):
            module = ".".join([package, *parts[:end]])
            if module in trees() and not callable(getattr(held, parts[0], None)):
                importlib.import_module(module)  # a module is an attribute once it is imported
        if hasattr(held, parts[0]):
            for part in parts:
                held = getattr(held, part, None)
            return held
    return None


def _has(node: ast.Attribute) -> bool:
    owner = _resolve(node.value)
    if isinstance(owner, ModuleType):
        return _resolve(node) is not None
    if inspect.isclass(owner):
        return hasattr(owner, node.attr) or node.attr in inspect.signature(owner).parameters
    return getattr(node.value, "id", "") in FOREIGN or node.attr in identifiers()


def _keywords(call: ast.Call) -> list[str]:
    """Keywords that a call gives and its function does not take."""
    function, given = _resolve(call.func), [keyword.arg for keyword in call.keywords if keyword.arg]
    if not callable(function):
        foreign = getattr(getattr(call.func, "value", None), "id", "") in FOREIGN
        return [] if foreign else [f"keyword {name}" for name in given if name not in identifiers()]
    takes = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes):
        return []
    known = {parameter.name for parameter in takes}
    return [f"keyword {name} of {ast.unparse(call.func)}" for name in given if name not in known]
