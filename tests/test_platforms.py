"""Containers call `make env`, and docs/platforms.md names all that only POSIX has."""

import ast
import json
import re
import shlex
import subprocess
import sys

import pytest

from tests.environment import ROOT
from tests.support.doc_names import problems

PAGE = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")
POSIX_ONLY = {"fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "posix", "syslog"}


def instructions():
    """(instruction, rest) of the Dockerfile, lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def test_the_dockerfile_makes_the_environment_from_files_that_are_there():
    found = instructions()
    assert found[0][0] == "FROM" and re.fullmatch(r"python:3\.1[1-3]-slim-\w+", found[0][1])
    assert {name for name, _ in found} <= {"FROM", "RUN", "WORKDIR", "USER", "COPY", "ARG", "EXPOSE", "CMD"}
    made = next(i for i, (name, rest) in enumerate(found) if name == "RUN" and rest.startswith("make env "))
    assert problems("`make env PYTHON=python TORCH_INDEX=x`") == []
    copies = [shlex.split(rest) for name, rest in found if name == "COPY"]
    sources = {source for *found, _ in copies for source in found if not source.startswith("--")}
    assert all((ROOT / source).exists() for source in sources)
    before = {source for name, rest in found[:made] if name == "COPY" for source in shlex.split(rest)}
    assert before >= {
        "Makefile", "pyproject.toml", "setup.py", "requirements-nodeps.txt", "README.md", "LICENSE", "scripts",
        "flashtrace_lib", "notebooks/flashtrace_book",
    }  # fmt: skip
    user = next(i for i, (name, _) in enumerate(found) if name == "USER")
    assert user < made  # nothing of the book belongs to root
    assert json.loads(dict(found)["CMD"])[0] == "make"


def test_what_is_ignored_by_git_is_not_sent_to_docker():
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".venv", "build", "**/__pycache__"} <= set(ignored)
    if not (ROOT / ".git").exists():
        pytest.skip("no clone: nothing is tracked here")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert not {path.split("/")[0] for path in tracked} & set(ignored)


def test_the_devcontainer_makes_the_environment():
    settings = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    assert re.fullmatch(r"mcr\.microsoft\.com/devcontainers/python:1-3\.1[1-3]-\w+", settings["image"])
    assert settings["postCreateCommand"].startswith("make env ")
    assert problems(f"`{settings['postCreateCommand']}`") == []
    editor = settings["customizations"]["vscode"]["settings"]
    assert editor["python.defaultInterpreterPath"].endswith("/.venv/bin/python")


def posix_only():
    """(module, file) of each import of the library and the book that other systems lack."""
    for path in [*ROOT.glob("flashtrace_lib/**/*.py"), *ROOT.glob("notebooks/flashtrace_book/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            yield from ((name, path.relative_to(ROOT / "flashtrace_lib").as_posix()) for name in POSIX_ONLY & {*names})


def test_the_page_names_all_that_only_posix_has():
    assert sorted(posix_only()) == [("fcntl", "files.py"), ("fcntl", "store.py"), ("resource", "tasks/sandbox.py")]
    windows = PAGE.partition("## Windows")[2]
    assert all(f"*{module}*" in windows and f"`{file}`" in windows for module, file in posix_only())


def test_the_tracer_needs_none_of_it():
    code = "import flashtrace_lib.cli, flashtrace_lib.viewer.page, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert "flashtrace_lib.trace" in loaded.split()
    assert not {"flashtrace_lib.store", "flashtrace_lib.tasks.sandbox"} & set(loaded.split())
