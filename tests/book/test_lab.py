"""A notebook that is saved in JupyterLab changes both of its halves, wherever Lab was started."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from tests.environment import ROOT

NAME = "00_quickstart"
CONFIGURATION = ["pyproject.toml", "jupytext.toml", "notebooks/jupytext.toml"]  # where jupytext looks


def command_of_make():
    """What `make lab` would run, with this Python; a make around the tests adds lines on where it is."""
    listed = subprocess.run(
        ["make", "-n", "--no-print-directory", "-o", ".venv/.installed", "lab", f"PY={sys.executable}"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return shlex.split(listed.stdout.splitlines()[-1])


def bare_command():
    return [sys.executable, "-m", "jupyter", "lab"]


@pytest.fixture
def checkout(tmp_path):
    """One notebook of the book, and what tells jupytext of its halves."""
    folder = tmp_path / "checkout"
    for name in [f"notebooks/{NAME}.ipynb", f"notebooks/py/{NAME}.py", *CONFIGURATION]:
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@contextmanager
def server(command, folder, tmp_path):
    """The server that ``command`` starts in ``folder``: its own description, as Jupyter writes it."""
    homes = {name: str(tmp_path / "home") for name in ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")}
    options = ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0"]
    started = subprocess.Popen(
        [*command, *options, "--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"],
        cwd=folder, env=os.environ | homes, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        description = tmp_path / "home" / f"jpserver-{started.pid}.json"
        until = time.monotonic() + 60
        while not description.is_file() or not description.stat().st_size:  # it is made empty, then written
            assert started.poll() is None, started.stdout.read()
            assert time.monotonic() < until, "the server did not start within a minute"
            time.sleep(0.05)
        info = json.loads(description.read_text())
        while not answers(info):  # it is written a moment before the server listens
            assert started.poll() is None and time.monotonic() < until, "the server does not answer"
            time.sleep(0.05)
        yield info
    finally:
        started.terminate()
        started.communicate(timeout=30)


def answers(info):
    """Whether the server takes connections."""
    try:
        ask(info, "")
    except urllib.error.HTTPError:
        raise
    except urllib.error.URLError:
        return False
    return True


def ask(info, path, content=None):
    """GET a file of the contents API, or PUT one."""
    request = urllib.request.Request(
        f"{info['url']}api/contents/{path}",
        data=None if content is None else json.dumps(content).encode(),
        method="GET" if content is None else "PUT",
        headers={"Authorization": f"token {info['token']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


@pytest.mark.parametrize(("command", "place"), [(command_of_make, "."), (bare_command, "notebooks")])
def test_a_notebook_saved_in_lab_changes_both_halves(checkout, tmp_path, command, place):
    halves = [checkout / "notebooks" / f"{NAME}.ipynb", checkout / "notebooks" / "py" / f"{NAME}.py"]
    with server(command(), checkout / place, tmp_path) as info:
        for word, half in zip(("first", "second"), halves, strict=True):
            path = half.relative_to(info["root_dir"]).as_posix()
            model = ask(info, path, None) if half.suffix == ".ipynb" else ask(info, f"{path}?type=notebook", None)
            model["content"]["cells"][0]["source"] += f"\n\nThe {word} edit."
            ask(info, path, {"type": "notebook", "content": model["content"]})
            for saved in halves:
                assert f"The {word} edit." in saved.read_text(encoding="utf-8"), f"{half.name} was saved: {saved}"
    left = [p for p in checkout.rglob("*.*") if p.suffix in (".ipynb", ".py") and ".ipynb_checkpoints" not in p.parts]
    assert sorted(left) == sorted(halves)  # and no third file
