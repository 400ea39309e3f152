"""Workers in processes of their own give the frame of a serial run, whatever happens to them."""

import multiprocessing
import os
import pickle
import signal
import sys
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch

from flashtrace_lib import FlashTrace, load_model
from flashtrace_lib.attribution import Attribution, Method
from flashtrace_lib.evaluation import evaluate, on_dask
from flashtrace_lib.evaluation.ablations import masks_beside
from flashtrace_lib.fingerprints import model_fingerprint
from flashtrace_lib.load import recipe_of
from flashtrace_lib.metrics import Scorer, arithmetic
from flashtrace_lib.store import Store
from tests.metrics.test_ablation import haystack_sample
from tests.oracles.tiny import tiny_model, tiny_sample
from tests.oracles.tiny_reasoner import load_tokenizer

RECIPE = partial(tiny_model, "llama")


@dataclass
class Logged(Method):
    """Size of the embeddings; notes what it was asked, and can fail, or kill its process once."""

    power: float = 1.0
    log: str = ""
    fail_on: str = ""
    kill_on: str = ""

    name = "logged"
    excluded_from_key = ("log", "fail_on", "kill_on")

    def _attribute(self, model, sample):
        with open(self.log, "a") as file:
            file.write(f"{self.power} {sample.id}\n")
        if sample.id == self.fail_on:
            raise ArithmeticError("no such power")
        if sample.id == self.kill_on and not Path(f"{self.log}.killed").exists():
            Path(f"{self.log}.killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        size = model.get_input_embeddings().weight.detach()[sample.prompt_ids].norm(dim=-1)
        return Attribution(size**self.power, self.name)


@pytest.fixture(scope="module")
def client():
    with on_dask.connected(2, 2) as made:
        yield made


@pytest.fixture(scope="module")
def model():
    return RECIPE()


@pytest.fixture
def log(tmp_path):
    return str(tmp_path / "calls.txt")


@pytest.fixture
def methods(log):
    return {"a": Logged(log=log), "b": Logged(-1.0, log)}


def some_samples(count):
    shape = dict(n=60, prompt=(2, 42), reasoning=(44, 50), output=(52, 58))
    return [tiny_sample(**shape, seed=seed) for seed in range(count)]


def run(methods, samples, model, recipe=RECIPE, scorer=None, **options):
    scorer = scorer or Scorer(model)
    return evaluate(methods, samples, model, recipe=recipe, scorer=scorer, progress=False, **options)


def calls(log):
    return Counter(Path(log).read_text().splitlines()) if Path(log).exists() else Counter()


def assert_same(one, other):
    pd.testing.assert_frame_equal(one.drop(columns="seconds"), other.drop(columns="seconds"))


# --- the frame


def test_two_workers_give_the_serial_frame_and_write_the_store(client, model, tmp_path, monkeypatch):
    methods, samples = {"one": FlashTrace(hops=0), "two": FlashTrace()}, some_samples(4)
    serial = run(methods, samples, model)
    store = Store(tmp_path / "x")
    with monkeypatch.context() as caller:
        caller.setattr(Store, "put", None)  # this process stores nothing
        parallel = run(methods, samples, model, executor=client, store=store)
    assert_same(serial, parallel)
    assert len(parallel) == 4 * 2 * 3 and parallel["sample"].tolist() == serial["sample"].tolist()
    records = store.records()
    assert sorted(records["key"]) == sorted(set(parallel["key"])) and len(records) == 8
    assert [path.name for path in store.parts.iterdir() if path.name.startswith(".")] == [".lock"]


def test_caller_decides_the_arithmetic_for_all(client, model, monkeypatch, tmp_path):
    monkeypatch.setattr(arithmetic, "_native_bfloat16", lambda: True)  # here; the workers have their own idea
    samples = some_samples(4)
    scorer = Scorer(model, precision="auto", tolerance=10.0)
    stores = Store(tmp_path / "serial"), Store(tmp_path / "parallel")
    serial = run([FlashTrace()], samples, model, scorer=scorer, store=stores[0])
    parallel = run([FlashTrace()], samples, model, scorer=scorer, store=stores[1], executor=client)
    assert_same(serial, parallel)
    notes = [store.records()["curve_note"].unique().tolist() for store in stores]
    assert (parallel["curve_dtype"] == "bfloat16").all() and notes[0] == notes[1] and len(notes[0]) == 1


def test_scheduler_is_found_by_its_address(client, methods, model, log):
    frame = run(methods, some_samples(2), model, executor=client.scheduler.address)
    assert frame["sample"].nunique() == 2 and len(calls(log)) == 4
    assert client.run(os.getpid)  # the workers are not ours to close


def test_own_workers_come_and_go(methods, model, log):
    before, processes = dict(os.environ), set(multiprocessing.active_children())
    frame = run(methods, some_samples(1), model, executor=3)
    assert len(frame) == 6 and len(calls(log)) == 2
    assert {name for name in {*os.environ, *before} if os.environ.get(name) != before.get(name)} == set()
    assert set(multiprocessing.active_children()) <= processes


def test_store_out_of_reach_is_written_by_the_caller(client, methods, model, log, tmp_path, monkeypatch):
    elsewhere, work = tmp_path / "elsewhere" / "x.parquet", on_dask._work
    monkeypatch.setattr(on_dask, "_work", lambda *args: replace(work(*args), store=elsewhere))
    store, samples = Store(tmp_path / "x"), some_samples(3)
    run(methods, samples[:1], model, store=store, metrics=("recovery",))  # one sample lacks its curves alone
    frame = run(methods, samples, model, executor=client, store=store)
    assert set(calls(log).values()) == {1} and len(calls(log)) == 6
    assert len(store) == 6 and store.records()["log_probs"].notna().all() and not elsewhere.parent.exists()
    assert_same(frame, run(methods, samples, model))


# --- what can go wrong


def test_killed_worker_loses_nothing_and_repeats_only_what_it_was_doing(client, model, log, tmp_path):
    methods = {"a": Logged(log=log), "b": Logged(-1.0, log, kill_on="tiny-2")}
    samples, store = some_samples(6), Store(tmp_path / "x")
    frame = run(methods, samples, model, executor=client, store=store)
    assert Path(f"{log}.killed").exists()
    expected = Counter(f"{power} {sample.id}" for power in (1.0, -1.0) for sample in samples)
    assert calls(log) == expected + Counter({"-1.0 tiny-2": 1})
    assert len(store) == 12 and store.records()["key"].is_unique
    assert_same(frame, run(methods, samples, model))


def test_what_is_stored_is_not_computed_again_and_needs_no_worker(client, methods, model, log, tmp_path, monkeypatch):
    store, samples = Store(tmp_path / "x"), some_samples(3)
    run(methods, samples[:2], model, store=store)
    done = calls(log)
    first = run(methods, samples, model, executor=client, store=store)
    assert calls(log) - done == Counter({"1.0 tiny-2": 1, "-1.0 tiny-2": 1})
    monkeypatch.setattr(on_dask, "connected", None)
    again = run(methods, samples, model, executor=2, store=store)
    assert calls(log).total() == 6
    pd.testing.assert_frame_equal(first, again)


def test_error_names_method_and_sample_and_keeps_what_is_done(client, model, log, tmp_path):
    methods = {"a": Logged(log=log), "b": Logged(-1.0, log, fail_on="tiny-1")}
    store = Store(tmp_path / "x")
    with pytest.raises(ArithmeticError, match="no such power") as caught:
        run(methods, some_samples(2), model, executor=client, store=store)
    assert "while evaluating b on sample tiny-1" in caught.value.__notes__
    assert calls(log)["-1.0 tiny-1"] == 1  # it would fail again
    assert "tiny-1" in store.records()["sample"].tolist()
    run({"a": methods["a"]}, some_samples(2), model, executor=client)  # the workers go on


def test_other_model_or_code_is_refused(client, methods, model, log, monkeypatch):
    with pytest.raises(ValueError, match="is another one than the caller's.*pass a recipe="):
        run(methods, some_samples(1), model, recipe=partial(tiny_model, "llama", seed=1), executor=client)
    with pytest.raises(ValueError, match="do not know how to make this model"):
        run(methods, some_samples(1), model, recipe=None, executor=client)
    monkeypatch.setattr(on_dask, "code_fingerprint", lambda: "older")
    with pytest.raises(ValueError, match="runs other code"):
        run(methods, some_samples(1), model, executor=client)
    assert not calls(log)


def test_bad_executor_is_named(methods, model, monkeypatch):
    for executor in (0, True, 2.5, object()):
        with pytest.raises(ValueError, match="executor is a number of worker processes, the address"):
            run(methods, some_samples(1), model, executor=executor)
    monkeypatch.setattr(on_dask, "CONNECT_SECONDS", 0.2)
    with pytest.raises(ValueError, match="no scheduler with a worker answers at tcp://127.0.0.1:9"):
        run(methods, some_samples(1), model, executor="tcp://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, on_dask.__name__)
    with pytest.raises(ValueError, match=r"pip install -e \.\[cluster\]"):
        run(methods, some_samples(1), model, executor=2)


@pytest.mark.parametrize("reached", [True, False], ids=["store reached", "store not reached"])
def test_masks_are_scored_once_a_sample_by_the_workers(client, methods, model, log, tmp_path, reached, monkeypatch):
    """A worker stores the masks itself, or the caller does; one that is known is not scored again."""
    samples, metrics = [haystack_sample(seed=seed) for seed in range(3)], ("lds", "drop1", "keep3")
    store = Store(tmp_path / "x")
    serial = run(methods, samples, model, metrics=metrics, masks=9)
    if not reached:
        work = on_dask._work
        monkeypatch.setattr(on_dask, "_work", lambda *how: replace(work(*how), store=Path("/nowhere/x")))
    parallel = run(methods, samples[:2], model, metrics=metrics, masks=9, store=store, executor=client)
    assert len(masks_beside(store)) == 2 and len(store) == 4
    assert "masks" not in store.records().columns
    more = methods | {"c": Logged(2.0, log)}
    parallel = run(more, samples, model, metrics=metrics, masks=9, store=store, executor=client)
    assert len(masks_beside(store)) == 3 and len(store) == 9
    assert calls(log) == Counter({f"{p} tiny-{i}": 2 if p < 2 else 1 for p in (1.0, -1.0, 2.0) for i in range(3)})
    assert_same(serial, parallel[parallel["method"] != "c"].reset_index(drop=True))


# --- parts


def test_load_model_can_be_called_again_elsewhere(model, tmp_path):
    model.save_pretrained(tmp_path)
    load_tokenizer().save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), dtype="bfloat16")[0]
    recipe = pickle.loads(pickle.dumps(recipe_of(loaded)))
    assert model_fingerprint(recipe()[0]) == model_fingerprint(loaded) != model_fingerprint(model)
    assert recipe_of(model) is None


@pytest.mark.parametrize(
    ("visible", "count", "workers", "shares"),
    [
        (None, 0, 2, [None, None]),
        (None, 4, 2, ["0,1", "2,3"]),
        (None, 2, 3, ["0", "1", "0"]),
        ("5,7", 2, 2, ["5", "7"]),
        ("5,7", 2, 1, ["5,7"]),
    ],
)
def test_gpus_are_shared_out(visible, count, workers, shares, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [share.get("CUDA_VISIBLE_DEVICES") for share in on_dask.gpu_shares(workers)] == shares
