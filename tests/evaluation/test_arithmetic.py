"""The arithmetic of deletion curves is chosen once for an evaluation, and for all evaluations of one store."""

import pytest
import torch

from flashtrace_lib import FlashTrace
from flashtrace_lib.evaluation import audit, evaluate
from flashtrace_lib.metrics.arithmetic import without_emulation
from flashtrace_lib.metrics.deletion import Scorer
from flashtrace_lib.store import Store
from tests.oracles.embedding import CALLS, METHODS, Embedding
from tests.oracles.tiny import tiny_model, tiny_sample


@pytest.fixture
def bfloat16(monkeypatch):
    """A CPU that computes in bfloat16."""
    monkeypatch.setattr("flashtrace_lib.metrics.arithmetic._native_bfloat16", lambda: True)


def automatic(model, tolerance=9.0, **options):
    return Scorer(model, precision="auto", tolerance=tolerance, **options)


def arithmetic(store):
    """Arithmetic and reason of every stored curve, each once."""
    records = store.records()
    return sorted(set(zip(records["curve_dtype"], records["curve_note"], strict=True)))


def test_one_arithmetic_is_chosen_before_the_first_curve(bfloat16, model, samples, tmp_path, monkeypatch):
    """A sample that cannot decide, since masking it lowers nothing, is scored as the others are."""
    flags, store = iter([True, False]), Store(tmp_path / "x")
    monkeypatch.setattr("flashtrace_lib.metrics.deletion.is_flagged", lambda curve: next(flags))
    scorer = automatic(model)
    frame = evaluate(METHODS, samples, model, store=store, scorer=scorer, progress=False)
    ((dtype, note),) = arithmetic(store)
    assert dtype == "bfloat16" and note.startswith("bfloat16: bfloat16 changes RISE by")
    assert set(frame["curve_dtype"]) == {dtype} and next(flags, None) is None
    assert len(CALLS) == 6 and scorer.is_open and scorer.n_contexts == 0  # neither done twice nor changed


def test_nothing_is_chosen_where_no_sample_can_decide(bfloat16, model, samples, tmp_path, monkeypatch):
    monkeypatch.setattr("flashtrace_lib.metrics.deletion.is_flagged", lambda curve: True)
    store = Store(tmp_path / "x")
    evaluate(METHODS, samples, model, store=store, scorer=automatic(model), progress=False)
    assert arithmetic(store) == [("float32", "float32: not yet compared with bfloat16")]
    monkeypatch.undo()
    monkeypatch.setattr("flashtrace_lib.metrics.arithmetic._native_bfloat16", lambda: True)
    monkeypatch.setattr("flashtrace_lib.metrics.deletion.is_flagged", lambda curve: False)
    evaluate([Embedding(3.0)], samples, model, store=store, scorer=automatic(model), progress=False)
    assert {dtype for dtype, _ in arithmetic(store)} == {"float32", "bfloat16"}


def test_without_a_store_nothing_is_attributed_twice(bfloat16, model, samples):
    evaluate(METHODS, samples, model, scorer=automatic(model), progress=False)
    assert len(CALLS) == 6


@pytest.mark.parametrize("tolerance", [-1.0, 9.0])
def test_later_evaluations_go_on_in_the_arithmetic_of_the_store(
    bfloat16, model, samples, tmp_path, monkeypatch, tolerance
):
    monkeypatch.setattr("flashtrace_lib.metrics.deletion.is_flagged", lambda curve: False)
    store, other = Store(tmp_path / "x"), tiny_model("llama", seed=1)
    options = dict(store=store, progress=False)
    evaluate([Embedding(2.0)], samples, other, scorer=automatic(other, -tolerance), **options)  # does not count
    evaluate([Embedding(2.0)], samples, model, scorer=Scorer(model), **options)  # nor do curves that had no choice
    before = arithmetic(store)
    evaluate([Embedding()], samples[:1], model, scorer=automatic(model, tolerance), **options)
    (chosen,) = set(arithmetic(store)) - set(before)
    store.compact()
    evaluate(METHODS, samples, model, scorer=automatic(model, -tolerance), **options)
    assert set(arithmetic(store)) == {*before, chosen}
    assert chosen[0] == ("bfloat16" if tolerance > 0 else "float32")


def test_a_dtype_that_the_caller_gives_is_kept(bfloat16, model, samples, tmp_path):
    for dtype, note in (("float32", "asked for"), ("bfloat16", "asked for, too")):
        store = Store(tmp_path / dtype)
        scorer = automatic(model, dtype=dtype, note=note)
        evaluate([Embedding()], samples, model, store=store, scorer=scorer, progress=False)
        assert arithmetic(store) == [(dtype, note)] and scorer.n_contexts == 63


def test_an_audit_computes_curves_in_the_arithmetic_they_are_stored_in(bfloat16, tmp_path):
    """One curve decides between float32 and bfloat16, and the scorer of an audit might decide otherwise."""
    model, samples = tiny_model(), [tiny_sample(seed=seed) for seed in range(3)]
    for tolerance, dtype in ((-1.0, "float32"), (9.0, "bfloat16")):
        store = Store(tmp_path / dtype)
        scorer = Scorer(model, precision="auto", tolerance=tolerance)
        evaluate([Embedding()], samples, model, store=store, steps=4, scorer=scorer, progress=False)
        assert set(store.records()["curve_dtype"]) == {dtype}
        for opposite in (-1.0, 9.0):
            again = Scorer(model, precision="auto", tolerance=opposite)
            checked = audit([Embedding()], samples, model, store, k=3, steps=4, scorer=again)
            gaps = checked[checked["quantity"] == "log_probs"]
            assert len(gaps) == 3 and checked["agrees"].all() and (gaps["difference"] < 1e-6).all()


def test_a_bfloat16_that_the_cpu_would_emulate_gives_way_to_float32(monkeypatch):
    model = tiny_model()
    for native, expected in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr("flashtrace_lib.metrics.arithmetic._native_bfloat16", lambda native=native: native)
        assert without_emulation("bfloat16", model) == expected
        assert without_emulation("float32", model) == "float32"
        assert without_emulation("bfloat16", tiny_model(dtype=torch.bfloat16)) == "bfloat16"  # the model's own dtype


def test_an_audit_computes_in_float32_what_the_cpu_would_emulate(tmp_path, monkeypatch):
    monkeypatch.setattr("flashtrace_lib.metrics.arithmetic._native_bfloat16", lambda: True)
    model, sample, store = tiny_model(), tiny_sample(), Store(tmp_path / "s")
    methods = {"flashtrace": FlashTrace()}
    evaluate(methods, [sample], model, store=store, metrics=("rise",), scorer=Scorer(model, dtype="bfloat16"))
    seen = []
    curve = Scorer.curve
    monkeypatch.setattr(Scorer, "curve", lambda scorer, *args: seen.append(scorer.dtype) or curve(scorer, *args))
    for native, expected in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr("flashtrace_lib.metrics.arithmetic._native_bfloat16", lambda native=native: native)
        audit(methods, [sample], model, store, k=1, scorer=Scorer(model, dtype="bfloat16"))
        assert seen.pop() == expected
