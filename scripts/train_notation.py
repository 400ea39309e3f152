"""Train the adapter `notation`, which reasons about facts: ``python -m scripts.train_notation OUT --seconds 4000``.

The trainer of the first adapter takes prompts one at a time; here several questions about one text share its keys and
values, so that a prompt of 1,024 tokens is read once for six answers. A run that is killed goes on from its last
checkpoint. ``--accuracy N`` measures an adapter instead, on N development problems a cell.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import torch
from transformers import AttentionInterface

from flashtrace_book.experiments import facts
from flashtrace_lib.files import atomic_path
from flashtrace_lib.load import load_model
from flashtrace_lib.model.embedded import use_reasoner_template
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.responses import prompt_settings, respond, true_response
from flashtrace_lib.tasks.scoring import is_correct
from flashtrace_lib.text.chat_template import render_prompt
from flashtrace_lib.text.offsets import tokenise
from scripts.train_adapter import PROJECTIONS, write_card

DEVELOPMENT, TEST = 1000, 2000  # seeds: what was looked at while training, and what results are from


@dataclass(frozen=True)
class Settings:
    """How the adapter is trained: at most ``steps`` steps and ``seconds`` seconds, whichever ends first.

    A step reads ``texts`` texts and answers ``questions`` questions about each. Texts have 180 to 350 tokens until the
    share ``short`` of the run, 350 to 900 until ``long``, and 900 to 1,100 to the end.
    """

    model: str = "embedded-base"
    steps: int = 10_000
    seconds: float = 4200.0
    texts: int = 2
    questions: int = 8
    short: float = 0.4
    long: float = 0.5
    rank: int = 16
    seed: int = 0
    checkpoint_every: int = 10
    learning_rate: float = 1e-3
    bfloat16: bool = True


def draw(rng: random.Random, tokenizer: Any, settings: Settings, done: float) -> list[Example]:
    """Questions about one text, of names that evaluation never shows; ``done`` is the share of the run that is over."""
    short, middle, long = (180, 350), (350, 900), (900, 1100)
    length = rng.randint(*(short if done < settings.short else middle if done < settings.long else long))
    others = rng.randint(2, min(13, (length - 60) // 30)) if length < 900 else rng.randint(9, 13)
    chains = [3, *facts.other_chains(others, rng)]
    text, _ = facts.fact_text(
        tokenizer, length, f"train|{rng.random()}", family=rng.choice(list(facts.FAMILIES)),
        haystack=rng.choice(facts.HAYSTACKS), chains=chains, split="train",
    )  # fmt: skip
    by_chain = {n: [f.name for f in text.facts if len(text.path(f.name)) == n] for n in facts.CHAINS}
    examples = []
    for i in range(settings.questions):
        chain = facts.CHAINS[i % 3]
        off_path = rng.choice([k for k in facts.OFF_PATH if k + chain <= len(text.facts)])
        mode = rng.choice(("quote", "notation", "notation"))  # notation is learned more slowly
        examples.append(text.ask(rng.choice(by_chain[chain]), mode, off_path))
    return examples


def rows_of(tokenizer: Any, examples: list[Example]) -> list[tuple[list[int], int]]:
    """Ids of prompt and response, and the length of the prompt."""
    rows = []
    for example in examples:
        text = render_prompt(tokenizer, example.prompt, **prompt_settings(tokenizer, example)).text
        prompt, response = (tokenise(tokenizer, part)[0] for part in (text, true_response(example)))
        rows.append(([*prompt, *response, tokenizer.eos_token_id], len(prompt)))
    return rows


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


def train(out: Path, settings: Settings) -> Path:
    """Train the adapter and write it with its card into ``out``; a checkpoint there is gone on from.

    Raises
    ------
    ValueError
        If the checkpoint belongs to other settings, or the loss is no longer finite.
    """
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict

    base, tokenizer = load_model(settings.model)
    use_reasoner_template(tokenizer)
    torch.manual_seed(settings.seed)
    lora = LoraConfig(
        r=settings.rank, lora_alpha=2 * settings.rank, target_modules=list(PROJECTIONS), task_type="CAUSAL_LM"
    )
    model = lean(get_peft_model(base, lora), settings.bfloat16).train()
    weights = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(weights, lr=settings.learning_rate, weight_decay=0.0)
    checkpoint, step, log, gone = out / "checkpoint.pt", 0, [], 0.0
    if checkpoint.is_file():
        state = torch.load(checkpoint, weights_only=True)
        if state["settings"] != json.dumps(asdict(settings)):
            raise ValueError(f"{checkpoint} belongs to other settings: give another folder, or remove it")
        set_peft_model_state_dict(model, state["adapter"])
        optimiser.load_state_dict(state["optimiser"])
        step, log, gone = state["step"], state["log"], state["seconds"]
    pool = ThreadPoolExecutor(settings.texts)  # a text, a thread: on shared cores none waits for the other
    while (done := max(step / settings.steps, gone / settings.seconds)) < 1:
        clock, losses, n = time.perf_counter(), [], 0
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * min(1, (step + 1) / 10) * 0.5 * (1 + math.cos(math.pi * done))

        def one(i: int, step: int = step, done: float = done) -> tuple[float, int, tuple[torch.Tensor, ...]]:
            rng = random.Random(f"{settings.seed}|{step}|{i}")  # problems depend on seed, step, and what is over
            rows = rows_of(tokenizer, draw(rng, tokenizer, settings, done))
            loss = packed_loss(model, rows, settings.bfloat16)
            return float(loss.detach()), sum(len(ids) for ids, _ in rows), torch.autograd.grad(loss, weights)

        for loss, tokens, gradients in pool.map(one, range(settings.texts)):
            losses, n = [*losses, loss], n + tokens
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.grad = gradient / settings.texts + (0 if weight.grad is None else weight.grad)
        if not math.isfinite(sum(losses)):
            raise ValueError(f"the loss is not finite at step {step}: lower the learning rate")
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        step, took = step + 1, time.perf_counter() - clock
        gone += took
        log.append([sum(losses) / len(losses), n, took])
        print(f"{step} loss {log[-1][0]:.4f} tokens {n} step {took:.1f} s, {gone:.0f} s", flush=True)
        if step % settings.checkpoint_every == 0 or step == settings.steps or gone >= settings.seconds:
            state = {"settings": json.dumps(asdict(settings)), "step": step, "log": log, "seconds": gone,
                     "adapter": get_peft_model_state_dict(model), "optimiser": optimiser.state_dict()}  # fmt: skip
            with atomic_path(checkpoint) as temporary:
                torch.save(state, temporary)
            model.save_pretrained(out)
    write_card(out, settings, log, draw)
    return out


def accuracy(adapter: Path, n: int, seed: int, length: int = 1024) -> list[dict[str, Any]]:
    """Own answers to ``n`` held-out problems of every mode, number of facts off the path, and chain."""
    model, tokenizer = load_model(adapter)
    rows = []
    for mode, off_path, chain in product(facts.MODES, facts.OFF_PATH, facts.CHAINS):
        examples = facts.fact_examples(tokenizer, n, mode, off_path, chain=chain, length=length, seed=seed)
        for example, ids in zip(examples, respond(examples, model, tokenizer, 400), strict=True):
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
    parser.add_argument("--accuracy", type=int, metavar="N", help="measure the adapter on N problems a cell and chain")
    parser.add_argument("--seconds", type=float, default=Settings.seconds)
    parser.add_argument("--seed", type=int, help="of training, or of the problems measured", default=None)
    given = parser.parse_args(argv)
    if given.accuracy is None:
        train(given.out, Settings(seconds=given.seconds, seed=given.seed or 0))
        return 0
    rows = accuracy(given.out, given.accuracy, DEVELOPMENT if given.seed is None else given.seed)
    with (given.out / "answers.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
