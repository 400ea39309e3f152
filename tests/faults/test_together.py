"""Runs that share a folder: at the same time, after one was killed in it, and where an earlier version wrote it."""

import json
import os
import signal
import threading
import time
import types

import nbformat
import pyarrow.parquet as pq
import pytest

from flashtrace_book import manifest, runner, stale
from flashtrace_book.notebooks import read_source
from flashtrace_book.profiles import load_profile
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.files import write_text
from flashtrace_lib.methods import FlashTrace, Position
from flashtrace_lib.store import USED_LOG, Store
from tests.oracles.tiny import tiny_model, tiny_sample
from tests.support.faults import attempt, content

METHODS = {"flashtrace": FlashTrace(), "position": Position()}


def at_once(*works, folder):
    """What `attempt` says of each of the works, which run at the same time."""
    ended = [None] * len(works)

    def run(place, work):
        ended[place] = attempt(work, folder)

    threads = [threading.Thread(target=run, args=item) for item in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.code for one in ended] == [0] * len(works), [one.text for one in ended]
    return [one.text for one in ended]


def evaluation(store, samples, model):
    """Work that evaluates, merges the store meanwhile, and prints the frame."""

    def work():
        for sample in samples:
            evaluate(METHODS, [sample], model, store=store, metrics=("recovery",), progress=False)
            store.compact()
        frame = evaluate(METHODS, samples, model, store=store, metrics=("recovery",), progress=False)
        print(frame[["method", "sample", "value"]].to_json(orient="records"))

    return work


def test_two_evaluations_of_one_store(tmp_path):
    model, samples = tiny_model(), [tiny_sample(seed=seed) for seed in range(4)]
    expected = attempt(evaluation(Store(tmp_path / "alone"), samples, model), tmp_path)
    runs = [evaluation(Store(tmp_path / "shared"), samples, model) for _ in range(2)]
    assert at_once(*runs, folder=tmp_path) == [expected.text] * 2 and expected.code == 0
    alone, shared = (Store(tmp_path / name) for name in ("alone", "shared"))
    assert shared.records()["key"].tolist() == alone.records()["key"].tolist() and len(shared) == 8
    assert not list(shared.parts.glob("*.parquet"))


def test_runs_that_note_models_chapters_and_keys_at_once_lose_none(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path))
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(tmp_path / "none"))
    for name in ("versions", "hardware", "git_state"):
        monkeypatch.setattr(manifest, name, dict)
    monkeypatch.setattr(manifest, "data_hashes", lambda profile: {})
    profile, book = load_profile("smoke"), [f"{number:02}_x" for number in range(12)]

    def noting(names):
        def work():
            for name in names:
                manifest.record_model("smoke", name, {"fingerprint": name})
                with stale.noting_use("smoke", name, book) as finished:
                    write_text(os.environ[USED_LOG], f"{tmp_path / 'smoke' / 'ruler.parquet'}\t{name}\n")
                    finished.append(True)
                manifest.write_manifest(profile, {name: {"error": None}}, book)

        return work

    at_once(noting(book[:6]), noting(book[6:]), folder=tmp_path)
    assert sorted(manifest.read_models("smoke")) == book
    assert stale.used_keys("smoke") == {name: {"ruler": [name]} for name in book}
    assert list(json.loads((tmp_path / "smoke" / "manifest.json").read_text())["notebooks"]) == book


@pytest.mark.parametrize("moment", range(1, 7))
def test_a_fresh_book_that_is_killed_while_it_replaces_the_results(tmp_path, moment):
    new, old = tmp_path / "build" / "laptop", tmp_path / "results" / "laptop"
    for folder, text in ((new, "new"), (old, "old")):
        write_text(folder / "x.txt", text)
    killed = attempt(lambda: runner.promote(new, old), tmp_path, kill_at=moment)
    assert killed.code == -9, killed.changes
    runner.restore(old)  # as each later run of the book does
    found = content(old)
    assert found in ({"x.txt": b"old"}, {"x.txt": b"new"})
    if new.is_dir() and content(new):  # else it was done, and only what was replaced had to go
        runner.promote(new, old)
    assert content(old) == {"x.txt": b"new"}


def test_a_store_of_an_earlier_version_goes_on(tmp_path, monkeypatch):
    """Before columns were signed, and before samples said where their haystack is."""
    model, samples = tiny_model(), [tiny_sample(seed=seed) for seed in range(3)]
    store = Store(tmp_path / "results")
    how = {"store": store, "metrics": ("recovery",), "progress": False}
    expected = evaluate(METHODS, samples, model, **how)
    store.drop(store.records()["key"][:1])  # one is still to be computed
    table = pq.read_table(store.path)
    earlier = table.drop_columns(["haystack", "sentences"]).replace_schema_metadata(None)
    pq.write_table(earlier, store.path)
    computed = []
    for method in (FlashTrace, Position):
        attribute = method._attribute
        monkeypatch.setattr(
            method, "_attribute", lambda self, *a, _of=attribute: computed.append(self.name) or _of(self, *a)
        )
    found = evaluate(METHODS, samples, model, **how)
    assert len(computed) == 1
    columns = ["method", "sample", "metric", "value"]
    assert found[columns].equals(expected[columns])
    store.compact()
    assert len(store) == 6 and b"flashtrace.columns" in pq.read_schema(store.path).metadata


# --- a book that is killed ------------------------------------------------------------------------------------

CHAPTER = """\
# %% tags=["parameters"]
profile = "laptop"

# %%
import os, pathlib, time
from flashtrace_lib.store import Store
from flashtrace_book.run import start
run = start(profile)
store, calls = Store(run.store("counts")), pathlib.Path(os.environ["TEST_CALLS"])
for number in range(4):
    store.cached(f"NAME-{number}", lambda: calls.open("a").write(f"NAME-{number}\\n") and {"x": number})
    while number == 2 and "NAME" == "02_b" and os.environ.get("TEST_HANG"):
        time.sleep(0.05)
print(store.records()["x"].sum())
"""


@pytest.fixture
def book(tmp_path, monkeypatch):
    """Two chapters of four records each; the second stops before its last while TEST_HANG is set."""
    for name in ("RESULTS", "FIGURES", "BUILD"):
        monkeypatch.setenv(f"FLASHTRACE_{name}_DIR", str(tmp_path / name.lower()))
    monkeypatch.setenv("TEST_CALLS", str(tmp_path / "calls.txt"))
    (folder := tmp_path / "notebooks").mkdir()
    for name in ("01_a", "02_b"):
        (folder / f"{name}.py").write_text(CHAPTER.replace("NAME", name))
        nbformat.write(read_source(folder / f"{name}.py"), folder / f"{name}.ipynb")
    return types.SimpleNamespace(folder=folder, calls=tmp_path / "calls.txt", results=tmp_path / "results" / "smoke")


@pytest.mark.slow
def test_a_book_that_is_killed_in_a_chapter_goes_on(book, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("TEST_HANG", "1")
        child = os.fork()
        if child == 0:
            runner.run_book("smoke", folder=book.folder)
            os._exit(1)
        deadline = time.time() + 300
        while time.time() < deadline and not (book.calls.exists() and "02_b-2" in book.calls.read_text()):
            time.sleep(0.05)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    begun = book.calls.read_text().split()
    assert begun == [f"01_a-{number}" for number in range(4)] + [f"02_b-{number}" for number in range(3)]
    left = json.loads((book.results / "manifest.json").read_text())["notebooks"]
    assert list(left) == ["01_a"] and left["01_a"]["error"] is None  # a true one, of what was finished
    result = runner.run_book("smoke", folder=book.folder)
    assert result.exit_code == 0
    again = book.calls.read_text().split()[len(begun) :]
    assert again in (["02_b-3"], ["02_b-2", "02_b-3"])  # at most the record in flight
    assert list(json.loads(result.manifest.read_text())["notebooks"]) == ["01_a", "02_b"]
    assert Store(book.results / "counts").records()["x"].tolist() == [0, 1, 2, 3] * 2
    assert stale.unused(load_profile("smoke"), ["01_a", "02_b"]) == {}
