"""Settings of a training run: one YAML file each under ``profiles/training``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..settings import Settings, check_folder_name, file_names, load
from .curriculum import DEFAULT_WEIGHTS, SHORTEST, TASKS, Curriculum

_FOLDER = Path(__file__).parent.parent / "profiles" / "training"
# Settings that shape no result, so they may change between a run and its continuation.
_EXCLUDED_FROM_IDENTITY = ("description", "output", "stop", "checkpoint_every", "tokens_per_batch", "threads")


@dataclass(frozen=True)
class TrainingConfig(Settings):
    """Everything that shapes an adapter.

    Parameters
    ----------
    name : str
        Names the folder of the checkpoint.
    description : str
        One line for the reader.
    model : str
        As ``load_model`` takes it.
    output : str, optional
        Folder of the adapter, relative to the checkout. Default: beside the checkpoint, under ``build``.
    steps : int
        Optimiser steps, over which the learning rate rises and falls.
    stop : int, optional
        The run ends after this many of them, for another configuration to ``start`` from. Default: after all.
    start : str, optional
        Folder of an adapter of the same rank, relative to the checkout, that the training goes on from. Default: a
        fresh one.
    tokens_per_step : int
        Problems are drawn until their tokens, prompt and response, reach this.
    tokens_per_batch : int
        Largest forward pass, tokens, padding included; bounds the memory, not what is learned.
    rank, alpha : int, float
        The adapter's update is (alpha / rank) B A.
    learning_rate, warmup : float, int
        Peak of the learning rate, reached after ``warmup`` steps; then it falls along a cosine to 0.
    weight_decay, clip : float
        AdamW's decay, and the largest norm of the gradient.
    bf16 : bool
        Matrix products in bfloat16 (autocast), but for a CPU that would emulate it; weights and optimiser stay float32.
    weights, max_length, ramp, direct, skew
        See `curriculum.Curriculum`.
    padded : float
        Share of the problems whose prompt has padding tokens in the place of some of the user's, so that a model reads
        masks as deletion curves set them.
    eval_every : int
        Steps between evaluations on held-out problems, 0 for none.
    eval_tasks, eval_problems, eval_length
        Tasks of these evaluations, problems per task, and tokens of a RULER prompt.
    checkpoint_every : int
        Steps between checkpoints, the most that a killed run loses.
    seed : int
        Of the adapter and of every problem.
    threads : int, optional
        CPU threads. Default: torch's own number.
    """

    name: str
    description: str
    steps: int
    stop: int | None = None
    start: str | None = None
    model: str = "embedded-base"
    output: str | None = None
    tokens_per_step: int = 4096
    tokens_per_batch: int = 2048
    rank: int = 16
    alpha: float = field(default=32.0, metadata={"above": 0})
    learning_rate: float = field(default=1e-3, metadata={"above": 0})
    warmup: int = field(default=20, metadata={"least": 0})
    weight_decay: float = 0.0
    clip: float = field(default=1.0, metadata={"above": 0})
    bf16: bool = True
    weights: dict[str, float] = field(default_factory=lambda: dict(DEFAULT_WEIGHTS))
    max_length: int = field(default=1024, metadata={"least": SHORTEST})
    ramp: float = 0.5
    direct: float = 0.1
    skew: float = field(default=2.0, metadata={"above": 0})
    padded: float = 0.0
    eval_every: int = field(default=0, metadata={"least": 0})
    eval_tasks: tuple[str, ...] = field(
        default=("h4_c1", "h2_c3", "mq_q4", "mv_v4", "gsm8k", "morehopqa"), metadata={"may_be_empty": True}
    )
    eval_problems: int = 4
    eval_length: int = 256
    checkpoint_every: int = 10
    seed: int = field(default=0, metadata={"least": 0})
    threads: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_folder_name(self.name)
        if self.warmup >= self.steps:
            raise ValueError(f"warmup {self.warmup} must be shorter than the {self.steps} steps")
        if self.stop is not None and not 0 < self.stop <= self.steps:
            raise ValueError(f"stop must lie between 1 and the {self.steps} steps, got {self.stop}")
        if not 0 <= self.padded <= 1:
            raise ValueError(f"padded is a share of the problems, between 0 and 1, got {self.padded}")
        unknown = [task for task in self.eval_tasks if task not in TASKS]
        if unknown:
            raise ValueError(f"unknown eval_tasks {', '.join(unknown)}: known are {', '.join(TASKS)}")
        self.curriculum()  # checks its share

    @property
    def last_step(self) -> int:
        """Steps that are taken."""
        return self.steps if self.stop is None else self.stop

    def curriculum(self) -> Curriculum:
        """The mixture of problems that these settings describe."""
        return Curriculum(self.weights, self.max_length, self.ramp, self.direct, self.skew)

    def shaping(self) -> dict[str, Any]:
        """Settings that shape the result: a continued run must share them with the run that it continues."""
        return {name: value for name, value in asdict(self).items() if name not in _EXCLUDED_FROM_IDENTITY}


def training_names() -> list[str]:
    """Names of the configurations that come with the book."""
    return file_names(_FOLDER)


def load_training_config(name_or_path: str | Path, **changes: Any) -> TrainingConfig:
    """Read and check a configuration: `settings.load` of a name of `training_names`, or of a file of your own."""
    return load(TrainingConfig, _FOLDER, name_or_path, "training configuration", **changes)
