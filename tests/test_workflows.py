"""The workflows of continuous integration, and the Makefile whose targets they call."""

import re
import subprocess

import pytest
import yaml

from scripts import get_actionlint
from tests.environment import ROOT
from tests.support.doc_names import problems

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
each_workflow = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
KEYS = {
    "workflow": {"name", True, "permissions", "concurrency", "jobs"},  # YAML reads `on` as true
    "job": {"runs-on", "timeout-minutes", "strategy", "env", "steps", "needs", "permissions", "environment"},
    "step": {"uses", "with", "run", "env", "id"},
}


def workflow(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs(path):
    return workflow(path)["jobs"].values()


def steps(path):
    return [step for job in jobs(path) for step in job["steps"]]


def test_there_are_these_workflows():
    assert {path.stem for path in FILES} == {"test", "book", "reproduce", "links", "next"}


@each_workflow
def test_keys_are_those_that_are_known(path):
    assert set(workflow(path)) == KEYS["workflow"]
    assert all(set(job) <= KEYS["job"] for job in jobs(path))
    assert all(set(step) <= KEYS["step"] for step in steps(path))


@each_workflow
def test_what_is_run_is_one_make_target_that_exists(path):
    commands = [step["run"] for step in steps(path) if "run" in step]
    for command in commands:
        assert re.fullmatch(r"make [a-z-]+( [A-Z]+=[\w.]+)*", command)
        assert problems(f"`{command}`") == []
    assert commands or path.stem == "nothing"
    assert problems("`make dreams`")  # the check can fail


@each_workflow
def test_rights_are_few_and_runs_end(path):
    assert workflow(path)["permissions"] == {"contents": "read"}
    own = [job["permissions"] for job in jobs(path) if "permissions" in job]
    assert own == ([{"pages": "write", "id-token": "write"}] if path.stem == "book" else [])
    assert set(workflow(path)["concurrency"]) == {"group", "cancel-in-progress"}
    assert all(0 < job["timeout-minutes"] < 360 for job in jobs(path))  # a job that GitHub ends saves nothing
    assert all(re.fullmatch(r"actions/[\w/-]+@v\d+", step["uses"]) for step in steps(path) if "uses" in step)
    checkouts = [step["with"] for step in steps(path) if step.get("uses", "").startswith("actions/checkout@")]
    assert all(options == {"persist-credentials": False} for options in checkouts)
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"run:.*\$\{\{", text)  # nothing from outside is pasted into a shell


def test_the_pythons_are_those_of_the_project():
    (job,) = jobs(ROOT / ".github" / "workflows" / "test.yml")
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert 'requires-python = ">=3.11,<3.14"' in (ROOT / "pyproject.toml").read_text()


def test_a_part_of_the_reproduction_fits_its_job():
    path = ROOT / ".github" / "workflows" / "reproduce.yml"
    (command,) = [step["run"] for step in steps(path) if "reproduce-part" in step.get("run", "")]
    hours = int(command.partition("HOURS=")[2])
    assert hours * 60 + 30 < workflow(path)["jobs"]["part"]["timeout-minutes"]
    assert workflow(path)["jobs"]["part"]["strategy"]["max-parallel"] == 1  # one after the other


@pytest.fixture
def actionlint():
    if not get_actionlint.available():
        pytest.skip("no actionlint: run `python -m scripts.get_actionlint`")
    return get_actionlint.lint


def test_actionlint_has_nothing_to_say(actionlint):
    assert actionlint(FILES) == []


def test_actionlint_finds_what_is_wrong(actionlint, tmp_path):
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text().replace("matrix.python", "matrix.pithon")
    (tmp_path / "bad.yml").write_text(text.replace("timeout-minutes", "time-out-minutes"))
    said = "\n".join(actionlint([tmp_path / "bad.yml"]))
    assert '"pithon" is not defined' in said and "time-out-minutes" in said


def test_another_package_is_refused_and_nothing_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(get_actionlint, "fetch", lambda url, sha512: b"no archive")
    assert get_actionlint.main() == 0 and "its test will be skipped" in capsys.readouterr().err
    assert not get_actionlint.available() and not list((tmp_path / "flashtrace").iterdir())


def make(*arguments):
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_make_lists_every_target():
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.M)[1].split()
    listed = re.findall(r"^  ([a-z-]+) +\S", make("help"), re.M)
    assert sorted(listed) == sorted(targets)
    assert set(targets) == set(re.findall(r"^([a-z][a-z-]*):", makefile, re.M))
    assert make() == make("help")  # and make alone does nothing else


PART = """#!/bin/sh
[ "$3" = claims ] && exit 0
echo "$@" >> called
[ -f slow ] && exec sleep 60
[ ! -f fails ]
"""


@pytest.fixture
def part(tmp_path):
    """Run `reproduce_part.sh` in a small repository, whose python is a script; gives exit code and output."""
    (tmp_path / "python").write_text(PART)
    (tmp_path / "python").chmod(0o755)
    for name in ("figures/laptop/fig.png", "figures/claims.md", "data/results/laptop/manifest.json", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@x.org"]
    for arguments in (["init", "-q"], ["add", "README.md", "figures"], ["commit", "-qm", "a"]):
        subprocess.run([*git, *arguments], cwd=tmp_path, check=True)

    def run(hours="1"):
        command = ["bash", str(ROOT / "scripts" / "reproduce_part.sh"), "./python", "laptop", hours]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50)
        return done.returncode, done.stdout + done.stderr

    return tmp_path, run


def test_a_part_ends_when_its_time_is_up_and_the_last_keeps_figures_and_claims(part):
    folder, run = part
    (folder / "slow").touch()
    code, said = run("0.0003")
    assert code == 0 and "run the same command again" in said and not (folder / "build/reproduced/finished").exists()
    (folder / "slow").unlink()
    (folder / "figures/claims.md").write_text("new\n")
    code, said = run()
    out = folder / "build" / "reproduced"
    assert code == 0 and (out / "finished").exists() and (out / "figures" / "fig.png").exists(), said
    assert "+new" in (out / "claims.diff").read_text() and (out / "manifest.json").exists()
    assert run() == (0, "finished already: build/reproduced\n")
    calls = (folder / "called").read_text().splitlines()
    assert calls == ["-m flashtrace_lib book --profile laptop --fresh"] * 2


def test_a_book_that_fails_is_not_finished(part):
    folder, run = part
    (folder / "fails").touch()
    assert run()[0] == 1 and not (folder / "build/reproduced/finished").exists()
