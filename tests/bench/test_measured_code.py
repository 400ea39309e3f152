"""A time belongs to the code that was timed: what that reaches counts, and nothing else does."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from flashtrace_book.efficiency import timing
from flashtrace_book.run import start
from flashtrace_lib import FlashTrace
from flashtrace_lib.bench import measure, measured_code
from flashtrace_lib.bench.measured_code import code_of
from flashtrace_lib.methods import METHODS
from tests.oracles.tiny import tiny_model

METHOD = '''"""Doc."""
from __future__ import annotations
from .kernel import work, TABLE
from . import kernel as other

class Base:
    def run(self, x: int) -> int:
        """Say."""
        return work(x)

class Fast(Base):
    size: int = 3

def unused(x):
    return x
'''
KERNEL = """
TABLE = {"a": 1}
registered = []
registered.append(TABLE)

def helper(x):
    return x + LIMIT  # why

LIMIT = 2

def work(x):
    return helper(x)

def elsewhere():
    return 0
"""


@pytest.fixture
def hashed(tmp_path, monkeypatch):
    """Hash of the class Fast of a package of two modules, by their sources."""
    monkeypatch.setattr(measured_code, "_PACKAGE", "timedpackage")
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "timedpackage"
    folder.mkdir()

    def hash_of(method=METHOD, kernel=KERNEL, **more):
        for path in folder.glob("*.py"):
            path.unlink()
        for name, text in {"__init__": "", "method": method, "kernel": kernel, **more}.items():
            (folder / f"{name}.py").write_text(text)
        for cached in (measured_code._code_of, measured_code._module, measured_code._path):
            cached.cache_clear()
        for name in [name for name in sys.modules if name.startswith("timedpackage")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        return measured_code._code_of((("timedpackage.method", "Fast"),))

    yield hash_of
    for cached in (measured_code._code_of, measured_code._module, measured_code._path):
        cached.cache_clear()


@pytest.mark.parametrize(
    "old, new",
    [
        ("x + LIMIT", "x - LIMIT"),
        ("LIMIT = 2", "LIMIT = 3"),
        ("append(TABLE)", "append(None)"),
        ("return helper(x)", "return helper(-x)"),
    ],
)
def test_a_change_of_what_is_reached_counts(hashed, old, new):
    assert old in KERNEL
    assert hashed(kernel=KERNEL.replace(old, new)) != hashed()


def test_a_change_of_the_class_or_its_base_counts(hashed):
    keys = {hashed(), hashed(METHOD.replace("= 3", "= 4")), hashed(METHOD.replace("work(x)", "work(x + 1)"))}
    assert len(keys) == 3


def test_what_is_not_reached_or_not_run_does_not_count(hashed):
    key = hashed()
    assert hashed(METHOD.replace("Doc.", "Other.").replace("Say.", "Tell.").replace("x: int) -> int", "x)")) == key
    assert hashed(METHOD.replace("return x\n", "return 2 * x\n")) == key  # unused
    assert hashed(kernel=KERNEL.replace("return 0", "return 1").replace("# why", "# because")) == key
    assert hashed(other="def f(): return 1\n") == key


@pytest.mark.parametrize(("returns", "counts"), [("Fast", False), ("int", True)])
def test_a_constructor_of_its_own_class_does_not_count(hashed, returns, counts):
    text = METHOD.replace(
        "    size: int = 3\n",
        f"""    size: int = 3

    @classmethod
    def small(cls) -> {returns}:
        return cls(1)
""",
    )
    assert text != METHOD
    assert (hashed(text) != hashed()) == counts


def test_a_definition_that_moves_keeps_the_hash(hashed):
    key = hashed()
    moved = KERNEL.replace("def helper(x):\n    return x + LIMIT  # why\n\nLIMIT = 2\n", "from .low import helper\n")
    assert "helper" in moved and "LIMIT" not in moved
    assert hashed(kernel=moved, low="LIMIT = 2\n\ndef helper(x):\n    return x + LIMIT\n") == key
    through = {"low": "LIMIT = 2\n\ndef helper(x):\n    return x + LIMIT\n", "middle": "from .low import helper\n"}
    assert hashed(kernel=moved.replace(".low", ".middle"), **through) == key
    renamed = METHOD.replace(".kernel import work", ".core import work").replace("import kernel as", "import core as")
    assert hashed(renamed, kernel="", core=KERNEL) == key


def test_a_method_reaches_the_kernel_and_not_the_reports():
    modules = {m for m, _ in measured_code.reached((("flashtrace_lib.methods.flashtrace", "FlashTrace"),))}
    assert {"flashtrace_lib.kernel.capture", "flashtrace_lib.kernel.proximity", "flashtrace_lib.sample"} <= modules
    assert not [m for m in modules if ".report" in m or ".tasks" in m or ".metrics" in m or ".store" in m]
    assert len({code_of(method) for method in METHODS.values()}) == len(METHODS)
    with pytest.raises(ValueError, match="defines no nothing"):
        measured_code._code_of((("flashtrace_lib.sample", "nothing"),))


def test_other_code_is_timed_again_and_the_same_code_is_not(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path))
    run, model, calls = start("smoke"), tiny_model(), []
    monkeypatch.setattr(measure, "timed", lambda call: calls.append(1) or 1.0)

    def timed_runs():
        timing.span_cost(run, model, {"flashtrace": FlashTrace(hops=0)}, [(8, 2)], runs=1)
        return len(calls)

    assert (timed_runs(), timed_runs()) == (1, 1)
    monkeypatch.setattr(timing, "code_of", lambda *things: "other code")
    assert (timed_runs(), timed_runs()) == (2, 2)


def test_a_version_stands_for_another_only_where_it_was_measured_to_be_as_fast():
    noted = json.loads((Path(measured_code.__file__).parent / "same_times.json").read_text())
    for code, found in noted.items():
        assert found["method"] in METHODS and abs(found["ratio"] - 1) < 0.03
        assert measured_code._as_fast()[code] == found["as"] and found["as"] not in noted
