"""The generator's swap as a mask: the swapped context is another valid problem, and its curve is a plain loop's."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from flashtrace_book.experiments import anatomy_tables, swap_mask
from flashtrace_book.experiments.anatomy_curves import curve_sums
from flashtrace_book.figures import anatomy_plots
from flashtrace_book.profiles import load_profile
from flashtrace_lib.store import Store
from flashtrace_lib.tasks import ruler_examples, ruler_swaps
from flashtrace_lib.tasks.responses import FORCED, _sample, true_response
from flashtrace_lib.tasks.swap_effects import swapped_prompts
from tests.oracles.tiny_chat import make_chat_model, make_tokenizer
from tests.tasks.test_counterfactual import solve_vt
from tests.tasks.test_ruler import solve_niah


@pytest.fixture(scope="module")
def chat():
    tokenizer = make_tokenizer()
    return tokenizer, make_chat_model(tokenizer, max_position_embeddings=2048)


def made(tokenizer, cell, haystack="noise"):
    (example,) = ruler_examples(cell, 500, tokenizer, 1, haystack=haystack)
    sample = _sample(tokenizer, example, true_response(example), FORCED, None)
    sample.metadata["task"] = "ruler"
    return example, sample


@pytest.mark.parametrize("cell", ["mq_q2", "h4_c1"])
def test_the_swapped_context_is_a_problem_with_another_answer(chat, cell):
    tokenizer, _ = chat
    example, sample = made(tokenizer, cell)
    replaced, ids = swap_mask.swapped_tokens(tokenizer, sample, example)
    changed = ids != sample.input_ids
    assert changed.any() and not (changed & ~replaced).any()
    first, stop = sample.segments.prompt
    assert not replaced[:first].any() and not replaced[stop:].any()
    text = tokenizer.decode(ids[first:stop])
    if cell == "mq_q2":
        solved = set(solve_niah(text)[1])
        assert len(solved) == 2 and not solved & set(example.answers)
    else:
        asked = example.prompt[example.prompt.index("value ") + 6 :][:5]
        assert solve_vt(text, asked) != set(example.answers)


def test_each_swap_stands_where_its_own_prompt_has_it(chat):
    tokenizer, _ = chat
    example, sample = made(tokenizer, "mq_q4")
    replaced, ids = swap_mask.swapped_tokens(tokenizer, sample, example)
    swaps = ruler_swaps(example, tokenizer, 0, haystack=10**6)
    prompts = [tokenizer(text).input_ids for text in swapped_prompts(tokenizer, sample, example, swaps)]
    same = [prompt for prompt in prompts[1:] if len(prompt) == len(prompts[0])]
    assert 4 <= len(same) < len(swaps)  # all needles; a sentence whose swap is longer stays
    expected = sample.input_ids.tolist()
    for prompt in same:
        for i, (old, new) in enumerate(zip(prompts[0], prompt, strict=True)):
            if new != old:
                expected[i] = new
                assert replaced[i]
    assert ids.tolist() == expected


def test_a_curve_of_swaps_equals_a_plain_loop(chat):
    tokenizer, model = chat
    example, sample = made(tokenizer, "h2_c3")
    replaced, ids = swap_mask.swapped_tokens(tokenizer, sample, example)
    first, start, stop = sample.segments.prompt[0], *sample.response
    order = replaced[slice(*sample.segments.prompt)].nonzero()[:, 0].flip(0)
    found = curve_sums(model, sample, order, ids, 4)["T ∪ O"]
    for k in range(5):
        row = sample.input_ids.clone()
        for i in order[: k * len(order) // 4].tolist():
            row[first + i] = ids[first + i]
        with torch.no_grad():
            log_probs = model(row[None]).logits[0].double().log_softmax(-1)
        total = sum(log_probs[t - 1, sample.input_ids[t]].item() for t in range(start, stop))
        assert found[k] == pytest.approx(total, abs=2e-3)


def test_curves_are_measured_once_and_agree_when_measured_again(chat, tmp_path, monkeypatch):
    tokenizer, model = chat
    example, sample = made(tokenizer, "h2_c3")
    profile = load_profile("smoke")
    monkeypatch.setattr(swap_mask, "_examples", lambda run, samples, tokenizer: {sample.id: example})
    run = SimpleNamespace(profile=profile, store=lambda name: tmp_path / name)
    other = SimpleNamespace(metadata={"task": "gsm8k"})
    frame = swap_mask.measure(run, model, tokenizer, [sample, other])
    assert len(frame) == 2 * 4 and set(frame["mask"]) == {"pad", "swap"} and frame["share"].between(0.3, 1).all()
    monkeypatch.setattr(swap_mask, "curve_sums", None)  # a second measurement would call it
    assert swap_mask.measure(run, model, tokenizer, [sample]).equals(frame)
    monkeypatch.setattr(swap_mask, "curve_sums", curve_sums)
    stored = swap_mask.stored_record(profile, model, Store(tmp_path / "rise_swaps"), sample)
    what, old, new, agrees = swap_mask.compare(profile, model, tokenizer, sample, stored)
    assert agrees and old == pytest.approx(new, abs=0.1) and "under swaps" in what
    damaged = {**stored, "log_probs": [[2 * x for x in row] for row in stored["log_probs"]]}
    assert not swap_mask.compare(profile, model, tokenizer, sample, damaged)[3]


def test_rankings_are_held_against_random_tokens_under_the_same_mask():
    rng, rows = np.random.default_rng(0), []
    for i in range(8):
        for name, base in {"flashtrace": 0.3, "random 0": 0.6, "random 1": 0.5}.items():
            for mask, shift in {"pad": 0.0, "swap": -0.2}.items():
                rows.append({"sample": f"s{i}", "cell": "c", "group": "RULER", "share": 1.0, "ranking": name,
                             "mask": mask, "rise": base + shift + 0.01 * rng.normal(), "fall": 9.0})  # fmt: skip
    table = anatomy_tables.swap_table(pd.DataFrame(rows))
    by = table.set_index(["mask", "ranking"])
    assert by.loc[("swap", "flashtrace"), "mean"] == pytest.approx(0.1, abs=0.02)
    assert by.loc[("pad", "flashtrace"), "behind"] == pytest.approx(0.25, abs=0.02)
    assert by.loc[("pad", "flashtrace"), "behind_low"] > 0.2 and by["n"].eq(8).all()
    assert anatomy_plots.rise_by(table, "mask", swap_mask.MASKS, title="Swaps").axes
