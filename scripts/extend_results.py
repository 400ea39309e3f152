"""Add to a file of results what its samples lack: ``python -m scripts.extend_results ruler --methods gim``.

The answers are kept, nothing is generated; with ``--group`` the groups of the profile are made whose cells the file
has not. An interrupted run goes on.
"""

import argparse
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from tqdm import tqdm

from flashtrace_book import paths
from flashtrace_book.experiments import grid, groups, hints
from flashtrace_book.experiments.facts import fact_examples
from flashtrace_book.export import method_rows
from flashtrace_book.profile import Profile, load_profile, read
from flashtrace_book.results import CELL, CURVE, MASKS, METHOD, SAMPLE, rebuilt_sample, write_rows
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.evaluation.ablations import masks_beside
from flashtrace_lib.evaluation.recorder import record_key
from flashtrace_lib.fingerprints import sample_fingerprint
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import prompt_settings
from flashtrace_lib.text.build_sample import build_sample

Row = dict[str, Any]


def extend(
    profile: Profile,
    name: str,
    labels: Sequence[str],
    *,
    cells: Iterable[str] = (),
    model: str = "reasoner",
    samples: int = 10_000,
    masks: int = 0,
    curves: bool = False,
    tolerance: float = 0.0,
) -> int:
    """Measure methods on samples of the results called ``name``; returns how many rows are new or hold more.

    Parameters
    ----------
    labels : sequence of str
        Of ``METHODS`` or of the profile's ``methods``.
    cells : iterable of str
        Default: all of the model's.
    samples : int
        The first ones of each cell.
    masks : int
        Random ablations of a sample for LDS, where it has none; 0 for none that are new.
    curves : bool
        Deletion curves, of ``tolerance`` (`evaluate`), where a row has none.

    Raises
    ------
    ValueError
        If a sample that is made anew is not the one that is stored.
    """
    rows, kept, (network, tokenizer) = _opened(profile, name, cells, model)
    kept, store = groups.first_of_cells(kept, samples), Store(paths.working_store(profile.name, f"{name}_more"))
    drawn = [label for label in labels if label.startswith("random")]
    methods = {label: groups.method_named(profile, label, tokenizer) for label in labels if label not in drawn}
    known = {(row["sample_key"], row["method"]): row for row in rows if row["part"] == METHOD}
    for row in rows:
        if row["part"] == MASKS:
            masks_beside(store).cached(row["key"], lambda row=row: row | {"masks_note": ""})
    metrics = (("lds",) if masks else ()) + (CURVE if curves else ()) or ("recovery",)
    scorer = Scorer(network, precision="auto")
    dtype = next((row[c] for row in rows for c in ("curve_dtype", "masks_dtype") if row.get(c)), None)
    if dtype and scorer.is_open:  # a CPU without bfloat16 arithmetic has float32 alone, which each row says
        scorer.use(dtype, f"{dtype}: as the stored ones")
    for sample in tqdm(kept, desc=name):
        todo = dict(methods)
        for label, method in methods.items():
            if row := known.get((sample_fingerprint(sample), label)):
                if (row.get("log_probs") is not None or not curves) and (row.get("masks_key") or not masks):
                    del todo[label]
                    continue
                key = record_key(row["model_key"], row["sample_key"], method, row["steps"], "auto", tolerance)
                store.cached(key, lambda row=row: row | {"curve_note": "stored"})
        if drawn and not known.get((sample_fingerprint(sample), drawn[0]), {}).get("masks_key"):
            todo |= groups.random_draws(drawn, 20 if masks else 1)
        if todo:
            how = {"store": store, "steps": profile.steps, "metrics": metrics, "tolerance": tolerance}
            evaluate(network, todo, [sample], **how, masks=masks or 64, scorer=scorer, progress=False)
    found = method_rows(store.records(), masks_beside(store).records(), kept)
    rows = _rows(paths.results_file(profile.name, name))  # another process may have added to it
    known = {(row["sample_key"], row["method"]): row for row in rows if row["part"] == METHOD}
    shared = {row["sample_key"]: row["masks_key"] for row in rows if row["part"] == METHOD and row.get("masks_key")}
    new, more = [], {}
    for row in found:
        if row["part"] == MASKS or row["method"] not in labels:
            new += [row] if row["part"] == MASKS and row["key"] not in {r.get("key") for r in rows} else []
            continue
        old = known.get((row["sample_key"], row["method"]), {})
        row["masks_key"] = row.get("masks_key") or shared.get(row["sample_key"])
        if not old or any(row.get(part) is not None and old.get(part) is None for part in ("log_probs", "masks_key")):
            more[row["sample_key"], row["method"]] = row
    if more:
        kept_rows = [r for r in rows if (r.get("sample_key"), r.get("method")) not in more or r["part"] != METHOD]
        write_rows([*kept_rows, *more.values(), *new], paths.results_file(profile.name, name))
    return len(more)


def add_groups(profile: Profile, name: str) -> int:
    """Make the groups of a section whose cells the results have not; returns how many rows are new."""
    path, section = paths.results_file(profile.name, name), profile.results[name]["groups"]
    rows = _rows(path)
    have = {(row["model"], row["cell"]) for row in rows if row["part"] == CELL}
    lacking = []
    for data in section:
        group = read(groups.Group, data, name)
        cells = [group.name.format(cell=cell) for cell in group.cells or (group.task,)]
        lacking += [data] if any((group.model, cell) not in have for cell in cells) else []
    new = groups.make(profile, name, lacking)
    write_rows(_rows(path) + new, path)
    return len(new)


def _rows(path: Any) -> list[Row]:
    """All rows of a file, as they are written: scores as float32, which a list would not keep."""
    return [
        _arrays({k: v for k, v in row.items() if v is not None}) for row in pq.read_table(path).to_pylist()
    ]  # fmt: skip


def _opened(
    profile: Profile, name: str, cells: Iterable[str], model: str
) -> tuple[list[Row], list[Sample], tuple[Any, Any]]:
    """All rows of a file, the samples of a model's cells (of all where none is named), the model and its tokenizer."""
    rows = _rows(paths.results_file(profile.name, name))
    own = [row for row in rows if row["part"] == SAMPLE and row["model"] == model]
    own, loaded = [row for row in own if not cells or row["cell"] in set(cells)], groups.model_of(profile, model)
    made = {} if all("input_ids" in row for row in own) else _examples(profile, name, model, loaded[1])
    return rows, [_sample(row, made, loaded[1]) for row in own], loaded


def _arrays(row: Row) -> Row:
    if row.get("hop_scores") is not None:
        row = row | {"hop_scores": [np.asarray(hop, np.float32) for hop in row["hop_scores"]]}
    return row if row.get("scores") is None else row | {"scores": np.asarray(row["scores"], np.float32)}


def _examples(profile: Profile, name: str, model: str, tokenizer: Any) -> dict[tuple[str, str], Any]:
    """Examples by cell and id whose prompts quote essays, which are not stored, each with how it was asked."""
    found, section = {}, profile.results[name]
    for data in section.get("groups", ()):
        group = read(groups.Group, data, name)
        if group.model == model and group.task == groups.RULER:
            for cell, examples in groups.group_examples(profile, group, tokenizer).items():
                # one needle has no example to show: older ids of its samples do not say that there is none
                named = group.name.format(cell=cell)
                found |= {(named, e.id.replace("-noshot", "")): (e, group.mode) for e in examples}
    if "grid" in section:
        asked = read(grid.Grid, section["grid"], name)
        how = {"length": asked.length, "seed": profile.seed + asked.seed}
        for mode, k, chain in product(asked.modes, asked.off_path, asked.chains):
            examples = fact_examples(tokenizer, asked.tries, mode, k, chain=chain, **how)
            found |= {(e.cell, e.id): (e, None) for e in examples}
    if "hints" in section:
        asked = read(hints.Hints, section["hints"], name)
        for i in range(asked.tries):
            examples = hints.hint_examples(tokenizer, i, length=asked.length, seed=profile.seed + asked.seed)
            found |= {(e.cell, e.id): (e, asked.mode) for e in examples.values()}
    return found


def _sample(row: Row, made: dict[tuple[str, str], Any], tokenizer: Any) -> Sample:
    """The stored sample, with its ids and tokens."""
    if row.get("input_ids") is None:
        example, mode = made.get((row["cell"], row["sample"].replace("-noshot", "")), (None, None))
        if example is None:
            raise ValueError(f"sample {row['sample']} quotes an essay, and no task makes it: make the results anew")
        settings = prompt_settings(tokenizer, example, mode)
        built = build_sample(tokenizer, example.prompt, row["response_ids"], **settings)
        row = row | {"input_ids": built.input_ids.tolist(), "tokens": built.tokens}
    sample = rebuilt_sample(row)
    if sample_fingerprint(sample) != row["sample_key"]:
        raise ValueError(f"sample {row['sample']} made anew is not the stored one: restore the code that made it")
    return sample


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m scripts.extend_results", description=__doc__.splitlines()[0])
    parser.add_argument("name", help="of the results, such as ruler")
    parser.add_argument("--group", action="store_true", help="make the groups whose cells the file has not")
    parser.add_argument("--methods", nargs="+", default=[], metavar="LABEL")
    parser.add_argument("--cells", nargs="*", default=[], metavar="CELL", help="default: all of the model's")
    parser.add_argument("--model", default="reasoner")
    parser.add_argument("--samples", type=int, default=10_000, help="the first ones of each cell (default: all)")
    parser.add_argument("--masks", type=int, default=0, help="random ablations for LDS (default: none)")
    parser.add_argument("--curves", action="store_true", help="deletion curves")
    parser.add_argument("--tolerance", type=float, default=0.0, help="of a curve's area (default: all steps)")
    parser.add_argument("--profile", default=paths.BOOK)
    given = vars(parser.parse_args(argv))
    profile, name, group = load_profile(given.pop("profile")), given.pop("name"), given.pop("group")
    n = add_groups(profile, name) if group else extend(profile, name, given.pop("methods"), **given)
    print(f"{n} rows are new or hold more")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
