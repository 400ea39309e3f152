"""The data sets of records by name, a line each: what `task_examples` may be asked for."""

from collections.abc import Callable
from dataclasses import dataclass

from .example import Example
from .record_files import Record
from .records import exercise_example, gsm8k_example, hotpotqa_example, math500_example, morehopqa_example


@dataclass(frozen=True)
class Task:
    """A data set: how a record becomes an example, and where its records come from.

    Parameters
    ----------
    example : callable
        (record, name) -> `Example`.
    files : tuple of str
        Names under which a folder may hold the data set; the first that is there is read.
    hub : str, optional
        Repository in which it lies on the hub.
    config, split : str
        Arguments of ``datasets.load_dataset``.
    hub_file : str, optional
        A file to download instead, where the repository's loading script is gone.
    clone : str
        Address of a repository that a folder may be a clone of, if there is one; `read_exercises` reads it.
    """

    example: Callable[[Record, str], Example]
    files: tuple[str, ...] = ()
    hub: str | None = None
    config: str | None = None
    split: str = "test"
    hub_file: str | None = None
    clone: str = ""


_HOTPOTQA = tuple(
    f"hotpotqa/{name}.json" for name in ("validation_hub_format", "train_original_format", "hotpot_dev_distractor_v1")
)
_MOREHOPQA = "with_human_verification.json"
TASKS: dict[str, Task] = {
    "math500": Task(math500_example, ("math500/test.jsonl",), "HuggingFaceH4/MATH-500"),
    "gsm8k": Task(gsm8k_example, ("gsm8k/test.jsonl",), "openai/gsm8k", "main"),
    "morehopqa": Task(
        morehopqa_example, (f"morehopqa/{_MOREHOPQA}",), "alabnii/morehopqa", hub_file=f"data/{_MOREHOPQA}"
    ),
    "hotpotqa": Task(hotpotqa_example, _HOTPOTQA, "hotpotqa/hotpot_qa", "distractor", "validation"),
    "exercism": Task(
        exercise_example, ("exercism_python/exercises.jsonl",), clone="https://github.com/exercism/python"
    ),
}
