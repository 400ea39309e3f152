"""What shapes a stored record is part of its key, and what another process adds to it stays."""

import pytest

from flashtrace_lib import FlashTrace
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.evaluation.recorder import Recorder
from flashtrace_lib.methods import ContextCite
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.store import Store
from tests.metrics.test_ablation import haystack_sample
from tests.oracles.tiny import tiny_model, tiny_sample


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture
def samples():
    return [tiny_sample()]


def test_what_another_process_adds_meanwhile_stays(model, samples, tmp_path, monkeypatch):
    store, other = Store(tmp_path / "r"), Store(tmp_path / "r")
    evaluate([FlashTrace()], samples[:1], model, store=store, metrics=("recovery",), progress=False)
    curve = Recorder.curve

    def interrupted(self, sample, scores):
        monkeypatch.setattr(Recorder, "curve", curve)
        for record in other.records().to_dict("records"):
            other.put(record["key"], record | {"added": 1.0})
        return curve(self, sample, scores)

    monkeypatch.setattr(Recorder, "curve", interrupted)
    evaluate([FlashTrace()], samples[:1], model, store=store, metrics=("recovery", "rise"), progress=False)
    records = Store(tmp_path / "r").records()
    assert (records["added"] == 1.0).all() and records["log_probs"].notna().all()


def test_a_dtype_that_was_asked_for_is_part_of_the_key(model, samples):
    own = Recorder(model, Scorer(model), 4).key(FlashTrace(), samples[0])
    assert Recorder(model, Scorer(model, dtype="float32"), 4).key(FlashTrace(), samples[0]) == own
    assert Recorder(model, Scorer(model, dtype="bfloat16"), 4).key(FlashTrace(), samples[0]) != own


def test_a_method_that_looks_at_the_haystack_has_it_in_its_key(model):
    first, second = haystack_sample(), haystack_sample()
    second.metadata["question_start"] = 30
    recorder, method = Recorder(model, Scorer(model), 4), ContextCite(sources="haystack")
    assert recorder.key(method, first) != recorder.key(method, second)
    assert recorder.key(ContextCite(), first) == recorder.key(ContextCite(), second)
