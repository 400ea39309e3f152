"""Limits are enforced on real processes: one that sleeps, one that allocates, one that fails, one that is well."""

import sys
import time

import pytest

from flashtrace_book.efficiency.supervised_process import ERROR, OK, OUT_OF_MEMORY, TIME_OUT, Limits, supervise

READY = "import json, sys, time; print(json.dumps({'ready': True}), flush=True); "


def supervised(code, **limits):
    messages = []
    ended = supervise([sys.executable, "-c", code], messages.append, Limits(**{"seconds": 20, "gib": 1, **limits}))
    return ended, messages


def test_a_worker_that_is_well_is_heard_to_its_end():
    ended, messages = supervised(READY + "print('noise'); print('[1]'); print(json.dumps({'x': 1.5}))")
    assert (ended.outcome, messages) == (OK, [{"ready": True}, {"x": 1.5}])


def test_a_run_that_takes_too_long_is_stopped():
    start = time.monotonic()
    ended, messages = supervised(READY + "time.sleep(60)", seconds=0.5)
    assert ended.outcome == TIME_OUT and "0.5 s" in ended.detail and messages == [{"ready": True}]
    assert time.monotonic() - start < 20


def test_the_limit_on_time_is_for_one_run_not_for_all():
    many = "[(time.sleep(0.5), print(json.dumps({'step': i}), flush=True)) for i in range(5)]"
    ended, messages = supervised(READY + many, seconds=2.2)  # 2.5 s in all
    assert ended.outcome == OK and len(messages) == 6


def test_a_worker_that_does_not_start_is_an_error_of_its_own():
    ended, messages = supervised("import time; time.sleep(60)", start_seconds=0.5)
    assert ended.outcome == ERROR and "to start" in ended.detail and messages == []


def test_a_worker_that_allocates_too_much_is_stopped():
    grow = "kept = []\nwhile True: kept.append(b'x' * 2**24); time.sleep(0.01)"
    ended, _ = supervised(READY + "\n" + grow, gib=0.25)
    assert ended.outcome == OUT_OF_MEMORY and "0.25 GiB" in ended.detail


def test_what_a_worker_holds_when_it_is_ready_does_not_count():
    ended, _ = supervised("kept = b'x' * 2**29; " + READY + "time.sleep(0.2)", gib=0.25)
    assert ended.outcome == OK


@pytest.mark.parametrize(
    "code, outcome, words",
    [
        ("raise MemoryError", OUT_OF_MEMORY, "MemoryError"),
        ("raise RuntimeError('CUDA out of memory. Tried to allocate 2 GiB')", OUT_OF_MEMORY, "CUDA out of memory"),
        ("import torch; torch.empty(2**50)", OUT_OF_MEMORY, "allocate"),
        ("raise ValueError('a bug')", ERROR, "a bug"),
        ("sys.exit(3)", ERROR, "exit 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", OUT_OF_MEMORY, "killed by the system"),
    ],
)
def test_a_worker_that_dies_says_of_what(code, outcome, words):
    ended, _ = supervised(READY + code)
    assert ended.outcome == outcome and words in ended.detail
