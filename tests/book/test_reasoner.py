"""Problems and modes that the embedded model is trained and tested on, and its held-out accuracy."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from flashtrace_book.figures import training_plots
from flashtrace_book.reasoner import accuracy, answers
from flashtrace_book.reasoner.accuracy import COLUMNS, accuracy_table, audit_answers, evaluate_reasoner, stored_answers
from flashtrace_book.reasoner.batches import training_example
from flashtrace_book.reasoner.curriculum import EVAL_LENGTHS, TASKS, Curriculum, problems
from flashtrace_book.reasoner.modes import final_answer, prompt_text, true_response
from flashtrace_lib.model.embedded import use_reasoner_template
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import MODES
from flashtrace_lib.tasks.synthetic.splits import in_split
from flashtrace_lib.text import build_sample
from tests.oracles.tiny_reasoner import load_tokenizer, tiny


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = load_tokenizer()
    use_reasoner_template(tokenizer)
    return tokenizer


# --- modes and template ---------------------------------------------------------------------------------------


def test_template_is_the_models_own_but_for_the_switch(tokenizer):
    own = load_tokenizer()
    for turns in (
        [{"role": "user", "content": "Hello "}],
        [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
         {"role": "user", "content": "c"}],
    ):  # fmt: skip
        rendered = own.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        assert tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True) == rendered
        direct = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, enable_thinking=False)
        last = turns[-1]["content"]
        assert direct.count("/no_think") == 1 and direct.replace("\n/no_think", "") == rendered
        assert f"{last}\n/no_think<|im_end|>" in direct


@pytest.mark.parametrize("mode", MODES)
def test_what_is_taught_makes_a_sample(tokenizer, mode):
    example = problems("h2_c3", 1, tokenizer=tokenizer, split="eval", length=256)[0]
    prompt = prompt_text(tokenizer, example, mode)
    assert prompt.text[slice(*prompt.span)] == example.prompt  # the switch is no input
    sample = build_sample(tokenizer, example.prompt, true_response(example, mode), evidence=example.evidence,
                          template_kwargs={"enable_thinking": mode == "thinking"})  # fmt: skip
    assert sample.segments.has_reasoning == (mode == "thinking")
    taught = training_example(tokenizer, example, mode)
    assert taught.ids == sample.input_ids.tolist() and taught.n_prompt == sample.response[0]


def test_bad_modes_and_examples_are_refused(tokenizer):
    example = problems("gsm8k", 1)[0]
    with pytest.raises(ValueError, match="mode must be one of thinking, direct"):
        prompt_text(tokenizer, example, "loud")
    with pytest.raises(ValueError, match="no true reasoning"):
        true_response(replace(example, reasoning=""), "thinking")
    assert true_response(replace(example, reasoning=""), "direct") == example.output
    plain = load_tokenizer()
    plain.chat_template = None
    with pytest.raises(ValueError, match="ChatML"):
        use_reasoner_template(plain)


def test_final_answer():
    assert final_answer("<think>\na\n</think>\n\nb ") == "b" == final_answer("b")
    assert final_answer("<think>\nb") == ""


# --- curriculum -----------------------------------------------------------------------------------------------


def test_ruler_splits_share_no_name_key_or_number(tokenizer):
    seen = {"train": set(), "eval": set()}
    for split, length in (("train", 400), ("eval", 512)):
        for task in ("h2_c3", "mq_q4", "mv_v4"):
            for example in problems(task, 4, tokenizer=tokenizer, split=split, length=length):
                words = (
                    example.reasoning.replace("-", "_").replace(".", " ").replace(",", " ").replace(":", " ").split()
                )
                marks = {w for w in words if w.isdigit() or "_" in w or (w.isupper() and len(w) == 5)}
                assert len(marks) >= 5 and all(in_split(w.replace("_", "-"), split) for w in marks)
                seen[split] |= marks
    assert seen["train"].isdisjoint(seen["eval"])


def test_lengths_are_held_out(tokenizer):
    for length in (*EVAL_LENGTHS, EVAL_LENGTHS[0] + 5):
        with pytest.raises(ValueError, match="not one of split 'train'"):
            problems("mq_q2", 1, tokenizer=tokenizer, length=length)
    with pytest.raises(ValueError, match="not one of split 'eval'"):
        problems("mq_q2", 1, tokenizer=tokenizer, length=400, split="eval")
    with pytest.raises(ValueError, match="unknown task"):
        problems("h3", 1)
    with pytest.raises(ValueError, match="give the model's"):
        problems("mq_q2", 1, length=400)


@pytest.mark.parametrize("progress", (0.0, 0.25, 1.0))
def test_every_draw_makes_a_training_example(tokenizer, progress):
    curriculum = Curriculum()
    drawn = [curriculum.draw(tokenizer, f"k{i}", progress) for i in range(60)]
    examples = [training_example(tokenizer, *pair) for pair in drawn]
    ruler = [e.metadata for e, _ in drawn if e.task == "ruler"]
    lengths = [m["length"] for m in ruler]
    assert all(min(abs(n - held) for held in EVAL_LENGTHS) > 8 for n in lengths)
    assert all(m["tokens"] <= m["length"] for m in ruler)
    assert 0 < sum(mode == "direct" for _, mode in drawn) < 30
    if progress == 1.0:
        assert max(lengths) > 800 and max(len(item.ids) for item in examples) < 1500
        assert {m["chains"] for m in ruler} == {1, 2, 3} and max(m["hops"] for m in ruler) > 5
    if progress == 0.0:
        assert max(lengths) < 400 and max(m["hops"] for m in ruler) == 1
    assert curriculum.draw(tokenizer, "k7", progress) == drawn[7]


# --- accuracy -------------------------------------------------------------------------------------------------


def answer_truly(monkeypatch, tasks, n, mode, spoil=""):
    """Let the model give the true responses, as ids that end."""
    truth, calls = {}, []

    def generate_truth(model, tokenizer, texts, max_new_tokens):
        for task in tasks:
            for example in problems(task, n, 0, "eval", tokenizer, 256):
                truth[prompt_text(tokenizer, example, mode).text] = true_response(example, mode)
        calls.append(len(texts))
        responses = [tokenizer(truth[text] + spoil, add_special_tokens=False).input_ids for text in texts]
        return [ids + [tokenizer.eos_token_id] for ids in responses]

    monkeypatch.setattr(answers, "generate", generate_truth)
    return calls


@pytest.mark.parametrize("mode", MODES)
def test_the_true_responses_are_all_right(monkeypatch, tokenizer, mode):
    answer_truly(monkeypatch, TASKS, 2, mode)
    frame = evaluate_reasoner(tiny(), tokenizer, TASKS, 2, mode=mode, length=256, batch_size=2)
    assert tuple(frame.columns) == COLUMNS and len(frame) == 2 * len(TASKS)
    assert frame["correct"].all() and frame["finished"].all()
    table = accuracy_table(frame)
    assert list(table["task"]) == list(TASKS) and (table["correct"] == 1).all() and (table["n"] == 2).all()


def test_tracking_is_scored_strictly_and_unfinished_is_wrong(monkeypatch, tokenizer):
    answer_truly(monkeypatch, ["h4_c1"], 2, "thinking", spoil=" XXXXX")
    frame = evaluate_reasoner(tiny(), tokenizer, ["h4_c1"], 2, length=256)
    assert not frame["correct"].any()  # a variable too many
    cut = [tokenizer("<think>\nVAR", add_special_tokens=False).input_ids] * 2
    monkeypatch.setattr(answers, "generate", lambda *_: cut)
    frame = evaluate_reasoner(tiny(), tokenizer, ["h4_c1"], 2, length=256, max_new_tokens=len(cut[0]))
    assert not frame["finished"].any() and not frame["correct"].any()


def test_an_interrupted_evaluation_goes_on(monkeypatch, tokenizer, tmp_path):
    store, model = Store(tmp_path / "answers"), tiny()
    calls = answer_truly(monkeypatch, ["gsm8k"], 5, "thinking")
    first = evaluate_reasoner(model, tokenizer, ["gsm8k"], 4, length=256, batch_size=2, store=store)
    assert calls == [2, 2]
    again = evaluate_reasoner(model, tokenizer, ["gsm8k"], 5, length=256, batch_size=2, store=store)
    assert calls == [2, 2, 1]
    pd.testing.assert_frame_equal(first, again[:4])


def test_the_table_of_all_stored_answers(monkeypatch, tokenizer, tmp_path):
    store, model = Store(tmp_path / "answers"), tiny()
    frames = []
    for mode, tasks, n in (("thinking", ["morehopqa", "h4_c1"], 4), ("direct", ["gsm8k"], 3)):
        answer_truly(monkeypatch, tasks, n, mode)
        frames.append(evaluate_reasoner(model, tokenizer, tasks, n, mode=mode, length=256, batch_size=3, store=store))
    stored = stored_answers(model, tokenizer, store)
    assert list(dict.fromkeys(stored["task"])) == ["gsm8k", "h4_c1", "morehopqa"] and len(stored) == 11
    alike = [f.astype({"length": float}).set_index(["task", "mode", "id"]).sort_index() for f in (stored, *frames)]
    pd.testing.assert_frame_equal(alike[0], pd.concat(alike[1:]).sort_index())


def test_the_audit_asks_again_and_sees_an_answer_that_changed(monkeypatch, tokenizer, tmp_path):
    store, model = Store(tmp_path / "answers"), tiny()
    answer_truly(monkeypatch, ["gsm8k", "h4_c1"], 5, "thinking")
    evaluate_reasoner(model, tokenizer, ["gsm8k", "h4_c1"], 5, length=256, batch_size=2, store=store)
    checked = audit_answers(model, tokenizer, store, k=20)
    assert len(checked) == 10 and checked["agrees"].all() and (checked["again"] == 1).all()
    assert set(checked["task"]) == {"gsm8k", "h4_c1"} and checked["id"].is_unique
    answer_truly(monkeypatch, ["gsm8k", "h4_c1"], 5, "thinking", spoil=" XXXXX")
    checked = audit_answers(model, tokenizer, store, k=20)
    assert checked.set_index("task")["agrees"].to_dict() == {"gsm8k": True, "h4_c1": False}
    other = tiny()
    with torch.no_grad():
        other.lm_head.weight.add_(1)
    with pytest.raises(ValueError, match="no answers of this model: run python -m flashtrace_book.reasoner.accuracy"):
        audit_answers(other, tokenizer, store)
    with pytest.raises(ValueError, match="holds no answers"):
        audit_answers(model, tokenizer, Store(tmp_path / "empty"))


def test_answers_to_problems_that_are_no_longer_drawn_are_left_out(monkeypatch, tokenizer, tmp_path):
    store, model = Store(tmp_path / "answers"), tiny()
    answer_truly(monkeypatch, ["gsm8k", "morehopqa"], 4, "thinking")
    evaluate_reasoner(model, tokenizer, ["gsm8k", "morehopqa"], 4, length=256, batch_size=2, store=store)
    draw = answers.problems

    def changed(task, n, *rest):
        """As if the wording of the third word problem had been changed since."""
        drawn = draw(task, n, *rest)
        return [
            replace(problem, prompt=problem.prompt + " ") if (task, i) == ("gsm8k", 2) else problem
            for i, problem in enumerate(drawn)
        ]

    monkeypatch.setattr(answers, "problems", changed)
    assert stored_answers(model, tokenizer, store)["task"].value_counts().to_dict() == {"morehopqa": 4, "gsm8k": 2}
    assert len(audit_answers(model, tokenizer, store, k=20)) == 6


def test_figures_of_the_reasoner(tmp_path):
    log = pd.DataFrame(
        [{"step": s, "split": "train", "task": t, "n": 2, "loss": 1 / s, "exact": 0.5, "tokens": 10}
         for s in (1, 2, 3) for t in ("a", "b")]
        + [{"step": 3, "split": "eval", "task": t, "n": 4, "loss": 1.0, "exact": e, "tokens": 10}
           for t, e in (("a", 0.25), ("b", 1.0))]
    )  # fmt: skip
    left, right = training_plots.learning_curves(log).axes
    assert left.lines[0].get_ydata().tolist() == pytest.approx([1, 1 / 2, 1 / 3])
    assert [line.get_ydata().tolist() for line in right.lines] == [[0.25], [1.0]]
    assert "12 problems" in left.texts[0].get_text() and "n = 4" in right.texts[0].get_text()
    table = pd.DataFrame(
        {"task": ["h4_c1", "gsm8k"] * 2, "mode": ["thinking"] * 2 + ["direct"] * 2, "n": 50,
         "score": [0.9, 0.8, 0.5, 0.1], "score_low": 0.05, "score_high": 1.0}
    )  # fmt: skip
    axes = training_plots.accuracy_bars(table).axes[0]
    assert [bar.get_height() for bar in axes.patches] == [0.9, 0.8, 0.5, 0.1]
    assert set(training_plots.TARGETS["task"]) <= set(TASKS)
    with pytest.raises(ValueError, match="lacks the columns"):
        training_plots.accuracy_bars(table[["task"]])


def test_a_real_generation_is_scored(tokenizer):
    frame = evaluate_reasoner(tiny(), tokenizer, ["gsm8k"], 2, mode="direct", max_new_tokens=3, batch_size=2)
    assert list(frame["tokens"]) == [3, 3] and not frame["correct"].any()  # a random model
    with pytest.raises(ValueError, match="n must be a whole number"):
        evaluate_reasoner(tiny(), tokenizer, ["gsm8k"], 0)
    with pytest.raises(ValueError, match="mode must be one of"):
        evaluate_reasoner(tiny(), tokenizer, ["gsm8k"], 1, mode="x")


def test_accuracy_command_refuses_a_folder_without_adapter(monkeypatch, tmp_path, capsys, tokenizer):
    monkeypatch.setattr(accuracy, "load_model", lambda *_, **__: (tiny(), tokenizer))
    assert accuracy.main([str(tmp_path)]) == 2
    assert "no adapter in" in capsys.readouterr().err
