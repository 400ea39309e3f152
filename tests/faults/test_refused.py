"""A full disk, a read-only checkout, a limit on files: each command says what to do, keeps what is stored, and goes on.

A limit on the size of files is real: the kernel refuses to write on. A full disk and a read-only one are set up by an
audit hook, since tests that run as root may write everywhere. Batches and converted weights are tested beside the
others of their kind, in `tests/test_batch.py` and `tests/model/test_gguf_cache.py`.
"""

import errno
import hashlib
import json
import os

import pytest

from flashtrace_book import cli, runner
from flashtrace_book.experiments import better_flashtrace
from flashtrace_book.profiles import load_profile
from flashtrace_book.reasoner import at2, train
from flashtrace_book.reasoner.config import TrainingConfig
from flashtrace_book.run import Run
from flashtrace_lib import __main__ as command_line
from flashtrace_lib import files
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.files import CannotWrite, atomic_path, write_text
from flashtrace_lib.methods import FlashTrace, Position
from flashtrace_lib.model import gguf, qwen
from flashtrace_lib.model.embedded import use_reasoner_template
from flashtrace_lib.store import Store
from tests.oracles import tiny_gguf
from tests.oracles.tiny import tiny_model, tiny_sample
from tests.oracles.tiny_reasoner import load_tokenizer, tiny
from tests.support.faults import FULL, READ_ONLY, attempt, content

FEW = dict(description="", steps=2, warmup=1, tokens_per_step=100, tokens_per_batch=100, weights={"gsm8k": 1.0}, rank=2,
           eval_every=0, checkpoint_every=1, bf16=False)  # fmt: skip
GO_ON = "then run the same again to go on from it"


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = load_tokenizer()
    use_reasoner_template(tokenizer)
    return tokenizer


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "No space left on device. What is stored is kept: free some space, " + GO_ON),
        (errno.EDQUOT, "free some space"),
        (errno.EFBIG, r"allow larger files \(ulimit -f\)"),
        (errno.EROFS, "Read-only file system.*make its folder writable, or name another by FLASHTRACE_RESULTS_DIR"),
        (errno.EACCES, "Permission denied.*make its folder writable"),
    ],
)
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


def test_what_is_no_such_fault_stays_what_it_is(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, atomic_path(tmp_path / "a.txt"):
        open(tmp_path / "nowhere" / "b.txt")
    assert not isinstance(caught.value, CannotWrite)
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path, "x")


def an_evaluation(folder):
    """Work that stores four records and prints the whole frame."""
    model, samples = tiny_model(), [tiny_sample(seed=seed) for seed in range(2)]

    def work():
        store = Store(folder / "results")
        methods = {"flashtrace": FlashTrace(), "position": Position()}
        frame = evaluate(methods, samples, model, store=store, metrics=("recovery", "auroc"), progress=False)
        store.compact()
        print(frame[["method", "sample", "metric", "value"]].to_json(orient="records"))

    return work


@pytest.mark.parametrize("fault", [{"refuse": FULL, "after": 8}, {"refuse": READ_ONLY}, {"largest": 1000}], ids=str)
def test_an_evaluation(tmp_path, fault):
    expected = attempt(an_evaluation(tmp_path / "whole"), tmp_path)
    assert expected.code == 0, expected.text
    stopped = attempt(an_evaluation(tmp_path / "stopped"), tmp_path, **fault)
    assert stopped.code == 1 and "CannotWrite: cannot write" in stopped.text.splitlines()[-1], stopped.text
    assert GO_ON in stopped.text.splitlines()[-1]
    kept = len(Store(tmp_path / "stopped" / "results"))
    assert 0 < kept < 4 if fault.get("after") else kept == 0
    again = attempt(an_evaluation(tmp_path / "stopped"), tmp_path)
    assert (again.code, json.loads(again.text)) == (0, json.loads(expected.text))


@pytest.mark.parametrize("fault", [{"refuse": FULL, "after": 6}, {"largest": 20_000}], ids=str)
def test_a_training(tmp_path, monkeypatch, tokenizer, fault):
    model = tiny()
    monkeypatch.setattr(train, "load_model", lambda *_, **__: (model, tokenizer))
    monkeypatch.setattr(train, "load_training_config", lambda name, **_: TrainingConfig(name, **FEW))
    monkeypatch.setenv("FLASHTRACE_BUILD_DIR", str(tmp_path))
    expected = attempt(lambda: train.main(["whole"]), tmp_path)
    assert expected.code == 0, expected.text
    stopped = attempt(lambda: train.main(["run"]), tmp_path, **fault)
    assert stopped.code == 2, stopped.text
    assert f"error: cannot write {tmp_path}/training/run/" in stopped.text and GO_ON in stopped.text
    again = attempt(lambda: train.main(["run"]), tmp_path)
    assert again.code == 0, again.text
    run, whole = (tmp_path / "training" / name / "adapter" / train.adapter.WEIGHTS for name in ("run", "whole"))
    assert run.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("damage", [b"", b"half of a checkpoint", None], ids=["empty", "half", "earlier layout"])
def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path, monkeypatch, tokenizer, damage):
    monkeypatch.setenv("FLASHTRACE_BUILD_DIR", str(tmp_path))
    config = TrainingConfig("run", **{**FEW, "steps": 1, "warmup": 0})
    train.train(config, tiny(), tokenizer)
    checkpoint = tmp_path / "training" / "run" / "checkpoint.pt"
    if damage is None:
        train.torch.save({"step": 1, "weights": {}}, checkpoint)
    else:
        checkpoint.write_bytes(damage)
    with pytest.raises(ValueError, match=r"checkpoint.pt is damaged, or of an earlier version .*fresh=True, --fresh"):
        train.train(config, tiny(), tokenizer)
    train.train(config, tiny(), tokenizer, fresh=True)


def test_the_heads_of_at2(tmp_path, monkeypatch, tokenizer):
    model = tiny()
    monkeypatch.setattr(at2, "load_model", lambda name, **_: (model, tokenizer))
    monkeypatch.setattr(at2, "STEPS", 2)
    monkeypatch.setenv("FLASHTRACE_BUILD_DIR", str(tmp_path / "build"))
    out = str(tmp_path / "out" / "tiny.json")
    arguments = ["--model", "tiny", "--masks", "3", "--responses", "reference", "--examples", "10", "--out", out]
    stopped = attempt(lambda: at2.main(arguments), tmp_path / "out", refuse=READ_ONLY)  # all measured, none written
    assert stopped.code == 2 and f"cannot write {out}: Read-only file system" in stopped.text, stopped.text
    monkeypatch.setattr(at2, "measured", lambda model, ablated, samples, masks, seed, store: store_only(store))
    again = attempt(lambda: at2.main(arguments), tmp_path)
    assert again.code == 0, again.text
    assert (tmp_path / "out" / "README.md").is_file()


def store_only(store):
    """What the run before has stored, and nothing measured."""
    found = store.records().to_dict("records")
    assert len(found) == 10
    return [{name: list(value) if name in ("masks", "features", "effects") else value for name, value in r.items()}
            for r in found]  # fmt: skip


def test_the_search_for_a_better_flashtrace(tmp_path, monkeypatch, capsys):
    def full(*_):
        Store(tmp_path / "results" / "x").put("a", {"x": 1})

    monkeypatch.setattr(Run, "load_model", lambda run: (None, None))
    monkeypatch.setattr(better_flashtrace, "measured_rate", lambda: 1e9)
    monkeypatch.setattr(better_flashtrace, "measure", full)
    stopped = attempt(lambda: better_flashtrace.main(["--profile", "smoke"]), tmp_path, refuse=FULL)
    assert stopped.code == 2 and "error: cannot write" in stopped.text and GO_ON in stopped.text
    monkeypatch.setattr(better_flashtrace, "measure", lambda *_: cli._assignment("no"))
    assert better_flashtrace.main(["--profile", "smoke"]) == 2 and "error: " in capsys.readouterr().err


def test_a_model_that_is_fetched(tmp_path, monkeypatch):
    file = tiny_gguf.write_gguf(tmp_path / "tiny.gguf", tiny_gguf.tiny_qwen())
    (work := tmp_path / "cache" / "models" / "qwen.download").mkdir(parents=True)
    (work / qwen.FILE).write_bytes(file.read_bytes())
    monkeypatch.setattr(qwen, "SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    monkeypatch.setenv("FLASHTRACE_CACHE", str(tmp_path / "cache"))

    def fetch():
        return command_line.main(["fetch", "qwen"])

    stopped = attempt(fetch, tmp_path, largest=10_000)
    assert stopped.code == 2 and "the converted model cannot be saved in" in stopped.text, stopped.text
    assert "make room for 0.0 GB, then run the same again; what was fetched is kept" in stopped.text
    assert not qwen.is_cached() and (work / qwen.FILE).is_file() and not (work / "converted").exists()
    stopped = attempt(fetch, tmp_path, refuse=READ_ONLY)
    assert stopped.code == 2 and "cannot write" in stopped.text and "FLASHTRACE_CACHE" in stopped.text, stopped.text
    again = attempt(fetch, tmp_path)
    assert again.code == 0 and qwen.is_cached() and not work.exists(), again.text


def test_packages_that_are_converted(tmp_path):
    model = tiny_gguf.tiny_qwen()
    done = attempt(lambda: gguf.save_beside(tmp_path / "x.gguf", model, load_tokenizer()), tmp_path, largest=10_000)
    assert done.code == 1 and "make room for" in done.text and not (tmp_path / "converted").exists()


def test_claims(tmp_path, monkeypatch):
    judged = json.loads((files.root() / "figures" / "claims.json").read_text())
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(tmp_path))
    monkeypatch.setattr("flashtrace_book.claims.judge.profiles_with_tables", lambda: ["laptop"])
    monkeypatch.setattr("flashtrace_book.claims.judge.judge_all", lambda *_: judged)
    stopped = attempt(lambda: cli.main(["claims"]), tmp_path, refuse=READ_ONLY)
    assert stopped.code == 2 and f"error: cannot write {tmp_path}/claims.md: Read-only" in stopped.text, stopped.text
    assert "FLASHTRACE_FIGURES_DIR" in stopped.text and content(tmp_path) == {}


@pytest.mark.parametrize("name", ["RESULTS", "FIGURES", "BUILD"])
def test_a_book_in_a_read_only_checkout_is_refused_before_it_runs(tmp_path, monkeypatch, name):
    for other in ("RESULTS", "FIGURES", "BUILD"):
        monkeypatch.setenv(f"FLASHTRACE_{other}_DIR", str(tmp_path / other.lower()))
    (closed := tmp_path / name.lower()).mkdir()
    monkeypatch.setattr(runner, "_run_all", lambda *_, **__: pytest.fail("it ran"))
    stopped = attempt(lambda: cli.main(["book", "00", "--profile", "smoke"]), closed, refuse=READ_ONLY)
    assert stopped.code == 2 and f"error: cannot write {closed}/" in stopped.text, stopped.text
    assert f"(Read-only file system): make it writable, or let FLASHTRACE_{name}_DIR name another" in stopped.text


def test_what_is_stored_is_read_where_nothing_can_be_written(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path))
    assert attempt(an_evaluation(tmp_path), tmp_path).code == 0
    model = tiny_model()
    run = Run(load_profile("smoke"))
    run.record_model(model, "tiny")
    before = content(tmp_path)

    def work():
        run.record_model(model, "tiny")
        an_evaluation(tmp_path)()

    again = attempt(work, tmp_path, refuse=READ_ONLY)
    assert again.code == 0 and content(tmp_path) == before, again.text


def test_a_folder_that_cannot_be_replaced_stays(tmp_path):
    new, old = tmp_path / "new", tmp_path / "kept" / "old"
    for folder, text in ((new, "b" * 5000), (old, "a")):
        write_text(folder / "x.txt", text)
    stopped = attempt(lambda: runner.promote(new, old), tmp_path / "kept", largest=1000)
    assert stopped.code == 1 and f"{new} cannot be copied to {old} ([Errno 27]" in stopped.text, stopped.text
    assert content(old) == {"x.txt": b"a"} and [path.name for path in old.parent.iterdir()] == ["old"]
    assert attempt(lambda: runner.promote(new, old), tmp_path).code == 0
    assert content(tmp_path) == {"kept/old/x.txt": b"b" * 5000} and files.sha256(old / "x.txt")
