"""Add methods to the samples that a file of results holds: ``python -m scripts.extend_results ruler --methods gim``.

The answers are kept, nothing is generated.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from flashtrace_book import paths
from flashtrace_book.experiments.groups import Group, group_examples, method_named, model_of
from flashtrace_book.export import method_rows
from flashtrace_book.profile import Profile, load_profile, read
from flashtrace_book.results import METHOD, SAMPLE, rebuilt_sample, write_rows
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.fingerprints import sample_fingerprint
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import prompt_settings
from flashtrace_lib.text.build_sample import build_sample


def extend(
    profile: Profile, name: str, labels: Sequence[str], cells: Iterable[str] = (), model: str = "reasoner"
) -> int:
    """Add the rankings of methods to the results called ``name``; returns how many rows are new.

    LDS needs no further pass: the ablations of a sample that are stored serve the new methods as well. A run that was
    interrupted goes on.

    Parameters
    ----------
    labels : sequence of str
        Of ``METHODS`` or of the profile's ``methods``.
    cells : iterable of str
        Default: all of the model's.

    Raises
    ------
    ValueError
        If a sample that is made anew is not the one that is stored.
    """
    rows, samples, (network, tokenizer) = _opened(profile, name, cells, model)
    store = Store(paths.working_store(profile.name, f"{name}_more"))
    methods = {label: method_named(profile, label, tokenizer) for label in labels}
    evaluate(methods, samples, network, store=store, steps=profile.steps, metrics=("recovery",))
    known = {(row["sample_key"], row["method"]) for row in rows if row["part"] == METHOD}
    masks = {row["sample_key"]: row["masks_key"] for row in rows if row["part"] == METHOD and row.get("masks_key")}
    found = [row for row in method_rows(store.records(), pd.DataFrame(), samples)
             if row["method"] in labels and (row["sample_key"], row["method"]) not in known]  # fmt: skip
    for row in found:
        row["masks_key"] = masks.get(row["sample_key"])
    if found:
        write_rows(rows + found, paths.results_file(profile.name, name))
    return len(found)


def _opened(
    profile: Profile, name: str, cells: Iterable[str], model: str
) -> tuple[list[dict[str, Any]], list[Sample], tuple[Any, Any]]:
    """All rows of a file, the samples of a model's cells (of all where none is named), the model and its tokenizer."""
    path = paths.results_file(profile.name, name)
    rows = [{k: v for k, v in row.items() if v is not None} for row in pq.read_table(path).to_pylist()]
    own = [row for row in rows if row["part"] == SAMPLE and row["model"] == model]
    own, loaded = [row for row in own if not cells or row["cell"] in set(cells)], model_of(profile, model)
    made = {} if all("input_ids" in row for row in own) else _prompts(profile, name, model, loaded[1])
    samples = [_sample(row, made, loaded[1]) for row in own]
    return [_arrays(row) for row in rows], samples, loaded


def _arrays(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it is written: scores as float32, which a list would not keep."""
    if row.get("hop_scores") is not None:
        row = row | {"hop_scores": [np.asarray(hop, np.float32) for hop in row["hop_scores"]]}
    return row if row.get("scores") is None else row | {"scores": np.asarray(row["scores"], np.float32)}


def _prompts(profile: Profile, name: str, model: str, tokenizer: Any) -> dict[str, Any]:
    """Examples of the groups of RULER by id: their prompts quote essays, and are not stored."""
    groups = [read(Group, data, name) for data in profile.results[name].get("groups", ())]
    found = {}
    for group in groups:
        if group.model == model and group.task == "ruler":
            for examples in group_examples(profile, group, tokenizer).values():
                # one needle has no example to show: older ids of its samples do not say that there is none
                found |= {example.id.replace("-noshot", ""): example for example in examples}
    return found


def _sample(row: dict[str, Any], made: dict[str, Any], tokenizer: Any) -> Sample:
    """The stored sample, with its ids and tokens."""
    if row.get("input_ids") is None:
        example = made.get(row["sample"].replace("-noshot", ""))
        if example is None:
            raise ValueError(f"sample {row['sample']} quotes an essay and is not of RULER: make the results anew")
        built = build_sample(tokenizer, example.prompt, row["response_ids"], **prompt_settings(tokenizer, example))
        row = row | {"input_ids": built.input_ids.tolist(), "tokens": built.tokens}
    sample = rebuilt_sample(row)
    if sample_fingerprint(sample) != row["sample_key"]:
        raise ValueError(f"sample {row['sample']} made anew is not the stored one: restore the code that made it")
    return sample


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m scripts.extend_results", description=__doc__.splitlines()[0])
    parser.add_argument("name", help="of the results, such as ruler")
    parser.add_argument("--methods", nargs="+", required=True, metavar="LABEL")
    parser.add_argument("--cells", nargs="*", default=[], metavar="CELL", help="default: all of the model's")
    parser.add_argument("--model", default="reasoner")
    parser.add_argument("--profile", default=paths.BOOK)
    given = parser.parse_args(argv)
    n = extend(load_profile(given.profile), given.name, given.methods, given.cells, given.model)
    print(f"{n} rows are new")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
