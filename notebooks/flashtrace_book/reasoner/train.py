"""Train the adapter that makes the embedded model reason: ``python -m flashtrace_book.reasoner.train laptop``.

LoRA by plain PyTorch: AdamW, a cosine, the loss on the response alone. Every step is a pure function of the state
before it and the seed, and the state is saved every few steps, so a run that is killed goes on where it was and, on
one machine, ends with the same bits.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from tqdm import tqdm

from flashtrace_lib.files import atomic_path, build_root, root
from flashtrace_lib.fingerprints import fingerprint, model_fingerprint
from flashtrace_lib.load import HUB_ID, load_model
from flashtrace_lib.model.embedded import use_reasoner_template

from . import adapter
from .batches import Batch, Lesson, batches, held_out_lessons, step_lessons
from .config import TrainingConfig, load_training_config, training_names

LOG = "training.csv"
EAGER_UP_TO = 640  # tokens; on a CPU the plain attention's backward pass is faster up to here, the fused one's beyond
Rows = list[dict[str, Any]]


def train(
    config: TrainingConfig, model: torch.nn.Module | None = None, tokenizer: Any = None, fresh: bool = False
) -> Path:
    """Train an adapter, or go on training it.

    Parameters
    ----------
    config : TrainingConfig
    model, tokenizer : optional
        Used instead of loading ``config.model``; the model gets its weights back as they were. A model on a GPU is
        trained there.
    fresh : bool
        Start anew although there is a checkpoint.

    Returns
    -------
    Path
        Folder with the adapter, its card and the log ``training.csv``: a row for each step, split, task and mode,
        with the loss (nats a token), the share of tokens and the share of whole responses that greedy decoding would
        get right behind the true beginning, tokens, learning rate, gradient norm and seconds.

    Raises
    ------
    ValueError
        If there is a checkpoint of a run with other settings or another model, or the loss is not finite.
    """
    if config.threads:
        torch.set_num_threads(config.threads)
    if model is None or tokenizer is None:
        device = "cuda" if torch.cuda.is_available() else None
        model, tokenizer = load_model(config.model, device_map=device)
    use_reasoner_template(tokenizer)
    run = _Run(config, model, tokenizer)
    try:
        if fresh:
            run.checkpoint.unlink(missing_ok=True)
        run.resume()
        run.finish_steps()
        return run.save()
    finally:
        run.peft_model.unload()
        model.set_attn_implementation(run.attention)
        model.requires_grad_(True).eval()


def output_folder(config: TrainingConfig) -> Path:
    """Where the adapter of a configuration is written."""
    return _run_folder(config) / "adapter" if config.output is None else root() / config.output


def _run_folder(config: TrainingConfig) -> Path:
    return build_root() / "training" / config.name


class _Run:
    """State of a run: adapter, optimiser, schedule, log and the number of steps done."""

    def __init__(self, config: TrainingConfig, model: torch.nn.Module, tokenizer: Any):
        self.config, self.model, self.tokenizer = config, model, tokenizer
        self.attention = model.config._attn_implementation
        self.curriculum = config.curriculum()
        self.identity = fingerprint({"config": config.shaping(), "model": model_fingerprint(model)})
        self.checkpoint = _run_folder(config) / "checkpoint.pt"
        self.peft_model = adapter.add_adapter(model, config.rank, config.alpha, config.seed)
        self.parameters = [p for p in self.peft_model.parameters() if p.requires_grad]
        self.optimiser = torch.optim.AdamW(self.parameters, lr=config.learning_rate, weight_decay=config.weight_decay)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimiser, self._rate)
        self.step, self.rows = 0, []

    def _rate(self, step: int) -> float:
        """Learning rate as a share of its peak."""
        if step < self.config.warmup:
            return (step + 1) / (self.config.warmup + 1)
        done = (step - self.config.warmup) / (self.config.steps - self.config.warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    def resume(self) -> None:
        """Load the checkpoint, if there is one."""
        if not self.checkpoint.exists():
            return
        state = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
        if state["identity"] != self.identity:
            raise ValueError(
                f"{self.checkpoint} belongs to a run with other settings or another model: "
                "give this run another name, or start it anew (fresh=True, --fresh)"
            )
        adapter.load_adapter_state(self.peft_model, state["adapter"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["rng"])
        if torch.cuda.is_available() and state["cuda_rng"]:
            torch.cuda.set_rng_state_all(state["cuda_rng"])
        self.step, self.rows = state["step"], state["rows"]

    def save_checkpoint(self) -> None:
        """Write the whole state; a reader finds the old one or the new one."""
        state = {
            "identity": self.identity,
            "step": self.step,
            "rows": self.rows,
            "adapter": adapter.adapter_state(self.peft_model),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }
        with atomic_path(self.checkpoint) as temporary:
            with open(temporary, "wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())

    def finish_steps(self) -> None:
        """Train to the last step, preparing the next step's lessons meanwhile."""
        config = self.config
        held_out = held_out_lessons(self.tokenizer, config) if config.eval_every else []

        def lessons(step: int) -> list[Lesson]:
            return step_lessons(self.tokenizer, config, self.curriculum, step)

        with (
            ThreadPoolExecutor(1) as pool,
            tqdm(total=config.steps, initial=self.step, desc=f"train {config.name}", unit="step") as bar,
        ):
            ahead = pool.submit(lessons, self.step)
            while self.step < config.steps:
                now, ahead = ahead.result(), pool.submit(lessons, min(self.step + 1, config.steps - 1))
                loss, exact = self.take_step(now)
                bar.set_postfix(loss=f"{loss:.3f}", exact=f"{exact:.2f}", refresh=False)
                bar.update()
                last = self.step == config.steps
                if held_out and (self.step % config.eval_every == 0 or last):
                    self.test(held_out)
                if last or self.step % config.checkpoint_every == 0:
                    self.save_checkpoint()

    def take_step(self, lessons: list[Lesson]) -> tuple[float, float]:
        """One optimiser step; returns the loss, nats a token, and the share of exact responses."""
        start = time.perf_counter()
        self.peft_model.train()
        total = sum(len(item.ids) - item.n_prompt for item in lessons)  # response tokens
        measured: Rows = []
        for batch in batches(lessons, self.tokenizer.eos_token_id, self.config.tokens_per_batch):
            losses, hits = self._forward(batch)  # [M], [M]
            (losses.sum() / total).backward()  # the mean over the step, however it is cut
            measured += _per_lesson(batch, losses.detach(), hits)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.config.clip).item()
        loss = sum(row["loss"] for row in measured) / total
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise ValueError(f"step {self.step}: loss {loss}, gradient norm {norm}: lower the learning rate")
        rate = self.schedule.get_last_lr()[0]
        self.optimiser.step()
        self.schedule.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.step += 1
        seconds = time.perf_counter() - start
        self.rows += self._log("train", measured, {"learning_rate": rate, "grad_norm": norm, "seconds": seconds})
        return loss, sum(row["exact"] for row in measured) / len(measured)

    @torch.no_grad()
    def test(self, lessons: list[Lesson]) -> None:
        """Loss and accuracy on held-out lessons, into the log."""
        self.peft_model.eval()
        measured: Rows = []
        start = time.perf_counter()
        for batch in batches(lessons, self.tokenizer.eos_token_id, self.config.tokens_per_batch):
            measured += _per_lesson(batch, *self._forward(batch))
        self.rows += self._log("eval", measured, {"seconds": time.perf_counter() - start})

    def _forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss of each response token, [M], and whether it is the likeliest, [M]."""
        device = self.model.device
        short = device.type == "cpu" and batch.input_ids.shape[1] <= EAGER_UP_TO
        self.model.set_attn_implementation("eager" if short else self.attention)
        causal = self.peft_model.get_base_model()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.config.bf16):
            hidden = causal.model(input_ids=batch.input_ids.to(device), use_cache=False).last_hidden_state  # [B, N, d]
            # Only where a response token is predicted: logits of all places would take gigabytes.
            logits = causal.lm_head(hidden[batch.predicts.to(device)])  # [M, vocabulary]
        targets = batch.targets.to(device)
        return F.cross_entropy(logits.float(), targets, reduction="none"), logits.argmax(-1) == targets

    def _log(self, split: str, measured: Rows, extra: dict[str, float]) -> Rows:
        """Rows of the log: lessons of one task and mode together."""
        frame = pd.DataFrame(measured).groupby(["task", "mode"], as_index=False)
        sums = frame.agg(n=("exact", "size"), loss=("loss", "sum"), hits=("hits", "sum"), exact=("exact", "mean"),
                         tokens=("tokens", "sum"))  # fmt: skip
        return [
            {
                "step": self.step,
                "split": split,
                **{name: row[name] for name in ("task", "mode", "n", "exact", "tokens")},
                "loss": row["loss"] / row["tokens"],
                "token_accuracy": row["hits"] / row["tokens"],
                **extra,
            }
            for row in sums.to_dict("records")
        ]

    def save(self) -> Path:
        """Write adapter, log and card."""
        config = self.config
        base = HUB_ID if config.model == "embedded-base" else config.model
        folder = adapter.save_adapter(self.peft_model, output_folder(config), base)
        log = pd.DataFrame(self.rows)
        with atomic_path(folder / LOG) as temporary:
            log.to_csv(temporary, index=False, float_format="%.6g")
        trained = log[log["split"] == "train"]
        shares = ", ".join(f"{name} {value:g}" for name, value in config.weights.items())
        adapter.write_card(
            folder,
            {
                "base model": base,
                "data": f"generated problems ({shares}), prompts of up to {config.max_length} tokens",
                "problems": int(trained["n"].sum()),
                "response tokens": int(trained["tokens"].sum()),
                "steps": self.step,
                "rank, alpha": f"{config.rank}, {config.alpha:g}",
                "learning rate": f"{config.learning_rate:g}, cosine, {config.warmup} steps of warm-up",
                "seed": config.seed,
                "training time": f"{trained.groupby('step')['seconds'].first().sum() / 60:.0f} min "
                f"({self.model.device.type})",
            },
        )
        return folder


def _per_lesson(batch: Batch, losses: torch.Tensor, hits: torch.Tensor) -> Rows:
    """Summed loss, hits and exactness of each lesson of a batch."""
    losses, hits = losses.float().cpu(), hits.cpu()
    rows = []
    for i, item in enumerate(batch.lessons):
        mine = batch.rows == i
        right = hits[mine]
        rows.append(
            {
                "task": item.task,
                "mode": item.mode,
                "loss": losses[mine].sum().item(),
                "hits": right.sum().item(),
                "exact": float(right.all().item()),
                "tokens": len(right),
            }
        )
    return rows


def main(argv: list[str] | None = None) -> int:
    """Train from the command line; exit code 2 for bad input."""
    program = "python -m flashtrace_book.reasoner.train"
    parser = argparse.ArgumentParser(prog=program, description=__doc__.splitlines()[0])
    parser.add_argument("config", help=f"{', '.join(training_names())}, or a .yaml file")
    parser.add_argument("--fresh", action="store_true", help="start anew although there is a checkpoint")
    parser.add_argument("--steps", type=int, help="other number of steps (another run: give it another --name)")
    parser.add_argument("--name", help="name of the run")
    arguments = parser.parse_args(argv)
    changes = {name: value for name in ("steps", "name") if (value := getattr(arguments, name)) is not None}
    try:
        print(train(load_training_config(arguments.config, **changes), fresh=arguments.fresh))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
