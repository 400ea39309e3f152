"""The rate of scoring is of the same work: forwards, tokens and logits are counted, seconds are not trusted."""

import pytest
import torch

from flashtrace_lib.bench import scoring
from flashtrace_lib.bench.measure import bench_sample
from flashtrace_lib.bench.scoring import recorded_batches, scoring_rate
from tests.oracles.tiny import tiny_model

SAMPLE = bench_sample(60, 20, 97)  # 79 positions a row, of which 20 are predictions


@pytest.fixture
def forwards(monkeypatch):
    """A model, and (rows, tokens, logits) of every forward pass it makes."""
    model, seen = tiny_model(), []
    forward = type(model).forward

    def counted(self, input_ids, **kwargs):
        out = forward(self, input_ids, **kwargs)
        seen.append((len(input_ids), input_ids.numel(), out.logits.shape[0] * out.logits.shape[1]))
        return out

    monkeypatch.setattr(type(model), "forward", counted)
    return model, seen


@pytest.mark.parametrize("budget", [None, 250_000, 1])
def test_plain_rows_and_curve_do_the_same_work(forwards, budget):
    model, seen = forwards
    result = scoring_rate(model, SAMPLE, steps=6, runs=2, max_batch_bytes=budget)
    n = int(result["batches"])
    rounds = [seen[at : at + n] for at in range(0, len(seen), n)]
    assert len(seen) == 7 * n and all(one == rounds[0] for one in rounds)  # the recording, then three of each round
    rows, tokens, logits = (sum(column) for column in zip(*rounds[0], strict=True))
    assert (rows, tokens, logits) == (7, 7 * 79, 7 * 20)  # no padding, no position whose logits nobody reads
    assert n == {None: 1, 1: 7}.get(budget, n) and result["contexts"] == 7 and result["n"] == 2


def test_ratios_are_those_of_the_times(monkeypatch):
    monkeypatch.setattr(scoring, "alternate", lambda calls, runs: [[1.0, 2.0, 4.0], [2.0, 2.0, 2.0], [3.0, 4.0, 4.0]])
    result = scoring_rate(tiny_model(), SAMPLE, steps=6, runs=3)
    assert (result["plain"], result["rows"], result["curve"]) == (7 / 2, 7 / 2, 7 / 4)
    assert (result["rows_ratio"], result["curve_ratio"]) == (0.75, 0.75)


def test_the_hook_is_gone_afterwards():
    model = tiny_model()
    with pytest.raises(RuntimeError):
        recorded_batches(model, lambda: (_ for _ in ()).throw(RuntimeError))
    assert not model._forward_pre_hooks
    with pytest.raises(ValueError, match="at least 1"):
        scoring_rate(model, SAMPLE, runs=0)


def test_few_bytes_are_moved_beside_the_logits(forwards):
    """A row of a batch is reduced where it lies: no copy of all logits is made."""
    model, _ = forwards
    held = []
    log_softmax = torch.Tensor.log_softmax

    def noting(self, *args, **kwargs):
        held.append(self.numel())
        return log_softmax(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "log_softmax", noting)
        scoring_rate(model, SAMPLE, steps=6, runs=1)
    assert max(held) == 20 * 97  # one row's predictions at a time
