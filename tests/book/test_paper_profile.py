"""The paper's profile, dry: its notebooks take its parameters, and run on a tiny Qwen3 with a thinking switch."""

import pandas as pd
import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, Qwen3Config

from flashtrace_book.notebooks import find_notebooks, notebook_dir
from flashtrace_book.profiles import load_profile, profile_names
from flashtrace_book.runner import check_parameters, run_book
from flashtrace_lib.model.embedded import use_reasoner_template
from flashtrace_lib.tasks.responses import can_think
from tests.oracles.tiny_reasoner import load_tokenizer
from tests.support.record_folders import write_records

# Those whose records depend on the profile.
DRY = ["05_ruler", "06_math", "07_morehopqa", "08_aider", "10_hops", "10b_longer_contexts"]


@pytest.mark.parametrize("name", profile_names())
def test_every_notebook_of_a_profile_takes_its_parameters(name):
    found = find_notebooks(notebook_dir(), list(load_profile(name).notebooks or ()))
    assert found
    for path in found:
        check_parameters(path, {"profile": name})


def test_the_papers_profile_is_the_papers():
    paper = load_profile("paper")
    assert paper.model == paper.pilot.model == "Qwen/Qwen3-8B" and paper.hops == 1 and paper.steps == 20
    assert paper.ruler.length == paper.hotpotqa.length == 1024 and len(paper.ruler.cells) == 10
    assert paper.ruler.samples == paper.reasoning.samples == 100 and paper.hotpotqa.samples == 66
    assert paper.hotpotqa.long_lengths == (2048, 4096) and paper.reasoning.source == "hub"


@pytest.fixture
def tiny_qwen(tmp_path):
    """Folder of a tiny random Qwen3 whose tokenizer has Qwen3's interface."""
    folder, tokenizer = tmp_path / "model", load_tokenizer()
    use_reasoner_template(tokenizer)
    assert can_think(tokenizer)
    torch.manual_seed(0)
    config = Qwen3Config(vocab_size=49152, hidden_size=32, intermediate_size=48, num_hidden_layers=2, head_dim=8,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048)  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    model.generation_config.eos_token_id = list(range(0, 49152, 2))  # it knows no end: every second token is one
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_the_papers_profile_runs_on_a_tiny_model_and_a_folder_of_records(tiny_qwen, tmp_path, monkeypatch):
    for name in ("RESULTS", "FIGURES", "BUILD"):
        monkeypatch.setenv(f"FLASHTRACE_{name}_DIR", str(tmp_path / name.lower()))
    write_records(tmp_path / "records", 6)
    monkeypatch.setenv("FLASHTRACE_DATA_DIR", str(tmp_path / "records"))
    paper = load_profile("paper").to_dict()
    few = {"samples": 1, "max_tries": 1, "max_new_tokens": 8}
    dry = paper | {"name": "dry", "model": str(tiny_qwen), "dtype": "float32", "device_map": None, "steps": 4}
    dry |= {"method_options": {"reagent": {"runs": 1, "max_steps": 2}}}
    dry["ruler"] |= few | {"length": 400, "cells": ["mq_q2", "h4_c1"]}
    dry["reasoning"] |= few | {"source": "folder", "fallback": "teacher-forced", "rollout_samples": 1}
    dry["hotpotqa"] |= few | {"length": 400, "long_lengths": [400, 500], "long_samples": 1, "max_new_tokens": 8}
    dry["pilot"]["model"] = str(tiny_qwen)
    (tmp_path / "dry.yaml").write_text(yaml.safe_dump(_plain(dry)))
    result = run_book(tmp_path / "dry.yaml", DRY)
    assert [(outcome.name, outcome.error) for outcome in result.outcomes] == [(name, None) for name in DRY]
    table = pd.read_csv(tmp_path / "figures" / "dry" / "table1_ruler.csv")
    assert {*paper["methods"], "random_sentences"} == set(table["method"]) and "hotpotqa" in set(table["cell"])
    assert not list((tmp_path / "figures" / "dry").glob("*heatmap*")), "text of records is not for committing"


def _plain(value):
    """Tuples as lists, which YAML has."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
