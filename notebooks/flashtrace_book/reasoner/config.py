"""Settings of a training run: one YAML file each under ``profiles/training``."""

from __future__ import annotations

import math
import re
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from .curriculum import DEFAULT_WEIGHTS, SHORTEST, TASKS, Curriculum

_FOLDER = Path(__file__).parent.parent / "profiles" / "training"
# What may change between a run and its continuation: nothing that shapes the result.
_INCIDENTAL = ("description", "output", "checkpoint_every", "tokens_per_batch", "threads")


@dataclass(frozen=True)
class TrainingConfig:
    """Everything that shapes an adapter.

    Parameters
    ----------
    name : str
        Of the run: names the folder of its checkpoint.
    description : str
        One line for the reader.
    model : str
        What ``load_model`` takes.
    output : str, optional
        Folder of the adapter, relative to the checkout. Default: beside the checkpoint, under ``build``.
    steps : int
        Optimiser steps.
    tokens_per_step : int
        Problems are drawn until their tokens, prompt and response, reach this.
    tokens_per_batch : int
        Largest forward pass, tokens, padding included; bounds the memory, not what is learned.
    rank, alpha : int, float
        Of the adapter: the update is (alpha / rank) B A.
    learning_rate : float
        Peak; reached after ``warmup`` steps, then down a cosine to 0.
    warmup : int
        Steps.
    weight_decay, clip : float
        AdamW's decay, and the largest norm of the gradient.
    bf16 : bool
        Matrix products in bfloat16 (autocast); weights and optimiser stay float32.
    weights, max_length, ramp, direct
        See `curriculum.Curriculum`.
    eval_every : int
        Steps between tests on held-out problems, 0 for none.
    eval_tasks : tuple of str
        Tasks of these tests.
    eval_problems : int
        Problems a task.
    eval_length : int
        Tokens of their RULER prompts.
    checkpoint_every : int
        Steps between checkpoints: what a killed run loses at most.
    seed : int
        Of the adapter and of every problem.
    threads : int, optional
        CPU threads; torch's own number where it is not given.
    """

    name: str
    description: str
    steps: int
    model: str = "embedded-base"
    output: str | None = None
    tokens_per_step: int = 4096
    tokens_per_batch: int = 2048
    rank: int = 16
    alpha: float = 32.0
    learning_rate: float = 1e-3
    warmup: int = 20
    weight_decay: float = 0.0
    clip: float = 1.0
    bf16: bool = True
    weights: dict[str, float] = field(default_factory=lambda: dict(DEFAULT_WEIGHTS))
    max_length: int = 1024
    ramp: float = 0.5
    direct: float = 0.1
    eval_every: int = 0
    eval_tasks: tuple[str, ...] = ("h4_c1", "h2_c3", "mq_q4", "mv_v4", "gsm8k", "morehopqa")
    eval_problems: int = 4
    eval_length: int = 256
    checkpoint_every: int = 10
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", self.name):
            raise ValueError(f"name {self.name!r} cannot name a folder: use lower-case letters, digits, '-' and '_'")
        least = dict.fromkeys(("warmup", "eval_every", "seed"), 0) | {"max_length": SHORTEST}
        counts = "steps tokens_per_step tokens_per_batch rank eval_problems eval_length checkpoint_every"
        least |= dict.fromkeys(counts.split(), 1)
        for name, bound in least.items():
            _check_whole(getattr(self, name), name, bound)
        if self.threads is not None:
            _check_whole(self.threads, "threads", 1)
        for name, zero in (("alpha", False), ("learning_rate", False), ("clip", False), ("weight_decay", True)):
            _check_number(getattr(self, name), name, zero)
        if not isinstance(self.bf16, bool):
            raise ValueError(f"bf16 must be true or false, got {self.bf16!r}")
        if self.warmup >= self.steps:
            raise ValueError(f"warmup {self.warmup} must be shorter than the {self.steps} steps")
        unknown = [task for task in self.eval_tasks if task not in TASKS]
        if unknown:
            raise ValueError(f"unknown eval_tasks {', '.join(map(str, unknown))}: known are {', '.join(TASKS)}")
        object.__setattr__(self, "eval_tasks", tuple(self.eval_tasks))
        self.curriculum()  # checks its share

    def curriculum(self) -> Curriculum:
        """The problems."""
        return Curriculum(self.weights, self.max_length, self.ramp, self.direct)

    def shaping(self) -> dict[str, Any]:
        """What a continued run must share with the run that it continues."""
        return {name: value for name, value in asdict(self).items() if name not in _INCIDENTAL}


def training_names() -> list[str]:
    """Names of the configurations that come with the library."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def load_training_config(name_or_path: str | Path, **changes: Any) -> TrainingConfig:
    """Read and check a configuration.

    Parameters
    ----------
    name_or_path : str or Path
        A name of `training_names`, or the path of a YAML file.
    **changes
        Settings that replace the file's.

    Raises
    ------
    ValueError
        If there is none, a key is unknown or missing, or a value does not fit.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = _FOLDER / f"{name_or_path}.yaml"
    if not path.is_file():
        raise ValueError(
            f"no training configuration {str(name_or_path)!r}: known are {', '.join(training_names())}; "
            "one of your own is named by the path of its .yaml file"
        )
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("the file must hold `key: value` lines")
        return TrainingConfig(**_checked({**data, **changes}))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"training configuration {path.name}: {error}") from None


def _checked(data: dict[str, Any]) -> dict[str, Any]:
    """The same settings, once all are known and none is missing."""
    known = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(TrainingConfig)}
    unknown = [key for key in data if key not in known]
    if unknown:
        raise ValueError(f"unknown key {', '.join(map(str, unknown))}: known are {', '.join(known)}")
    missing = [key for key, required in known.items() if required and key not in data]
    if missing:
        raise ValueError(f"missing key {', '.join(missing)}: add it")
    return data


def _check_whole(value: Any, name: str, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _check_number(value: Any, name: str, zero: bool) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{name} must be a finite number {'>= 0' if zero else '> 0'}, got {value!r} (write 1.0e-3)")
