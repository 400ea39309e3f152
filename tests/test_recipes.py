"""The recipes of CONTRIBUTING: a method or a task is one new file and one line, tried on a copy of the library."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.environment import ROOT

_BLOCKS = re.findall(r'```python\n(""".*?)```', (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
RECIPES = {re.match(r'"""(\w+)', block)[1].lower(): block for block in _BLOCKS}

METHOD = """
from flashtrace_lib.methods import METHODS, chosen_method
from tests.oracles.tiny import tiny_model, tiny_sample
found = chosen_method("saliency").attribute(tiny_model("llama"), tiny_sample())
assert METHODS["saliency"].__module__ == "flashtrace_lib.methods.saliency"
assert found.method == "saliency" and abs(float(found.scores.sum()) - 1) < 1e-6 and (found.scores > 0).all()
"""
TASK = """
from flashtrace_lib.tasks import task_examples
(example,) = task_examples("keys", 1, folder=".")
(start, stop), = example.evidence
assert example.prompt[start:stop] == "The blue key opens the attic." and example.prompt[example.question:] == "Which?"
"""
FACT = "The blue key opens the attic."
RECORD = {"text": f"A. {FACT}", "question": "Which?", "answer": "blue", "fact": FACT}


def carried_out(folder, file, source, registry, after, line, check):
    """A file is added to a copy of the package and a line to its registry; then the check runs on the copy."""
    shutil.copytree(ROOT / "flashtrace_lib", folder / "flashtrace_lib", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "flashtrace_lib" / file).write_text(source, encoding="utf-8")
    table = folder / "flashtrace_lib" / registry
    text = table.read_text(encoding="utf-8")
    assert text.count(after) == 1
    table.write_text(text.replace(after, after + line), encoding="utf-8")
    how = {"cwd": folder, "env": os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}, "timeout": 300}
    return subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, **how)


@pytest.mark.parametrize("line", ['    "saliency": "saliency.Saliency",\n', ""], ids=["with", "without"])
def test_a_method_is_one_file_and_one_line(tmp_path, line):
    place = ("methods/__init__.py", "_PLACES = {\n", line)
    done = carried_out(tmp_path, "methods/saliency.py", RECIPES["saliency"], *place, METHOD)
    assert (done.returncode == 0) == bool(line), done.stderr


def test_a_task_is_one_file_and_one_line(tmp_path):
    (tmp_path / "keys.jsonl").write_text(json.dumps(RECORD) + "\n", encoding="utf-8")
    line = 'from .keys import keys_example\nTASKS["keys"] = Task(keys_example, ("keys.jsonl",))\n'
    last = 'clone="https://github.com/exercism/python"\n    ),\n}\n'
    done = carried_out(tmp_path, "tasks/keys.py", RECIPES["keys"], "tasks/registry.py", last, line, TASK)
    assert done.returncode == 0, done.stderr
