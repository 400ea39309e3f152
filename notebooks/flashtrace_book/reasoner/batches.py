"""From problems to batches: prompt and true response as ids, ordered by length, padded on the right.

The problems of a step depend on the seed and the step alone, so a run that is continued needs no record of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flashtrace_lib.tasks.example import Example
from flashtrace_lib.text.offsets import tokenise

from .config import TrainingConfig
from .curriculum import Curriculum, problems
from .modes import prompt_text, true_response


@dataclass(frozen=True)
class Lesson:
    """One problem as the model reads it.

    Parameters
    ----------
    task : str
        Table cell.
    mode : {"thinking", "direct"}
    ids : list of int, length N
        Prompt and response, end token included.
    n_prompt : int
        Tokens of the prompt: what is not learned.
    """

    task: str
    mode: str
    ids: list[int]
    n_prompt: int


@dataclass(frozen=True)
class Batch:
    """Lessons of similar length.

    Parameters
    ----------
    input_ids : torch.LongTensor, shape [B, N]
        Padded on the right. Attention is causal, so nothing that is learned can see the padding: no mask is needed.
    predicts : torch.BoolTensor, shape [B, N]
        True where the next token belongs to the response.
    targets : torch.LongTensor, shape [M]
        These next tokens, row by row.
    rows : torch.LongTensor, shape [M]
        The lesson each belongs to.
    lessons : list of Lesson, length B
    """

    input_ids: torch.Tensor
    predicts: torch.Tensor
    targets: torch.Tensor
    rows: torch.Tensor
    lessons: list[Lesson]


def lesson(tokenizer: Any, example: Example, mode: str) -> Lesson:
    """Prompt and true response, tokenised apart as they are in generation."""
    prompt, _ = tokenise(tokenizer, prompt_text(tokenizer, example, mode).text)
    response, _ = tokenise(tokenizer, true_response(example, mode))
    return Lesson(example.cell, mode, [*prompt, *response, tokenizer.eos_token_id], len(prompt))


def step_lessons(tokenizer: Any, config: TrainingConfig, curriculum: Curriculum, step: int) -> list[Lesson]:
    """Lessons of one step, drawn until their tokens reach ``config.tokens_per_step``."""
    lessons: list[Lesson] = []
    tokens = 0
    while tokens < config.tokens_per_step:
        key = f"{config.seed}|{step}|{len(lessons)}"
        lessons.append(lesson(tokenizer, *curriculum.draw(tokenizer, key, step / config.steps)))
        tokens += len(lessons[-1].ids)
    return lessons


def held_out_lessons(tokenizer: Any, config: TrainingConfig) -> list[Lesson]:
    """Lessons that the training never shows, the same at every test."""
    return [
        lesson(tokenizer, example, "thinking")
        for task in config.eval_tasks
        for example in problems(task, config.eval_problems, config.seed, "eval", tokenizer, config.eval_length)
    ]


def batches(lessons: Iterable[Lesson], pad: int, tokens: int) -> Iterator[Batch]:
    """Lessons in order of length, as many to a batch as fit into ``tokens``, padding included; one at least."""
    group: list[Lesson] = []
    for item in sorted(lessons, key=lambda item: len(item.ids)):
        if group and len(item.ids) * (len(group) + 1) > tokens:
            yield _batch(group, pad)
            group = []
        group.append(item)
    if group:
        yield _batch(group, pad)


def _batch(lessons: Sequence[Lesson], pad: int) -> Batch:
    longest = max(len(item.ids) for item in lessons)
    ids = torch.tensor([item.ids + [pad] * (longest - len(item.ids)) for item in lessons])  # [B, N]
    place = torch.arange(longest)
    starts = torch.tensor([item.n_prompt for item in lessons])[:, None]
    ends = torch.tensor([len(item.ids) for item in lessons])[:, None]
    predicts = (place >= starts - 1) & (place < ends - 1)  # [B, N]
    following = ids.roll(-1, dims=1)
    return Batch(ids, predicts, following[predicts], predicts.nonzero()[:, 0], list(lessons))
