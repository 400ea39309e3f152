"""A kill, a full disk, a read-only folder, two runs at once: what is stored is kept, and the same run goes on from it.

A limit on the size of files is real: the kernel refuses to write on. A full disk and a read-only one are set up by an
audit hook, since tests that run as root may write everywhere.
"""

import errno
import json
import os
import threading

import pytest

from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.files import CannotWrite, atomic_path, write_text
from flashtrace_lib.methods import FlashTrace, Position
from flashtrace_lib.store import Store
from tests.oracles.tiny import tiny_model, tiny_sample
from tests.support.faults import FULL, READ_ONLY, attempt, content, moments

METHODS = {"flashtrace": FlashTrace(), "position": Position()}
GO_ON = "then run the same again to go on from it"


def an_evaluation(folder):
    """Work that stores four records and prints the whole frame."""
    model, samples = tiny_model(), [tiny_sample(seed=seed) for seed in range(2)]

    def work():
        store = Store(folder / "results")
        frame = evaluate(model, METHODS, samples, store=store, metrics=("recovery",), progress=False)
        store.compact()
        print(frame[["method", "sample", "metric", "value"]].to_json(orient="records"))

    return work


def test_a_kill_at_any_change_of_a_file(tmp_path):
    whole = attempt(an_evaluation(tmp_path / "whole"), tmp_path)
    assert whole.code == 0 and whole.changes > 4, whole.text
    for moment in moments(whole.changes, 6):
        place = tmp_path / f"killed-{moment}"
        assert attempt(an_evaluation(place), tmp_path, kill_at=moment).code == -9
        again = attempt(an_evaluation(place), tmp_path)
        assert (again.code, again.text) == (0, whole.text), f"killed at change {moment} of {whole.changes}"
        assert len(Store(place / "results")) == 4


@pytest.mark.parametrize("fault", [{"refuse": FULL, "after": 6}, {"refuse": READ_ONLY}, {"largest": 1000}], ids=str)
def test_a_disk_that_refuses(tmp_path, fault):
    expected = attempt(an_evaluation(tmp_path / "whole"), tmp_path)
    stopped = attempt(an_evaluation(tmp_path / "stopped"), tmp_path, **fault)
    assert stopped.code == 1 and "CannotWrite: cannot write" in stopped.text.splitlines()[-1], stopped.text
    assert GO_ON in stopped.text.splitlines()[-1]
    kept = len(Store(tmp_path / "stopped" / "results"))
    assert 0 < kept < 4 if fault.get("after") else kept == 0
    again = attempt(an_evaluation(tmp_path / "stopped"), tmp_path)
    assert (again.code, json.loads(again.text)) == (0, json.loads(expected.text))


def test_what_is_stored_is_read_where_nothing_can_be_written(tmp_path):
    assert attempt(an_evaluation(tmp_path), tmp_path).code == 0
    before, again = content(tmp_path), attempt(an_evaluation(tmp_path), tmp_path, refuse=READ_ONLY)
    assert again.code == 0 and content(tmp_path) == before, again.text


def test_two_evaluations_of_one_store(tmp_path):
    expected, ended = attempt(an_evaluation(tmp_path / "alone"), tmp_path), []
    work = an_evaluation(tmp_path / "shared")
    threads = [threading.Thread(target=lambda: ended.append(attempt(work, tmp_path))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.text for one in ended] == [expected.text] * 2
    alone, shared = (Store(tmp_path / name / "results") for name in ("alone", "shared"))
    assert shared.records()["key"].tolist() == alone.records()["key"].tolist()


@pytest.mark.parametrize(("number", "advice"), [
    (errno.ENOSPC, "No space left on device. What is stored is kept: free some space, " + GO_ON),
    (errno.EROFS, "Read-only file system.*make its folder writable, or name another by FLASHTRACE_RESULTS_DIR"),
])  # fmt: skip
def test_the_message_names_the_file_and_says_what_to_do(tmp_path, monkeypatch, number, advice):
    write_text(tmp_path / "a.txt", "old")

    def refused(*_):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refused)
        with pytest.raises(CannotWrite, match=rf"^cannot write {tmp_path}/a.txt: .*{advice}") as caught:
            write_text(tmp_path / "a.txt", "new")
    assert caught.value.errno == number and content(tmp_path) == {"a.txt": b"old"}
    assert len(list(tmp_path.iterdir())) == 1  # no half of a file either
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a.txt"):  # what is no such fault stays what it is
        open(tmp_path / "nowhere" / "b.txt")
