"""The wheel, built from the source archive, works in an empty folder without the repository."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from tests.environment import ROOT

SOURCES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CITATION.cff", "CHANGELOG.md",
           "requirements-nodeps.txt", "flashtrace_lib",
           "notebooks/flashtrace_book", "data/adapter", "data/adapter_notation", "data/at2")  # fmt: skip
CARRIED = ("adapter/README.md", "adapter/adapter_config.json", "adapter/adapter_model.safetensors",
           "adapter_notation/README.md", "adapter_notation/adapter_config.json",
           "adapter_notation/adapter_model.safetensors", "at2/README.md", "at2/embedded.json")  # fmt: skip
QUESTION = """The train to Lyon leaves from platform 4. The train to Nice leaves from platform 7.

From which platform does the train to Nice leave?"""


def build(kind, folder, target):
    """Build an sdist or a wheel of ``folder`` with the backend that pyproject.toml names, as pip does."""
    code = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(target)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(target.glob("*.tar.gz" if kind == "sdist" else "*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of the source archive of a copy of this checkout."""
    made = tmp_path_factory.mktemp("made")
    for name in SOURCES:
        copy = made / "checkout" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, copy)
    with tarfile.open(build("sdist", made / "checkout", made)) as archive:
        archive.extractall(made / "unpacked", filter="data")
    return build("wheel", next((made / "unpacked").iterdir()), made)


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """The unpacked wheel: a folder to put on the path."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def run(site, tmp_path):
    """Run python with arguments in an empty folder, where nothing of the checkout is on the path."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("FLASHTRACE_", "PYTEST_"))}
    environment = {**own, "PYTHONPATH": str(site)}

    def call(*arguments):
        how = {"cwd": tmp_path, "env": environment, "timeout": 900}
        return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **how)

    return call


def test_the_wheel_carries_what_the_library_reads(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        scripts = archive.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
        assert "flashtrace = flashtrace_lib.__main__:main" in scripts
        for name in CARRIED:
            assert archive.read(f"flashtrace_lib/data/{name}") == (ROOT / "data" / name).read_bytes()
    for path in (ROOT / "flashtrace_lib").rglob("*"):
        if path.is_dir() or path.suffix == ".pyc":
            continue
        inside = path.relative_to(ROOT).as_posix()
        assert inside in names, f"{inside} is in no wheel: name it in pyproject.toml's package-data"
    data = "flashtrace_lib/data/"
    assert {name for name in names if name.startswith(data)} == {data + name for name in CARRIED}
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"flashtrace_lib"}  # and no book


@pytest.mark.slow
def test_trace_works_in_an_empty_folder(run, tmp_path, site):
    (tmp_path / "question.txt").write_text(QUESTION, encoding="utf-8")
    arguments = ("--prompt", "question.txt", "--max-new-tokens", "60", "--html", "trace.html", "--json", "trace.json")
    done = run("-m", "flashtrace_lib", "trace", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("flashtrace_causal · ") and "answer: The answer is platform 7." in done.stdout
    assert (tmp_path / "trace.html").stat().st_size > 10_000 and (tmp_path / "trace.json").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"question.txt", "trace.html", "trace.json"}


WITHOUT_THE_BOOK = """
import contextlib, io, sys
import flashtrace_lib
from flashtrace_lib.__main__ import main
assert flashtrace_lib.__file__.startswith(sys.argv[1]), flashtrace_lib.__file__
from flashtrace_lib.methods import AT2
from flashtrace_lib.methods.at2 import committed
from flashtrace_lib.viewer.trace_json import schema
assert [path.name for path in committed()] == ["embedded.json"] and AT2().content and schema()
for command in (["book"], ["audit"], ["claims"]):
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        assert main(command) == 2, command
    said = [line for line in errors.getvalue().splitlines() if not line.startswith("Matplotlib is building")]
    assert len(said) == 1 and said[0].startswith("error: this needs the book "), (command, said)
print("done")
"""


def test_the_rest_of_the_library_works_and_the_books_commands_say_what_they_need(run, site, tmp_path):
    done = run("-c", WITHOUT_THE_BOOK, str(site))
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr
    assert not list(tmp_path.iterdir())  # nothing was begun
