"""Accuracy of the reasoner on held-out problems: ``python -m flashtrace_book.reasoner.accuracy data/adapter``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.files import write_text
from flashtrace_lib.fingerprints import fingerprint, model_fingerprint
from flashtrace_lib.load import DTYPES, load_model
from flashtrace_lib.metrics.intervals import mean_interval, share_interval
from flashtrace_lib.model import embedded
from flashtrace_lib.model.embedded import use_reasoner_template
from flashtrace_lib.model.generate import generate
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.scoring import score

from . import adapter
from .curriculum import TASKS, problems
from .modes import final_answer, prompt_text, template_kwargs

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
    """Greedy answers to held-out problems, scored.

    Parameters
    ----------
    model, tokenizer
        The model with its adapter merged; the tokenizer gets the reasoner's template.
    tasks : sequence of str
        Of `curriculum.TASKS`.
    n : int
        Problems a task.
    seed : int
        Of the problems.
    mode : {"thinking", "direct"}
    length : int
        Tokens of a RULER prompt, one of `curriculum.EVAL_LENGTHS`.
    max_new_tokens : int
        Longest response; a response that is cut there has no answer. The longest true one takes about 330.
    batch_size : int
        Problems answered together.
    store : Store, optional
        Where answers are kept, batch by batch: an interrupted evaluation goes on where it was.
    progress : bool
        Show a progress bar.

    Returns
    -------
    pandas.DataFrame
        One row a problem, columns `COLUMNS`. ``score`` is the task's own, from 0 to 1; variable tracking is scored
        strictly: all variables and no other. ``correct`` is ``score == 1``.

    Raises
    ------
    ValueError
        If a task, the mode or the length is unknown, or a count is not positive.
    """
    template_kwargs(mode)  # checks the mode
    for name, value in (("n", n), ("batch_size", batch_size)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    use_reasoner_template(tokenizer)
    identity = model_fingerprint(model)
    rows = []
    blocks = [
        (start, examples[start : start + batch_size])
        for examples in (problems(task, n, seed, "eval", tokenizer, length) for task in tasks)
        for start in range(0, n, batch_size)
    ]
    for start, block in tqdm(blocks, desc=f"accuracy, {mode}", unit="batch", disable=None if progress else True):
        asked = {"model": identity, "mode": mode, "max_new_tokens": max_new_tokens}
        key = fingerprint({**asked, "prompts": [e.prompt + e.request for e in block]})
        asked |= {"task": block[0].cell, "seed": seed, "length": length}
        answers = _answers(key, {**asked, "start": start}, block, model, tokenizer, store)
        rows += [_row(e, mode, length, answer) for e, answer in zip(block, answers, strict=True)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def stored_answers(model: torch.nn.Module, tokenizer: Any, store: Store) -> pd.DataFrame:
    """All stored answers of this model, scored: the frame of `evaluate_reasoner` over every task and mode there is.

    Raises
    ------
    ValueError
        If the store holds no answers of this model.
    """
    rows, asked = [], ["task", "mode", "seed", "length"]
    for (task, mode, seed, length), group in _mine(model, store).groupby(asked, sort=False):
        examples = problems(task, int((group["start"] + group["index"]).max()) + 1, int(seed), "eval", tokenizer,
                            int(length))  # fmt: skip
        for record in group.to_dict("records"):
            rows.append(_row(examples[int(record["start"] + record["index"])], mode, int(length), record))
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).drop_duplicates(["task", "mode", "id"])
    place = {task: i for i, task in enumerate(TASKS)}
    return frame.sort_values(["mode", "task", "id"], key=lambda c: c.map(place) if c.name == "task" else c)


def _mine(model: torch.nn.Module, store: Store) -> pd.DataFrame:
    """Stored records of this model; ValueError where there are none."""
    records = store.records()
    mine = records[records["model"] == model_fingerprint(model)] if len(records) else records
    if not len(mine):
        command = "python -m flashtrace_book.reasoner.accuracy"
        raise ValueError(f"{store.path} holds no answers of this model: run {command} first")
    return mine


def audit_answers(model: torch.nn.Module, tokenizer: Any, store: Store, k: int = 3, seed: int = 0) -> pd.DataFrame:
    """Answer ``k`` stored problems again, chosen at random, each alone, and compare the verdicts.

    Verdicts, not words: in another batch or on another processor the greedy choice between two nearly equal tokens may
    fall otherwise.

    Parameters
    ----------
    model, tokenizer
        As given to `evaluate_reasoner`.
    store : Store
        Filled by it.
    k : int
        Problems, at most as many as are stored.
    seed : int
        Chooses them.

    Returns
    -------
    pandas.DataFrame
        ``task, mode, id, stored, again, agrees``; two scores from 0 to 1.

    Raises
    ------
    ValueError
        If the store holds no answers of this model.
    """
    mine = _mine(model, store)
    rows = []
    for record in mine.sample(min(k, len(mine)), random_state=seed).to_dict("records"):
        task, mode, index = record["task"], record["mode"], int(record["start"]) + int(record["index"])
        example = problems(task, index + 1, int(record["seed"]), "eval", tokenizer, int(record["length"]))[index]
        limit = int(record["max_new_tokens"])
        again = _answer(example, generate(model, tokenizer, [prompt_text(tokenizer, example, mode).text], limit)[0],
                        tokenizer, limit)  # fmt: skip
        old, new = _score(example, record), _score(example, again)
        rows.append({"task": task, "mode": mode, "id": example.id, "stored": old, "again": new, "agrees": old == new})
    return pd.DataFrame(rows)


def answer_store(folder: Path | str) -> Store:
    """Where the answers of the model with the adapter in ``folder`` are kept."""
    return Store(Path(folder) / "answers")


def accuracy_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean score and share of correct answers by task and mode, each with its 95 % interval within [0, 1].

    Wilson's of what is right or wrong and no more, Student's t of scores that take other values.
    """
    rows = []
    for (task, mode), part in frame.groupby(["task", "mode"], sort=False):
        row = {"task": task, "mode": mode, "n": len(part)}
        for name in ("correct", "score"):
            values = part[name].astype(float).to_numpy()
            low, high = _interval(values)
            row |= {name: values.mean(), f"{name}_low": low, f"{name}_high": high}
        rows.append(row | {"unfinished": int((~part["finished"]).sum()), "tokens": part["tokens"].mean()})
    return pd.DataFrame(rows)


def _interval(scores: np.ndarray) -> tuple[float, float]:
    if set(scores) <= {0.0, 1.0}:
        return share_interval(int(scores.sum()), len(scores))
    low, high = mean_interval(scores)
    return max(low, 0.0), min(high, 1.0)  # nan stays nan: max and min return their first


def _answers(
    key: str, asked: dict[str, Any], block: Sequence[Example], model: torch.nn.Module, tokenizer: Any,
    store: Store | None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Stored or new responses of a block."""
    keys = [f"{key}-{i}" for i in range(len(block))]
    stored = [None if store is None else store.get(k) for k in keys]
    if all(record is not None for record in stored):
        return stored
    start, limit = time.perf_counter(), asked["max_new_tokens"]
    texts = [prompt_text(tokenizer, example, asked["mode"]).text for example in block]
    generated = generate(model, tokenizer, texts, limit)
    seconds = (time.perf_counter() - start) / len(block)
    answers = [
        {**asked, "index": i, "seconds": seconds, **_answer(example, ids, tokenizer, limit)}
        for i, (example, ids) in enumerate(zip(block, generated, strict=True))
    ]
    for k, answer in zip(keys, answers, strict=True):
        if store is not None:
            store.put(k, answer)
    return answers


def _answer(example: Example, ids: list[int], tokenizer: Any, limit: int) -> dict[str, Any]:
    """What is kept of a response."""
    return {
        "id": example.id,
        "response": tokenizer.decode(ids, skip_special_tokens=True),
        "tokens": len(ids),
        "finished": len(ids) < limit or ids[-1] == tokenizer.eos_token_id,
    }


def _score(example: Example, answer: dict[str, Any]) -> float:
    """The task's own score of a response, from 0 to 1; 0 where it did not come to its end."""
    said = final_answer(answer["response"]) if answer["finished"] else ""
    return score(example, said) if said else 0.0


def _row(example: Example, mode: str, length: int, answer: dict[str, Any]) -> dict[str, Any]:
    value = _score(example, answer)
    kept = {name: answer[name] for name in ("finished", "tokens", "seconds", "response")}
    asked = length if example.task == "ruler" else None
    return {"task": example.cell, "mode": mode, "id": example.id, "length": asked, "score": value,
            "correct": value == 1.0, **kept}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Evaluate an adapter, and write the result into its folder and its card; exit code 2 for bad input."""
    program = "python -m flashtrace_book.reasoner.accuracy"
    parser = argparse.ArgumentParser(prog=program, description=__doc__.splitlines()[0])
    parser.add_argument("adapter", type=Path, help="folder of the adapter")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), help=f"default: {' '.join(TASKS)}")
    parser.add_argument("--modes", nargs="*", default=["thinking", "direct"])
    parser.add_argument("-n", type=int, default=50, help="problems a task (default: 50)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--length", type=int, default=512, help="tokens of a RULER prompt (default: 512)")
    parser.add_argument("--batch-size", type=int, default=10)
    parser.add_argument("--dtype", default="float32", choices=DTYPES, help="of the weights (default: float32)")
    arguments = parser.parse_args(argv)
    try:
        device = "cuda" if torch.cuda.is_available() else None
        model, tokenizer = load_model("embedded-base", dtype=arguments.dtype, device_map=device)
        embedded.merge_adapter(model, arguments.adapter)
        store = answer_store(arguments.adapter)
        for mode in arguments.modes:
            evaluate_reasoner(
                model, tokenizer, arguments.tasks, arguments.n, arguments.seed, mode,
                length=arguments.length, batch_size=arguments.batch_size, store=store,
            )  # fmt: skip
        store.compact()
        frame = stored_answers(model, tokenizer, store)  # what earlier calls measured as well
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    table = accuracy_table(frame).assign(dtype=arguments.dtype)
    write_text(arguments.adapter / "accuracy.csv", table.round(4).to_csv(index=False))
    adapter.write_accuracy(arguments.adapter, table)
    print(table.round(3).to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
