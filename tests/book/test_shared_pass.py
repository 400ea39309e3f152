"""Settings of FlashTrace that share one pass give what each gives alone."""

import pytest
import torch

from flashtrace_book.experiments.better_plan import compared, settings
from flashtrace_book.experiments.shared_pass import SharedPass, sharing
from flashtrace_lib import FlashTrace
from flashtrace_lib.evaluation.recorder import record_key
from flashtrace_lib.kernel import capture as capture_module
from flashtrace_lib.methods import flashtrace as module
from tests.oracles.tiny import tiny_model, tiny_sample
from tests.oracles.tiny_reasoner import load_tokenizer


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def test_every_setting_gives_what_it_gives_alone_from_one_pass_a_sample(model, monkeypatch):
    passes = []

    def counted(*args, **kwargs):
        passes.append(args[2])
        return capture_module.capture(*args, **kwargs)

    methods = {name: m for name, m in compared(load_tokenizer(), 1).items() if name in settings()}
    shared = sharing(methods)
    for seed in range(2):
        sample = tiny_sample(seed=seed)
        alone = {name: method.attribute(model, sample) for name, method in methods.items()}
        monkeypatch.setattr(module, "capture", counted)
        passes.clear()
        together = {name: method.attribute(model, sample) for name, method in shared.items()}
        monkeypatch.undo()
        assert passes == [sample.segments.generated]
        for name, method in shared.items():
            assert isinstance(method, SharedPass) and method.options() == methods[name].options()
            assert record_key("m", "s", method, 20, "auto") == record_key("m", "s", methods[name], 20, "auto")
            torch.testing.assert_close(together[name].scores, alone[name].scores, rtol=1e-5, atol=1e-7)
            assert together[name].metadata == alone[name].metadata | {"mass": together[name].metadata["mass"]}


def test_another_model_and_more_rows_are_read_anew(model):
    sample, other = tiny_sample(), tiny_model(seed=1)
    shared = sharing({"k0": FlashTrace(hops=0), "k1": FlashTrace(hops=1)})
    for one in (model, other, model):
        for name, method in shared.items():
            expected = FlashTrace(hops=int(name[1])).attribute(one, sample).scores
            torch.testing.assert_close(method.attribute(one, sample).scores, expected, rtol=1e-5, atol=1e-7)


def test_other_methods_stay_themselves():
    ifr = object()
    assert sharing({"ifr": ifr}) == {"ifr": ifr}
