"""Train a LoRA adapter that makes a small model reason: ``python -m scripts.train_adapter OUT --steps 300``.

One file on purpose: peft's adapter, a plain loop, and the library's task generators as data. A run that is killed goes
on from its last checkpoint. Other tasks: pass your own ``draw`` to `train`; another way to learn: your own ``learn``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from flashtrace_lib.files import atomic_path, root, write_text
from flashtrace_lib.load import load_model
from flashtrace_lib.model.embedded import use_reasoner_template
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.responses import prompt_settings, true_response
from flashtrace_lib.tasks.ruler import ruler_examples
from flashtrace_lib.tasks.splits import in_split
from flashtrace_lib.text.chat_template import render_prompt
from flashtrace_lib.text.offsets import tokenise

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
Draw = Callable[..., Any]  # (generator of random numbers, tokenizer, settings) -> an Example, or what `learn` takes


@dataclass(frozen=True)
class Settings:
    """How the adapter is trained.

    Parameters
    ----------
    model : str
        As ``load_model`` takes it.
    cells : tuple of str
        RULER cells that problems are drawn from.
    shortest, longest : int
        Tokens of the prompts.
    steps, batch, rank, seed, checkpoint_every : int
    seconds : float
        The run ends after these, if it has not made its steps before.
    learning_rate : float
        Falls along a cosine after a twentieth of the steps.
    start : str
        Folder of an adapter of the same rank to go on from; a fresh one where empty.
    bfloat16 : bool
        Compute in bfloat16 where the processor is fast at it; weights stay float32.
    """

    model: str = "embedded-base"
    cells: tuple[str, ...] = ("mq_q2", "mq_q4", "mv_v2", "mv_v4", "h2_c1", "h4_c1", "h2_c3")
    shortest: int = 200
    longest: int = 1024
    steps: int = 300
    seconds: float = math.inf
    batch: int = 6
    rank: int = 16
    seed: int = 0
    checkpoint_every: int = 25
    learning_rate: float = 1e-3
    start: str = ""
    bfloat16: bool = False


def ruler_problem(rng: random.Random, tokenizer: Any, settings: Settings) -> Example:
    """One problem of a random cell and length, of names and numbers that evaluation never shows."""
    length, seed = rng.randint(settings.shortest, settings.longest), rng.randrange(2**31)
    keep = partial(in_split, split="train")
    return ruler_examples(tokenizer, rng.choice(settings.cells), length, 1, seed=seed, keep=keep)[0]


def tokenised(tokenizer: Any, example: Example) -> tuple[list[int], int]:
    """Ids of prompt and reference response, and the length of the prompt; tokenised apart, as in generation."""
    prompt = render_prompt(tokenizer, example.prompt, **prompt_settings(tokenizer, example)).text
    ids, response = tokenise(tokenizer, prompt)[0], tokenise(tokenizer, true_response(example))[0]
    return [*ids, *response, tokenizer.eos_token_id], len(ids)


def loss_of(model: torch.nn.Module, examples: Sequence[tuple[list[int], int]], bfloat16: bool) -> torch.Tensor:
    """Mean negative log-likelihood of the responses' tokens, one context at a time; its gradient is added up."""
    total, n = 0.0, sum(len(ids) - start for ids, start in examples)
    for ids, start in examples:
        tokens = torch.tensor([ids])  # [1, N]
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            logits = model(tokens[:, :-1], logits_to_keep=len(ids) - start).logits[0].float()  # [R, vocabulary]
        loss = torch.nn.functional.cross_entropy(logits, tokens[0, start:], reduction="sum") / n
        loss.backward()
        total += float(loss.detach())
    return total


def one_by_one(
    model: torch.nn.Module, tokenizer: Any, settings: Settings, draw: Draw, step: int, done: float
) -> tuple[float, int]:
    """Add a step's gradient to the weights', one context after another; the loss, and the tokens read."""
    rng = random.Random(f"{settings.seed}|{step}")  # a step's problems depend on nothing but seed and step
    examples = [tokenised(tokenizer, draw(rng, tokenizer, settings)) for _ in range(settings.batch)]
    return loss_of(model, examples, settings.bfloat16), sum(len(ids) for ids, _ in examples)


def train(
    out: Path,
    settings: Settings,
    draw: Draw = ruler_problem,
    learn: Callable[..., tuple[float, int]] = one_by_one,
) -> Path:
    """Train an adapter and write it, with its card, into ``out``; a checkpoint there is gone on from.

    Parameters
    ----------
    out : Path
    settings : Settings
    draw : callable
        Where problems come from.
    learn : callable
        As `one_by_one`: adds up a step's gradient, given also the share of the run that is over.

    Raises
    ------
    ValueError
        If the checkpoint in ``out`` belongs to other settings, or the loss is no longer finite.
    """
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file

    base, tokenizer = load_model(settings.model)
    use_reasoner_template(tokenizer)
    torch.manual_seed(settings.seed)
    lora = LoraConfig(
        r=settings.rank, lora_alpha=2 * settings.rank, target_modules=list(PROJECTIONS), task_type="CAUSAL_LM"
    )
    model = get_peft_model(base, lora).train()
    if settings.start:
        if not (Path(settings.start) / "adapter_model.safetensors").is_file():
            raise ValueError(f"start: {settings.start} holds no adapter (adapter_model.safetensors)")
        found = load_file(Path(settings.start) / "adapter_model.safetensors")
        set_peft_model_state_dict(model, {name: weight.float() for name, weight in found.items()})
    weights = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(weights, lr=settings.learning_rate, weight_decay=0.0)
    checkpoint, step, log, gone = out / "checkpoint.pt", 0, [], 0.0
    if checkpoint.is_file():
        state = torch.load(checkpoint, weights_only=True)
        if state["settings"] != json.dumps(asdict(settings)):
            raise ValueError(f"{checkpoint} belongs to other settings: give another folder, or remove it")
        set_peft_model_state_dict(model, state["adapter"])
        optimiser.load_state_dict(state["optimiser"])
        step, log, gone = state["step"], state["log"], sum(s for *_, s in state["log"])
    bar = tqdm(initial=step, total=settings.steps, desc="train")
    while (done := max(step / settings.steps, gone / settings.seconds)) < 1:
        clock = time.perf_counter()
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * schedule(done)
        loss, tokens = learn(model, tokenizer, settings, draw, step, done)
        if not math.isfinite(loss):
            raise ValueError(f"the loss is {loss} at step {step}: lower the learning rate")
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        log.append([loss, tokens, time.perf_counter() - clock])
        step, gone = step + 1, sum(s for *_, s in log)
        bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        bar.update()
        if step % settings.checkpoint_every == 0 or step == settings.steps or gone >= settings.seconds:
            state = {"settings": json.dumps(asdict(settings)), "step": step, "log": log,
                     "adapter": get_peft_model_state_dict(model), "optimiser": optimiser.state_dict()}  # fmt: skip
            with atomic_path(checkpoint) as temporary:
                torch.save(state, temporary)
    model.peft_config["default"].base_model_name_or_path = settings.model  # not this machine's cache
    model.save_pretrained(out)
    write_card(out, settings, log, draw)
    checkpoint.unlink(missing_ok=True)
    return out


def schedule(done: float) -> float:
    """Share of the learning rate when a share of the run is over: a rise over a twentieth, then half a cosine."""
    return 0.1 + 18 * done if done < 0.05 else 0.5 * (1 + math.cos(math.pi * (done - 0.05) / 0.95))


def write_card(out: Path, settings: Settings, log: list[list[float]], draw: Draw) -> None:
    """What was trained, how, how long, by which commit, and the hash of the weights."""
    digest = hashlib.sha256((out / "adapter_model.safetensors").read_bytes()).hexdigest()
    commit = subprocess.run(
        ["git", "-C", str(root()), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    rows = {"data": f"{draw.__module__}.{draw.__qualname__}", **asdict(settings),
            "tokens": int(sum(tokens for _, tokens, _ in log)), "seconds": round(sum(s for *_, s in log)),
            "loss of the last ten steps": round(sum(loss for loss, *_ in log[-10:]) / len(log[-10:]), 4),
            "commit": commit.stdout.strip(), "SHA-256 of the weights": digest}  # fmt: skip
    lines = [
        "# A LoRA adapter trained by this book",
        "",
        "| | |",
        "|---|---|",
        *(f"| {k} | {v} |" for k, v in rows.items()),
    ]
    write_text(out / "README.md", "\n".join(lines) + "\n")


def main(argv: list[str] | None = None) -> int:
    """Entry point; 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m scripts.train_adapter", description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder of the adapter")
    for name, value in asdict(Settings()).items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            parser.add_argument(option, action="store_true")
        elif isinstance(value, (tuple, list)):
            parser.add_argument(option, nargs="+", default=value)
        else:
            parser.add_argument(option, type=type(value), default=value)
    given = vars(parser.parse_args(argv))
    out = given.pop("out")
    try:
        print(train(out, Settings(**given | {"cells": tuple(given["cells"])})))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
