"""Times are measured once, methods in turn, and read from the store after that."""

import pandas as pd

from flashtrace_book.efficiency import timing
from flashtrace_book.run import start
from flashtrace_lib import FlashTrace
from flashtrace_lib.bench import measure
from flashtrace_lib.methods import IFR
from tests.oracles.tiny import tiny_model, tiny_sample


def test_span_cost_is_measured_once(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path))
    run, model = start("smoke"), tiny_model()
    first = timing.span_cost(run, model, {"flashtrace": FlashTrace(hops=0)}, [(8, 2), (8, 4)], runs=2)
    assert len(first) == 4 and (first["seconds"] > 0).all()
    again = timing.span_cost(run, model, {"flashtrace": FlashTrace(hops=0)}, [(8, 2), (8, 4)], runs=2)
    pd.testing.assert_frame_equal(first, again)


def test_methods_are_timed_in_turn_and_once(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path))
    run, model, order = start("smoke"), tiny_model(), []
    samples = [tiny_sample(), tiny_sample(n=20, output=(12, 18), seed=1)]
    for i, sample in enumerate(samples):
        sample.metadata = {"id": f"s{i}", "cell": "c"}

    def fake(attribute):
        _, sample = attribute.args
        order.append((attribute.func.__self__.name, sample.id))
        return float(len(order))

    monkeypatch.setattr(measure, "timed", fake)
    methods = {"flashtrace": FlashTrace(), "ifr": IFR()}
    first = timing.paired_seconds(run, model, methods, samples, "cost", runs=3)
    assert order[:4] == [("flashtrace", "s0"), ("ifr", "s0")] * 2 and len(order) == 12
    assert first["seconds"].tolist() == [3.0, 4.0, 9.0, 10.0] and set(first["cell"]) == {"c"}
    again = timing.paired_seconds(run, model, methods, samples, "cost", runs=3)
    pd.testing.assert_frame_equal(first, again)
    assert len(order) == 12


def test_speedup_is_taken_sample_by_sample():
    rows = [("slow", "a", 6.0), ("fast", "a", 2.0), ("slow", "b", 1.0), ("fast", "b", 2.0)]
    table = timing.speedup(pd.DataFrame(rows, columns=["method", "sample", "seconds"]), "slow", "fast")
    assert table["speedup"].tolist() == [3.0, 0.5]
