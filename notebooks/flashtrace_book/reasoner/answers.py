"""Greedy answers of the reasoner to held-out problems, stored batch by batch with the problem that each answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from flashtrace_lib.fingerprints import fingerprint, model_fingerprint
from flashtrace_lib.model.generate import generate
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.example import Example

from .curriculum import problems
from .modes import prompt_text

Record = dict[str, Any]


def answer_store(folder: Path | str) -> Store:
    """Store of the answers that the model with the adapter in ``folder`` gave."""
    return Store(Path(folder) / "answers")


def answer(
    examples: Sequence[Example], model: torch.nn.Module, tokenizer: Any, mode: str, max_new_tokens: int
) -> list[Record]:
    """Let the model answer problems in one batch; each answer has ``id, response, tokens, finished``."""
    texts = [prompt_text(tokenizer, example, mode).text for example in examples]
    return [
        {
            "id": example.id,
            "response": tokenizer.decode(ids, skip_special_tokens=True),
            "tokens": len(ids),
            "finished": len(ids) < max_new_tokens or ids[-1] == tokenizer.eos_token_id,
        }
        for example, ids in zip(examples, generate(model, tokenizer, texts, max_new_tokens), strict=True)
    ]


def stored_or_new(
    examples: Sequence[Example],
    model: torch.nn.Module,
    tokenizer: Any,
    settings: Record,
    origin: Record,
    store: Store | None,
) -> list[Record]:
    """Records of a batch of problems: those of the store where all are there, else new ones, which it keeps.

    Parameters
    ----------
    settings : dict
        ``model, mode, max_new_tokens``, which decide the answers: with the prompts they make the key.
    origin : dict
        ``task, seed, length, start``: the examples are the problems of this task from number ``start`` on.
    """
    key = _batch_key(settings, examples)
    keys = [f"{key}-{i}" for i in range(len(examples))]
    if store is not None:
        stored = [store.get(key) for key in keys]
        if all(record is not None for record in stored):
            return stored
    start = time.perf_counter()
    answers = answer(examples, model, tokenizer, settings["mode"], settings["max_new_tokens"])
    seconds = (time.perf_counter() - start) / len(examples)
    records = [{**settings, **origin, "index": i, "seconds": seconds, **new} for i, new in enumerate(answers)]
    if store is not None:
        for key, record in zip(keys, records, strict=True):
            store.put(key, record)
    return records


def _batch_key(settings: Record, examples: Sequence[Example]) -> str:
    return fingerprint({**settings, "prompts": [example.prompt + example.request for example in examples]})


def records_of(model: torch.nn.Module, tokenizer: Any, store: Store) -> pd.DataFrame:
    """Stored records of this model whose problems are still drawn as they were; ValueError where there are none.

    A generator that was changed since draws other problems: the answers to the old ones say nothing about them.
    """
    records = store.records()
    if len(records):
        records = records[records["model"] == model_fingerprint(model)]
    if len(records):
        batches = records.groupby(records["key"].str.rpartition("-")[0], sort=False)
        records = records[batches["key"].transform(lambda keys: _is_current(records.loc[keys.index], tokenizer))]
    if not len(records):
        command = "python -m flashtrace_book.reasoner.accuracy"
        raise ValueError(f"{store.path} holds no answers of this model: run {command} first")
    return records


def _is_current(batch: pd.DataFrame, tokenizer: Any) -> bool:
    """Whether the problems of a stored batch are those that its key was made of."""
    rows = batch.sort_values("index").to_dict("records")
    settings = {name: rows[0][name] for name in ("model", "mode", "max_new_tokens")}
    return rows[0]["key"].rpartition("-")[0] == _batch_key(settings, problems_of(rows, tokenizer))


def problems_of(records: Sequence[Record], tokenizer: Any) -> list[Example]:
    """The problem that each record answers; the records share task, seed and length."""
    first = records[0]
    indices = [record["start"] + record["index"] for record in records]
    examples = problems(first["task"], max(indices) + 1, first["seed"], "eval", tokenizer, first["length"])
    return [examples[i] for i in indices]
