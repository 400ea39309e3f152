"""Train the adapter that makes the embedded model reason: ``python -m flashtrace_book.reasoner.train long``.

LoRA by plain PyTorch: AdamW, a cosine, the loss on the response alone. The state is saved every few steps, so a run
that is killed continues from its last checkpoint and, on one machine, ends with the same bits.
"""

from __future__ import annotations

import argparse
import io
import pickle
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.files import CannotWrite, atomic_path, build_root, root
from flashtrace_lib.load import HUB_ID, load_model
from flashtrace_lib.model.embedded import use_reasoner_template

from . import adapter
from .batches import TrainingExample, held_out_examples, step_examples
from .config import TrainingConfig, load_training_config, training_names
from .trainer import Trainer

LOG = "training.csv"


def train(
    config: TrainingConfig, model: torch.nn.Module | None = None, tokenizer: Any = None, fresh: bool = False
) -> Path:
    """Train an adapter, from its checkpoint where there is one.

    Parameters
    ----------
    config : TrainingConfig
    model, tokenizer : optional
        Used instead of loading ``config.model``; the model gets its weights back as they were. A model on a GPU is
        trained there.
    fresh : bool
        Start from scratch although there is a checkpoint.

    Returns
    -------
    Path
        Folder with the adapter, its card and the log ``training.csv``: a row for each step, split, task and mode,
        with the loss (nats per token), the share of tokens and the share of whole responses that greedy decoding
        would get right after the reference beginning, tokens, learning rate, gradient norm and seconds.

    Raises
    ------
    ValueError
        If there is a checkpoint of a run with other settings or another model, or a damaged one, or the loss is not
        finite.
    """
    if config.threads:
        torch.set_num_threads(config.threads)
    if model is None or tokenizer is None:
        device = "cuda" if torch.cuda.is_available() else None
        model, tokenizer = load_model(config.model, device_map=device)
    use_reasoner_template(tokenizer)
    checkpoint = _run_folder(config) / "checkpoint.pt"
    trainer = Trainer(config, model, tokenizer)
    try:
        if fresh:
            checkpoint.unlink(missing_ok=True)
        _resume(trainer, checkpoint)
        _run_steps(trainer, checkpoint)
        return _save_adapter(trainer)
    finally:
        trainer.release()


def output_folder(config: TrainingConfig) -> Path:
    """Where the adapter of a configuration is written."""
    return _run_folder(config) / "adapter" if config.output is None else root() / config.output


def _run_folder(config: TrainingConfig) -> Path:
    return build_root() / "training" / config.name


def _resume(trainer: Trainer, checkpoint: Path) -> None:
    """Load the checkpoint, if there is one."""
    if not checkpoint.exists():
        return
    anew = "give this run another name, or start it anew (fresh=True, --fresh)"
    try:
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        if state["identity"] != trainer.identity:
            raise ValueError(f"{checkpoint} belongs to a run with other settings or another model: {anew}")
        trainer.load_state_dict(state)
    except (RuntimeError, EOFError, KeyError, TypeError, AttributeError, pickle.UnpicklingError) as error:
        why = f"damaged, or of an earlier version of the trainer ({type(error).__name__})"  # its words may fill pages
        raise ValueError(f"{checkpoint} is {why}: {anew}") from error


def _save_checkpoint(trainer: Trainer, checkpoint: Path) -> None:
    held = io.BytesIO()  # torch's own writer hides from its caller that a disk is full
    torch.save(trainer.state_dict(), held)
    with atomic_path(checkpoint) as temporary:
        temporary.write_bytes(held.getbuffer())


def _run_steps(trainer: Trainer, checkpoint: Path) -> None:
    """Train to the last step; evaluate and save the state as often as the configuration says."""
    config = trainer.config
    held_out = held_out_examples(trainer.tokenizer, config) if config.eval_every else []
    draw = partial(step_examples, trainer.tokenizer, config, config.curriculum())
    drawn = _drawn_ahead(draw, range(trainer.step, config.last_step))
    with tqdm(drawn, desc=f"train {config.name}", total=config.last_step, initial=trainer.step, unit="step") as bar:
        for examples in bar:
            loss, exact = trainer.take_step(examples)
            bar.set_postfix(loss=f"{loss:.3f}", exact=f"{exact:.2f}", refresh=False)
            is_last = trainer.step == config.last_step
            if held_out and (is_last or trainer.step % config.eval_every == 0):
                trainer.evaluate(held_out)
            if is_last or trainer.step % config.checkpoint_every == 0:
                _save_checkpoint(trainer, checkpoint)


def _drawn_ahead(draw: Callable[[int], list[TrainingExample]], steps: range) -> Iterator[list[TrainingExample]]:
    """``draw(step)`` of each step, the next one drawn in a thread while the caller trains on this one."""
    with ThreadPoolExecutor(1) as pool:
        following = None
        for step in steps:
            examples = draw(step) if following is None else following.result()
            following = pool.submit(draw, step + 1) if step + 1 in steps else None
            yield examples


def _save_adapter(trainer: Trainer) -> Path:
    """Write adapter, log and card."""
    config = trainer.config
    base = HUB_ID if config.model == "embedded-base" else config.model
    folder = adapter.save_adapter(trainer.peft_model, output_folder(config), base)
    log = pd.DataFrame(trainer.rows)
    with atomic_path(folder / LOG) as temporary:
        log.to_csv(temporary, index=False, float_format="%.6g")
    trained = log[log["split"] == "train"]
    minutes = trained.groupby("step")["seconds"].first().sum() / 60
    shares = ", ".join(f"{name} {value:g}" for name, value in config.weights.items())
    adapter.write_card(
        folder,
        {
            "base model": base,
            "data": f"generated problems ({shares}), prompts of up to {config.max_length} tokens",
            "problems": int(trained["n"].sum()),
            "response tokens": int(trained["tokens"].sum()),
            "steps": f"{trainer.step}" + (f", the beginning of {config.steps}" if trainer.step < config.steps else ""),
            **({"went on from": config.start} if config.start else {}),
            **({"problems with padding in the prompt": f"{config.padded:g}"} if config.padded else {}),
            "rank, alpha": f"{config.rank}, {config.alpha:g}",
            "learning rate": f"{config.learning_rate:g}, cosine, {config.warmup} steps of warm-up",
            "seed": config.seed,
            "training time": f"{minutes:.0f} min ({trainer.model.device.type})",
        },
    )
    return folder


def main(argv: list[str] | None = None) -> int:
    """Train from the command line; exit code 2 for bad input or a full disk."""
    program = "python -m flashtrace_book.reasoner.train"
    parser = argparse.ArgumentParser(prog=program, description=__doc__.splitlines()[0])
    parser.add_argument("config", help=f"{', '.join(training_names())}, or a .yaml file")
    parser.add_argument("--fresh", action="store_true", help="start anew although there is a checkpoint")
    parser.add_argument("--steps", type=int, help="other number of steps (another run: give it another --name)")
    parser.add_argument("--name", help="name of the run")
    arguments = parser.parse_args(argv)
    changes = {"steps": arguments.steps, "name": arguments.name}
    changes = {name: value for name, value in changes.items() if value is not None}
    try:
        print(train(load_training_config(arguments.config, **changes), fresh=arguments.fresh))
    except (ValueError, CannotWrite) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
