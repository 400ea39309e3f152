"""Commands that are interrupted, whose reader has gone, or that would replace a file that they read."""

import os
import subprocess
import sys

import pytest

from flashtrace_lib import __main__ as module
from flashtrace_lib.bench import measure
from flashtrace_lib.cli import read_text
from flashtrace_lib.files import CannotWrite, check_writable, write_text
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
    with pytest.raises(ValueError, match="cannot read the prompt file"):
        read_text("", "prompt")


def test_an_interrupted_command_says_so(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("flashtrace_lib.cli.main", interrupted)
    assert module.main(["trace", "--prompt", "x"]) == 130
    assert "run it again" in capsys.readouterr().err


def test_a_reader_that_has_gone_is_no_error():
    command = f"{sys.executable} -m flashtrace_lib bench --help"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -1"], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'notebooks'}"},
    )  # fmt: skip
    assert done.returncode == 0 and "usage" in done.stdout and "Error" not in done.stderr


def test_help_takes_no_second_and_loads_nothing():
    code = "import sys, flashtrace_lib.__main__ as m; m.main(['--help']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "explain which words" in done.stdout and done.stdout.endswith("\nFalse\n")


def test_a_command_that_nobody_has(capsys):
    assert module.main(["bok"]) == 2
    assert "bok is no command: flashtrace --help" in capsys.readouterr().err
    assert module.main(["trace", "--prompt", "x", "--methd", "ifr"]) == 2
    assert "--methd ifr; flashtrace trace --help lists the options. Did you mean '--method'?" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "message"), [
    (["--runs", "0"], "--runs must be at least 1"), (["--layers", "2"], "--layers must be at least 1, and is of"),
])  # fmt: skip
def test_a_benchmark_ignores_nothing_that_was_asked(capsys, arguments, message):
    with pytest.raises(SystemExit):
        measure.main(arguments)
    assert message in capsys.readouterr().err
