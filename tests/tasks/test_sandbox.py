"""The sandbox: right solutions pass, and hostile ones get nothing done."""

import os
import time

import pytest

from flashtrace_lib.tasks.datasets import synthetic_records
from flashtrace_lib.tasks.sandbox import Limits, run_tests

TESTS = "import unittest\nfrom work import answer\n\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(answer(), 42)\n"  # noqa: E501
QUICK = Limits(seconds=4, memory=2**29)


def verdict(solution, tests=TESTS, limits=QUICK):
    return run_tests({"work.py": solution, "work_test.py": tests}, "work_test", limits)


def test_right_and_wrong_solutions():
    right = verdict("def answer():\n    return 42\n")
    assert right.passed and (right.outcome, right.tests) == ("passed", 1)
    wrong = verdict("def answer():\n    return 41\n")
    assert not wrong.passed and wrong.outcome == "failed" and "41 != 42" in wrong.detail
    broken = verdict("def answer(:\n")
    assert not broken.passed and "SyntaxError" in broken.detail


@pytest.mark.parametrize("record", synthetic_records("exercism", 3), ids=lambda record: record["slug"])
def test_exercises_pass_and_their_stubs_fail(record):
    module = record["slug"].replace("-", "_")
    files = {f"{module}_test.py": record["files"][f"{module}_test.py"]}
    solved = run_tests({**files, f"{module}.py": record["files"][".meta/example.py"]}, f"{module}_test")
    assert solved.passed and solved.tests >= 3, solved
    assert not run_tests({**files, f"{module}.py": record["files"][f"{module}.py"]}, f"{module}_test").passed


@pytest.mark.parametrize(
    ("solution", "outcomes"),
    [
        ("while True: pass", {"timeout"}),
        ("import time; time.sleep(60)", {"timeout"}),
        ("x = bytearray(10 ** 10)", {"failed", "killed"}),
        ("import sys; sys.exit(0)", {"failed", "killed"}),
        ("import os; os._exit(0)", {"killed"}),
        ("print('x' * 10 ** 8)", {"failed", "killed"}),
        ("open('big', 'w').write('x' * 10 ** 8)", {"failed", "killed"}),
        ("import os\nwhile True: os.fork()", {"failed", "killed"}),
        ("import subprocess; subprocess.run(['true'])", {"failed", "killed"}),
        ("import socket; socket.create_connection(('127.0.0.1', 9), 1)", {"failed", "killed"}),
        ("import ctypes; ctypes.CDLL(None)", {"failed", "killed"}),
        ("import os; os.kill(os.getppid(), 9)", {"failed", "killed"}),
    ],
)
def test_hostile_solutions_fail_in_time(solution, outcomes):
    start = time.perf_counter()
    found = verdict(f"{solution}\n\ndef answer():\n    return 42\n")
    assert not found.passed and found.outcome in outcomes, found
    assert time.perf_counter() - start < 20


def test_nothing_outside_the_folder_is_touched(tmp_path):
    kept, new = tmp_path / "kept", tmp_path / "new"
    kept.write_text("mine")
    os.chmod(tmp_path, 0o777)
    for attempt in (f"open({str(kept)!r}, 'w')", f"__import__('os').remove({str(kept)!r})", f"open({str(new)!r}, 'w')",
                    f"__import__('shutil').rmtree({str(tmp_path)!r})"):  # fmt: skip
        assert not verdict(f"{attempt}\n\ndef answer():\n    return 42\n").passed
    assert kept.read_text() == "mine" and not new.exists()
    inside = "open('note', 'w').write('x')\n\ndef answer():\n    return 42 if open('note').read() == 'x' else 0\n"
    assert verdict(inside).passed


def test_a_solution_cannot_report_for_itself():
    forged = "import os\nos.write(1, b'\\n[1, true]\\n')\nos._exit(0)\n"
    assert verdict(forged).outcome == "killed"
    assert verdict("def answer():\n    return 42\n", tests="import work\n").outcome == "no tests"


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="no file work_test.py among work.py"):
        run_tests({"work.py": ""}, "work_test")
    with pytest.raises(ValueError, match="outside the folder"):
        run_tests({"work_test.py": "", "../evil.py": ""}, "work_test")
