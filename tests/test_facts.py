"""Problems that copying cannot solve: their invariants, and the trainer of the model that solves them."""

import re

import pytest
import torch
from peft import LoraConfig, get_peft_model

from flashtrace_book.experiments import facts
from flashtrace_lib.load import load_model
from scripts import train_notation as trainer

NUMBER = {word: i for i, word in enumerate(facts.WORDS)}
FORMS = {"as many": 0, "together": 0, "one": 1, "two": 2}


def solved(sentences):
    """The last value of a path of sentences, read from their words alone."""
    value = None
    for words in (re.findall(r"\w+", sentence) for sentence in sentences):
        if value is None:
            value = next(NUMBER[word] for word in words if word in NUMBER)
        elif "twice" in words:
            value *= 2
        else:
            by = next((FORMS[word] for word in words if word in FORMS), 0)
            value += -by if {"fewer", "before"} & set(words) else by
    return str(value)


@pytest.mark.parametrize("chain", facts.CHAINS)
@pytest.mark.parametrize(("mode", "off_path"), [("notation", 0), ("notation", 8), ("quote", 1), ("quote", 4)])
def test_a_problem_says_what_its_answer_needs(embedded_tokenizer, mode, off_path, chain):
    def ids(text):
        return embedded_tokenizer(text, add_special_tokens=False)["input_ids"]

    for length, seed in ((400, 0), (1024, 1)):
        how = {"chain": chain, "length": length, "seed": seed}
        for example in facts.fact_examples(embedded_tokenizer, 12, mode, off_path, **how):
            meta, (answer,), prompt = example.metadata, example.answers, example.prompt
            gold, others = ([prompt[a:b] for a, b in spans] for spans in (example.evidence, meta["distracting"]))
            assert length - 40 < len(ids(prompt)) <= length and not re.search(r"\d", prompt + example.request)
            assert len(gold) == chain and len(others) >= 10 and solved(gold) == answer == example.output
            names = {name for s in gold + others for name in re.findall(r"[A-Z]\w+", s)} - {"The"}
            assert len({name[0] for name in names}) == len(names) == chain + len(others)
            assert all(s.endswith(".") and s.count(".") == 1 for s in gold + others)
            twin, (start, stop) = meta["twin"], example.evidence[0]
            assert prompt[:start] == twin["prompt"][:start] and twin["prompt"].endswith(prompt[stop:])
            changed = twin["prompt"][start : len(twin["prompt"]) - len(prompt[stop:])]
            assert [solved([changed, *gold[1:]])] == twin["answers"] != [answer]
            lines = example.reasoning.split("\n")
            assert lines == meta["down"] + meta["notes"][:off_path] + meta["up"]
            assert facts.as_asked(example, example.reasoning) and (meta["down"] + meta["up"])[-1].endswith(answer)
            assert not facts.as_asked(example, "\n".join([*lines, lines[0]]))
            if mode == "quote":
                quoted = [line.split(":")[0] + "." for line in lines[: off_path + chain]]
                assert quoted == gold[::-1] + others[:off_path]
            else:
                written = set(ids(example.reasoning)) | set(ids(f"{answer}"))
                assert all(written.isdisjoint(ids(before + s)) for s in gold for before in ("", " "))
                assert not set(re.findall(r"\w+", example.reasoning)) & set(re.findall(r"\w+", " ".join(gold)))


def test_names_of_training_and_evaluation_are_apart_and_cells_share_their_texts(embedded_tokenizer):
    a, b = (
        facts.fact_examples(embedded_tokenizer, 4, *cell, chain=2, length=400)
        for cell in (("quote", 0), ("notation", 8))
    )
    assert [x.prompt for x in a] == [x.prompt for x in b] and {x.metadata["family"] for x in a} == set(facts.FAMILIES)
    drawn = trainer.draw(trainer.random.Random(0), embedded_tokenizer, trainer.Notation(), 0.0)
    names = [{name for name in facts.NAMES if name in " ".join(x.prompt for x in xs)} for xs in (a, drawn)]
    assert names[0] and names[1] and names[0].isdisjoint(names[1])


def test_questions_packed_behind_one_text_have_the_loss_and_the_gradient_of_each_alone():
    small = trainer.Notation(questions=3, batch=1, short=1.0, bfloat16=False)
    model, tokenizer = load_model("embedded-shallow")
    model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=False))
    weights = [p for p in model.parameters() if p.requires_grad]
    problems = trainer.draw(trainer.random.Random("0|5|0"), tokenizer, small, 0.0)
    rows = [trainer.tokenised(tokenizer, problem) for problem in problems]
    scores = [(model(torch.tensor([ids])).logits[0].log_softmax(-1), ids, start) for ids, start in rows]
    alone = torch.cat([-s[range(start - 1, len(ids) - 1), ids[start:]] for s, ids, start in scores]).mean()
    expected = torch.autograd.grad(alone, weights)
    loss, tokens = trainer.side_by_side(model, tokenizer, small, trainer.draw, 5, 0.0)
    assert loss == pytest.approx(float(alone.detach()), rel=1e-5) and tokens == sum(len(ids) for ids, _ in rows)
    torch.testing.assert_close([p.grad for p in weights], list(expected), rtol=1e-3, atol=1e-6)
