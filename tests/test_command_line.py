"""Commands that are interrupted, whose reader has gone, or that would replace a file that they read."""

import os
import subprocess
import sys

import pytest

from flashtrace_book.cli import main as book
from flashtrace_lib import __main__ as module
from flashtrace_lib.arguments import check_writable, read_text
from flashtrace_lib.bench import measure
from flashtrace_lib.files import CannotWrite, write_text
from tests.environment import ROOT


def test_a_file_that_is_read_is_never_replaced(tmp_path):
    prompt, page = tmp_path / "q.txt", tmp_path / "q.html"
    prompt.write_text("Why?")
    check_writable({"--html": page, "--json": None}, read={"--prompt": str(prompt), "--response": "-"})
    link = tmp_path / "link.html"
    link.symlink_to(prompt)
    for path in (prompt, link):
        with pytest.raises(ValueError, match="--prompt and --html both name"):
            check_writable({"--html": path}, read={"--prompt": str(prompt)})
    with pytest.raises(ValueError, match="--html and --json both name"):
        check_writable({"--html": page, "--json": page}, read={})
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="is no regular file: leave --json out"):
        check_writable({"--json": pipe}, read={})
    with pytest.raises(CannotWrite, match="no regular file"):
        write_text(pipe, "x")
    with pytest.raises(ValueError, match="the name of the prompt file is empty"):
        read_text("", "prompt")


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    link = tmp_path / "link.txt"
    link.symlink_to("real.txt")
    write_text(link, "new")
    assert link.is_symlink() and (tmp_path / "real.txt").read_text() == "new"


def test_an_interrupted_command_says_so(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("flashtrace_lib.cli.main", interrupted)
    assert module.main(["trace", "--prompt", "x"]) == 130
    assert "run it again" in capsys.readouterr().err


def test_a_reader_that_has_gone_is_no_error():
    command = f"{sys.executable} -m flashtrace_lib estimate --profile paper"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -1"], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'notebooks'}"},
    )  # fmt: skip
    assert done.returncode == 0 and "notebook" in done.stdout and "Error" not in done.stderr


def test_an_estimate_for_another_model_asks_for_its_size(capsys):
    with pytest.raises(SystemExit):
        book(["estimate", "--profile", "real"])
    assert "give --parameters of the model and --tflops" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--runs", "0"], "--runs must be at least 1"),
        (["--targets", "--sizes", "8+8"], "leave --sizes out"),
        (["--targets", "--runs", "5", "--dtype", "bfloat16"], "leave --dtype, --runs out"),
    ],
)
def test_a_benchmark_ignores_nothing_that_was_asked(capsys, arguments, message):
    with pytest.raises(SystemExit):
        measure.main(arguments)
    assert message in capsys.readouterr().err


def test_a_value_that_is_no_yaml_is_named(capsys):
    assert book(["book", "05", "--set", "x=["]) == 2
    assert "--set 'x=[': the value is no YAML" in capsys.readouterr().err


def test_claims_without_results_change_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(tmp_path / "figures"))
    before = (ROOT / "README.md").read_text()
    assert book(["claims"]) == 2 and "no figures of any profile" in capsys.readouterr().err
    (tmp_path / "figures" / "laptop").mkdir(parents=True)
    assert book(["claims"]) == 2 and "no results in" in capsys.readouterr().err
    assert (ROOT / "README.md").read_text() == before
