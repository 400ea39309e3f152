"""Train the adapter `notation`, which reasons about facts: ``python -m scripts.train_notation OUT --seconds 4000``.

The trainer of the first adapter takes prompts one at a time; here several questions about one text share its keys and
values, so that a prompt of 1,024 tokens is read once for six answers. A run that is killed goes on from its last
checkpoint. ``--accuracy N`` measures an adapter instead, on N development problems a cell.
"""

from __future__ import annotations

import argparse
import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import AttentionInterface

from flashtrace_book.experiments import facts
from flashtrace_lib.load import load_model
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.responses import respond
from flashtrace_lib.tasks.scoring import is_correct
from scripts.train_adapter import Draw, Settings, tokenised, train

DEVELOPMENT, TEST = 1000, 2000  # seeds: what was looked at while training, and what results are from


@dataclass(frozen=True)
class Notation(Settings):
    """As `Settings`; a step reads ``batch`` texts and answers ``questions`` questions about each.

    Texts have 250 to 500 tokens until the share ``short`` of the run, 500 to 900 until ``long``, and then 900 to 1,100.
    """

    steps: int = 10_000
    seconds: float = 4200.0
    batch: int = 2
    checkpoint_every: int = 10
    bfloat16: bool = True
    questions: int = 9
    short: float = 0.45
    long: float = 0.55


def draw(rng: random.Random, tokenizer: Any, settings: Notation, done: float) -> list[Example]:
    """Questions about one text, of names that evaluation never shows; ``done`` is the share of the run that is over."""
    short, middle, long = (250, 500), (500, 900), (900, 1100)
    length = rng.randint(*(short if done < settings.short else middle if done < settings.long else long))
    others = rng.randint(4, min(12, (length - 100) // 20)) if length < 900 else rng.randint(8, 12)
    text, _ = facts.fact_text(
        tokenizer, length, f"train|{rng.random()}", family=rng.choice(list(facts.FAMILIES)),
        haystack=rng.choice(facts.HAYSTACKS), chains=[3, *facts.other_chains(others, rng)], split="train",
    )  # fmt: skip
    by_chain = {n: [f.name for f in text.facts if len(text.path(f.name)) == n] for n in facts.CHAINS}
    examples = []
    for i in range(settings.questions):
        chain = facts.CHAINS[i % 3]
        off_path = rng.choice([k for k in facts.OFF_PATH if k + chain <= len(text.facts)])
        mode = rng.choice(("quote", "notation", "notation"))  # notation is learned more slowly
        examples.append(text.ask(rng.choice(by_chain[chain]), mode, off_path))
    return examples


def lean(model: torch.nn.Module, bfloat16: bool) -> torch.nn.Module:
    """Give peft's layers a forward of three products without a copy between them, and frozen weights in bfloat16."""
    AttentionInterface.register("branched", branched)
    model.config._attn_implementation = "branched"

    def forward(layer: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.linear(x, layer.base_layer.weight)
        down = torch.nn.functional.linear(x, layer.lora_A["default"].weight)
        up = layer.lora_B["default"].weight
        return torch.addmm(y[0], down[0], up.T, alpha=layer.scaling["default"])[None]  # one context at a time

    for layer in model.modules():
        if hasattr(layer, "lora_A"):
            layer.forward = partial(forward, layer)
            if bfloat16:
                layer.base_layer.weight.data = layer.base_layer.weight.data.bfloat16()
    return model


def branched(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, _: None, **kwargs: Any) -> Any:
    """Attention of branches that see what all share, and themselves: a third of the work of a mask over everything."""
    attend, (shared, *ends) = torch.nn.functional.scaled_dot_product_attention, kwargs["branches"]
    key, value = (x.repeat_interleave(module.num_key_value_groups, 1) for x in (key, value))  # [1, H, N, D]
    found = [attend(*(x[:, :, :shared] for x in (query, key, value)), is_causal=True)]
    for start, stop in pairwise([shared, *ends]):
        seen = torch.ones(stop - start, shared + stop - start, dtype=torch.bool).tril(shared)
        keys, values = (torch.cat([x[:, :, :shared], x[:, :, start:stop]], 2) for x in (key, value))
        found.append(attend(query[:, :, start:stop], keys, values, attn_mask=seen))
    return torch.cat(found, 2).transpose(1, 2), None  # [1, N, H, D]


def packed_loss(model: torch.nn.Module, rows: list[tuple[list[int], int]], bfloat16: bool) -> torch.Tensor:
    """Mean negative log-likelihood of the responses' tokens; what all rows begin with is read once."""
    shared = len(os.path.commonprefix([ids[:start] for ids, start in rows]))
    tokens, positions, ends, targets, kept = rows[0][0][:shared], list(range(shared)), [shared], [], []
    for ids, start in rows:
        kept += range(len(tokens) + start - 1 - shared, len(tokens) + len(ids) - 1 - shared)  # predict the response
        targets += ids[start:]
        tokens, positions = tokens + ids[shared:-1], positions + list(range(shared, len(ids) - 1))
        ends.append(len(tokens))
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16, cache_enabled=False):
        logits = model(
            torch.tensor([tokens]), position_ids=torch.tensor([positions]), use_cache=False, branches=ends,
            logits_to_keep=torch.tensor(kept),
        ).logits[0]  # fmt: skip
    return torch.nn.functional.cross_entropy(logits.float(), torch.tensor(targets))


def side_by_side(
    model: torch.nn.Module, tokenizer: Any, settings: Notation, draw: Draw, step: int, done: float
) -> tuple[float, int]:
    """Add a step's gradient to the weights', a thread a text: on shared cores none waits for the other."""
    if model.config._attn_implementation != "branched":
        lean(model, settings.bfloat16)
    weights = [p for p in model.parameters() if p.requires_grad]

    def one(i: int) -> tuple[float, int, tuple[torch.Tensor, ...]]:
        rng = random.Random(f"{settings.seed}|{step}|{i}")  # problems depend on seed, step, and the share that is over
        rows = [tokenised(tokenizer, example) for example in draw(rng, tokenizer, settings, done)]
        loss = packed_loss(model, rows, settings.bfloat16)
        return float(loss.detach()), sum(len(ids) for ids, _ in rows), torch.autograd.grad(loss, weights)

    with ThreadPoolExecutor(settings.batch) as pool:
        losses, tokens, gradients = zip(*pool.map(one, range(settings.batch)), strict=True)
    for weight, *found in zip(weights, *gradients, strict=True):
        weight.grad = sum(found) / settings.batch
    return sum(losses) / settings.batch, sum(tokens)


def accuracy(adapter: Path, n: int, seed: int, length: int = 1024) -> list[dict[str, Any]]:
    """Own answers to ``n`` held-out problems of every mode, number of facts off the path, and chain."""
    model, tokenizer = load_model(adapter)
    rows = []
    for mode, off_path, chain in product(facts.MODES, facts.OFF_PATH, facts.CHAINS):
        examples = facts.fact_examples(tokenizer, n, mode, off_path, chain=chain, length=length, seed=seed)
        for example, ids in zip(examples, respond(model, tokenizer, examples, 400), strict=True):
            text = tokenizer.decode(ids, skip_special_tokens=True)
            thought, _, answer = text.removeprefix("<think>").partition("</think>")
            right = is_correct(example, answer)
            asked, exact = facts.as_asked(example, thought), thought.strip() == example.reasoning
            rows.append({"mode": mode, "off_path": off_path, "chain": chain, "family": example.metadata["family"],
                         "haystack": example.metadata["haystack"], "right": int(right), "as_asked": int(asked),
                         "kept": int(right and asked), "exact": int(exact), "text": text})  # fmt: skip
        last = rows[-n:]
        print(mode, off_path, chain, *(f"{k} {sum(r[k] for r in last)}/{n}" for k in ("right", "as_asked", "kept")),
              flush=True)  # fmt: skip
    return rows


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m scripts.train_notation", description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder of the adapter")
    parser.add_argument("--seconds", type=float, default=Notation.seconds)
    parser.add_argument("--start", default="", help="folder of an adapter to go on from")
    parser.add_argument("--accuracy", type=int, metavar="N", help="measure the adapter on N problems a cell and chain")
    parser.add_argument("--seed", type=int, default=DEVELOPMENT, help="of training, or of the problems measured")
    given = parser.parse_args(argv)
    if given.accuracy is None:
        train(given.out, Notation(seconds=given.seconds, seed=given.seed, start=given.start), draw, side_by_side)
    else:
        pd.DataFrame(accuracy(given.out, given.accuracy, given.seed)).to_csv(given.out / "answers.csv", index=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
