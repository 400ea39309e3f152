"""The sandbox: right solutions pass, and hostile ones get nothing done."""

import os
import time
from pathlib import Path

import pytest

from flashtrace_lib.tasks.datasets import folder_records
from flashtrace_lib.tasks.sandbox import run_tests

TESTS = "import unittest\nfrom work import answer\n\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(answer(), 42)\n"  # noqa: E501
EXERCISES = folder_records("exercism", Path(__file__).parents[1] / "records")[1]


def passes(solution, tests=TESTS):
    return run_tests({"work.py": solution, "work_test.py": tests}, "work_test", seconds=4)


def test_right_and_wrong_solutions():
    assert passes("def answer():\n    return 42\n")
    assert not passes("def answer():\n    return 41\n")
    assert not passes("def answer(:\n")
    assert not passes("def answer():\n    return 42\n", tests="import work\n")  # no test is no success


@pytest.mark.parametrize("record", EXERCISES, ids=lambda record: record["slug"])
def test_exercises_pass_and_their_stubs_fail(record):
    module = record["slug"].replace("-", "_")
    files = {name: text for name, text in record["files"].items() if name.endswith(".py") and "/" not in name}
    assert run_tests({**files, f"{module}.py": record["files"][".meta/example.py"]}, f"{module}_test")
    assert not run_tests(files, f"{module}_test")


@pytest.mark.parametrize(
    "solution",
    [
        "while True: pass", "import time; time.sleep(60)", "x = bytearray(10 ** 10)", "import sys; sys.exit(0)",
        "import os; os._exit(0)", "print('x' * 10 ** 8)", "open('big', 'w').write('x' * 10 ** 8)",
        "import os\nwhile True: os.fork()", "import subprocess; subprocess.run(['true'])",
        "import socket; socket.create_connection(('127.0.0.1', 9), 1)", "import ctypes; ctypes.CDLL(None)",
        "import os; os.kill(os.getppid(), 9)",
    ],
)  # fmt: skip
def test_hostile_solutions_fail_in_time(solution):
    start = time.perf_counter()
    assert not passes(f"{solution}\n\ndef answer():\n    return 42\n")
    assert time.perf_counter() - start < 20


def test_nothing_outside_the_folder_is_touched(tmp_path):
    kept, new = tmp_path / "kept", tmp_path / "new"
    kept.write_text("mine")
    os.chmod(tmp_path, 0o777)
    for attempt in (f"open({str(kept)!r}, 'w')", f"__import__('os').remove({str(kept)!r})", f"open({str(new)!r}, 'w')",
                    f"__import__('shutil').rmtree({str(tmp_path)!r})"):  # fmt: skip
        assert not passes(f"{attempt}\n\ndef answer():\n    return 42\n")
    assert kept.read_text() == "mine" and not new.exists()
    inside = "open('note', 'w').write('x')\n\ndef answer():\n    return 42 if open('note').read() == 'x' else 0\n"
    assert passes(inside)


def test_a_solution_cannot_report_for_itself():
    assert not passes("import os\nos.write(1, b'\\n[1, true]\\n')\nos._exit(0)\n")


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="no file work_test.py among work.py"):
        run_tests({"work.py": ""}, "work_test")
    with pytest.raises(ValueError, match="outside the folder"):
        run_tests({"work_test.py": "", "../evil.py": ""}, "work_test")
