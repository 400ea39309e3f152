"""From problems to batches: prompt and reference response as ids, ordered by length, padded on the right.

The problems of a step depend on the seed and the step alone, so a run that is continued needs no record of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flashtrace_lib.tasks.example import Example
from flashtrace_lib.text.offsets import tokenise, tokens_in

from .config import TrainingConfig
from .curriculum import Curriculum, problems
from .modes import prompt_text, true_response


@dataclass(frozen=True)
class TrainingExample:
    """One problem as the model reads it.

    Parameters
    ----------
    task : str
        Table cell.
    mode : {"thinking", "direct"}
    ids : list of int, length N
        Prompt and response, end token included.
    n_prompt : int
        Tokens of the prompt, which enter no loss.
    """

    task: str
    mode: str
    ids: list[int]
    n_prompt: int

    @property
    def n_response(self) -> int:
        """Tokens of the response, end token included."""
        return len(self.ids) - self.n_prompt


@dataclass(frozen=True)
class Batch:
    """Training examples of similar length.

    Parameters
    ----------
    input_ids : torch.LongTensor, shape [B, N]
        Padded on the right. Attention is causal, so no token of a response can see the padding: no mask is needed.
    predicts : torch.BoolTensor, shape [B, N]
        True where the next token belongs to the response.
    targets : torch.LongTensor, shape [M]
        These next tokens, row by row.
    rows : torch.LongTensor, shape [M]
        Row of ``input_ids``, from 0 to B - 1, that each target belongs to.
    examples : list of TrainingExample, length B
    """

    input_ids: torch.Tensor
    predicts: torch.Tensor
    targets: torch.Tensor
    rows: torch.Tensor
    examples: list[TrainingExample]


def training_example(
    tokenizer: Any, problem: Example, mode: str, masking: random.Random | None = None
) -> TrainingExample:
    """Prompt and reference response of a problem, tokenised apart as they are in generation.

    With ``masking``, a random share of the user's tokens, from none to all, is replaced by the padding token.
    """
    rendered = prompt_text(tokenizer, problem, mode)
    prompt, spans = tokenise(tokenizer, rendered.text)
    if masking is not None:
        share = masking.random()
        for i in range(*tokens_in(spans, rendered.span)):
            prompt[i] = tokenizer.pad_token_id if masking.random() < share else prompt[i]
    response, _ = tokenise(tokenizer, true_response(problem, mode))
    return TrainingExample(problem.cell, mode, [*prompt, *response, tokenizer.eos_token_id], len(prompt))


def step_examples(tokenizer: Any, config: TrainingConfig, curriculum: Curriculum, step: int) -> list[TrainingExample]:
    """Training examples of one step, drawn until their tokens reach ``config.tokens_per_step``."""
    examples: list[TrainingExample] = []
    tokens = 0
    while tokens < config.tokens_per_step:
        key = f"{config.seed}|{step}|{len(examples)}"
        problem, mode = curriculum.draw(tokenizer, key, step / config.steps)
        masking = random.Random(f"{key}|masking")
        masking = masking if masking.random() < config.padded else None
        examples.append(training_example(tokenizer, problem, mode, masking))
        tokens += len(examples[-1].ids)
    return examples


def held_out_examples(tokenizer: Any, config: TrainingConfig) -> list[TrainingExample]:
    """Examples that training never shows, the same at every evaluation."""
    examples = []
    for task in config.eval_tasks:
        held_out = problems(task, config.eval_problems, config.seed, "eval", tokenizer, config.eval_length)
        examples += [training_example(tokenizer, problem, "thinking") for problem in held_out]
    return examples


def batches(examples: Iterable[TrainingExample], pad: int, tokens: int) -> Iterator[Batch]:
    """Examples in order of length, as many to a batch as fit into ``tokens``, padding included; one at least."""
    group: list[TrainingExample] = []
    for example in sorted(examples, key=lambda example: len(example.ids)):
        if group and len(example.ids) * (len(group) + 1) > tokens:
            yield _batch(group, pad)
            group = []
        group.append(example)
    if group:
        yield _batch(group, pad)


def _batch(examples: Sequence[TrainingExample], pad: int) -> Batch:
    longest = max(len(example.ids) for example in examples)
    ids = torch.tensor([example.ids + [pad] * (longest - len(example.ids)) for example in examples])  # [B, N]
    position = torch.arange(longest)  # [N]
    starts = torch.tensor([example.n_prompt for example in examples])[:, None]  # [B, 1]
    ends = torch.tensor([len(example.ids) for example in examples])[:, None]  # [B, 1]
    predicts = (position >= starts - 1) & (position < ends - 1)  # [B, N]
    next_ids = ids.roll(-1, dims=1)  # [B, N]
    return Batch(ids, predicts, next_ids[predicts], predicts.nonzero()[:, 0], list(examples))
