"""Accuracy of the reasoner on held-out problems: ``python -m flashtrace_book.reasoner.accuracy data/adapter``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.files import CannotWrite, write_text
from flashtrace_lib.fingerprints import model_fingerprint
from flashtrace_lib.load import DTYPES, load_model
from flashtrace_lib.metrics.intervals import mean_interval, share_interval
from flashtrace_lib.model import embedded
from flashtrace_lib.model.embedded import use_reasoner_template
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.scoring import score

from ..settings import whole_number
from . import adapter
from .answers import Record, answer, answer_store, problems_of, records_of, stored_or_new
from .curriculum import TASKS, problems
from .modes import final_answer, template_kwargs

TABLE, BASE_TABLE = "accuracy.csv", "accuracy_base.csv"  # of the model without the adapter
COLUMNS = ("task", "mode", "id", "length", "score", "correct", "finished", "tokens", "seconds", "response")


def evaluate_reasoner(
    model: torch.nn.Module,
    tokenizer: Any,
    tasks: Sequence[str] = TASKS,
    n: int = 50,
    seed: int = 0,
    mode: str = "thinking",
    *,
    length: int = 512,
    max_new_tokens: int = 384,
    batch_size: int = 10,
    store: Store | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Answer held-out problems greedily, and score the answers.

    Parameters
    ----------
    model, tokenizer
        The model with its adapter merged; the tokenizer gets the reasoner's template.
    tasks : sequence of str
        Of `curriculum.TASKS`.
    n, seed : int
        Problems per task, and the seed that they are drawn from.
    mode : {"thinking", "direct"}
    length : int
        Tokens of a RULER prompt, one of `curriculum.EVAL_LENGTHS`.
    max_new_tokens : int
        Longest response; a response that is cut there has no answer. The longest reference response takes about 330.
    batch_size : int
        Problems answered together.
    store : Store, optional
        Keeps the answers, batch by batch: an interrupted evaluation continues where it was.

    Returns
    -------
    pandas.DataFrame
        One row per problem, columns `COLUMNS`. ``score`` is the task's own, from 0 to 1; variable tracking is scored
        strictly: all variables and no other. ``correct`` is ``score == 1``.

    Raises
    ------
    ValueError
        If a task, the mode or the length is unknown, or a count is not positive.
    """
    template_kwargs(mode)  # checks the mode
    whole_number(n, "n")
    whole_number(batch_size, "batch_size")
    use_reasoner_template(tokenizer)
    settings = {"model": model_fingerprint(model), "mode": mode, "max_new_tokens": max_new_tokens}
    batches = []
    for task in tasks:
        examples = problems(task, n, seed, "eval", tokenizer, length)
        batches += [(start, examples[start : start + batch_size]) for start in range(0, n, batch_size)]
    rows = []
    for start, batch in tqdm(batches, desc=f"accuracy, {mode}", unit="batch", disable=None if progress else True):
        origin = {"task": batch[0].cell, "seed": seed, "length": length, "start": start}
        records = stored_or_new(batch, model, tokenizer, settings, origin, store)
        rows += [_row(example, record) for example, record in zip(batch, records, strict=True)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def stored_answers(model: torch.nn.Module, tokenizer: Any, store: Store) -> pd.DataFrame:
    """All stored answers of this model, scored: the frame of `evaluate_reasoner` over every stored task and mode.

    Raises
    ------
    ValueError
        If the store holds no answers of this model.
    """
    rows = []
    for _, group in records_of(model, tokenizer, store).groupby(["task", "mode", "seed", "length"], sort=False):
        records = group.to_dict("records")
        examples = problems_of(records, tokenizer)
        rows += [_row(example, record) for example, record in zip(examples, records, strict=True)]
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).drop_duplicates(["task", "mode", "id"])
    ordered = frame.astype({"task": pd.CategoricalDtype(TASKS)}).sort_values(["mode", "task", "id"])
    return frame.loc[ordered.index]  # its tasks are plain text


def audit_answers(model: torch.nn.Module, tokenizer: Any, store: Store, k: int = 3, seed: int = 0) -> pd.DataFrame:
    """Answer ``k`` stored problems again, chosen at random by ``seed``, each alone, and compare the scores.

    Scores, not words: in another batch or on another processor the greedy choice between two nearly equal tokens may
    change.

    Returns
    -------
    pandas.DataFrame
        ``task, mode, id, stored, again, agrees``; two scores from 0 to 1.

    Raises
    ------
    ValueError
        If the store holds no answers of this model.
    """
    records = records_of(model, tokenizer, store)
    rows = []
    for record in records.sample(min(k, len(records)), random_state=seed).to_dict("records"):
        [example] = problems_of([record], tokenizer)
        [new] = answer([example], model, tokenizer, record["mode"], record["max_new_tokens"])
        stored, again = _score(example, record), _score(example, new)
        shared = {"task": record["task"], "mode": record["mode"], "id": example.id}
        rows.append({**shared, "stored": stored, "again": again, "agrees": stored == again})
    return pd.DataFrame(rows)


def accuracy_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean score and share of correct answers by task and mode, each with its 95 % interval within [0, 1].

    The interval is Wilson's where every score is 0 or 1, Student's t where scores take other values.
    """
    rows = []
    for (task, mode), answers in frame.groupby(["task", "mode"], sort=False):
        row = {"task": task, "mode": mode, "n": len(answers)}
        for name in ("correct", "score"):
            values = answers[name].astype(float).to_numpy()
            low, high = _interval(values)
            row |= {name: values.mean(), f"{name}_low": low, f"{name}_high": high}
        rows.append(row | {"unfinished": int((~answers["finished"]).sum()), "tokens": answers["tokens"].mean()})
    return pd.DataFrame(rows)


def plain_table(files: Mapping[str, Path]) -> pd.DataFrame:
    """Right answers to plain reading questions: ``model, n, correct, correct_low, correct_high, tokens``.

    Parameters
    ----------
    files : mapping of str to Path
        Names of models and their tables of accuracy.
    """
    rows = [pd.read_csv(path).query("task == 'plain_questions'").assign(model=name) for name, path in files.items()]
    return pd.concat(rows, ignore_index=True)[["model", "n", "correct", "correct_low", "correct_high", "tokens"]]


def _interval(scores: np.ndarray) -> tuple[float, float]:
    if set(scores) <= {0.0, 1.0}:
        return share_interval(int(scores.sum()), len(scores))
    low, high = mean_interval(scores)
    return max(low, 0.0), min(high, 1.0)  # nan stays nan: max and min return their first


def _score(example: Example, record: Record) -> float:
    """The task's own score of a response, from 0 to 1; 0 where the response is cut or gives no answer."""
    text = final_answer(record["response"]) if record["finished"] else ""
    return score(example, text) if text else 0.0


def _row(example: Example, record: Record) -> dict[str, Any]:
    """The record and its score; the length counts for RULER alone."""
    value = _score(example, record)
    length = record["length"] if example.task == "ruler" else None
    return {**record, "length": length, "score": value, "correct": value == 1.0}


def main(argv: list[str] | None = None) -> int:
    """Evaluate an adapter, and write the result into its folder and its card; 2 for bad input or a full disk."""
    program = "python -m flashtrace_book.reasoner.accuracy"
    parser = argparse.ArgumentParser(prog=program, description=__doc__.splitlines()[0])
    parser.add_argument("adapter", type=Path, help="folder of the adapter")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), help=f"default: {' '.join(TASKS)}")
    parser.add_argument("--modes", nargs="*", default=["thinking", "direct"])
    parser.add_argument("-n", type=int, default=50, help="problems a task (default: 50)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--length", type=int, default=512, help="tokens of a RULER prompt (default: 512)")
    parser.add_argument("--batch-size", type=int, default=10)
    parser.add_argument("--base", action="store_true", help="measure the model without the adapter, beside it")
    parser.add_argument("--dtype", default="float32", choices=DTYPES, help="of the weights (default: float32)")
    arguments = parser.parse_args(argv)
    try:
        device = "cuda" if torch.cuda.is_available() else None
        model, tokenizer = load_model("embedded-base", dtype=arguments.dtype, device_map=device)
        if not arguments.base:
            embedded.merge_adapter(model, arguments.adapter)
        store = answer_store(arguments.adapter)
        for mode in arguments.modes:
            problem_set = (arguments.tasks, arguments.n, arguments.seed, mode)
            options = {"length": arguments.length, "batch_size": arguments.batch_size}
            evaluate_reasoner(model, tokenizer, *problem_set, **options, store=store)
        store.compact()
        frame = stored_answers(model, tokenizer, store)  # earlier calls' answers as well
        table = accuracy_table(frame).assign(dtype=arguments.dtype)
        name = BASE_TABLE if arguments.base else TABLE
        write_text(arguments.adapter / name, table.round(4).to_csv(index=False))
        if not arguments.base:
            adapter.write_accuracy(arguments.adapter, table)
    except (ValueError, CannotWrite) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table.round(3).to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
