"""Rows of results: written, read, and turned into metrics, samples and attributions again."""

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from transformers import LlamaForCausalLM

from flashtrace_book import paths
from flashtrace_book.experiments.groups import random_draws
from flashtrace_book.export import cell_row, method_rows, sample_row
from flashtrace_book.profile import load_profile
from flashtrace_book.results import METRICS, Results, rebuilt_sample, write_rows
from flashtrace_lib import FlashTrace, Sample, Segments
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.fingerprints import sample_fingerprint
from flashtrace_lib.methods import IFR, StringMatch
from flashtrace_lib.metrics import DeletionCurve, Scorer
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import Collection
from scripts.extend_results import extend
from tests.oracles.tiny import CONFIGS

FILES = [name for name in load_profile(paths.BOOK).results]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A file of results of a tiny model, with the samples and the frame that it was made of."""
    torch.manual_seed(0)
    model, samples = LlamaForCausalLM(CONFIGS["llama"]).eval(), []
    for i in range(3):
        ids, gold = torch.randint(3, 60, (30,)), torch.zeros(30, dtype=torch.bool)
        gold[4 + i : 8 + i] = True
        samples.append(
            Sample(ids, Segments((2, 16), (17, 22), (23, 28)), gold=gold,
                   sentences=[(2, 8), (8, 16), (17, 22), (23, 28)], tokens=[str(int(x)) for x in ids], mask_token_id=0,
                   metadata={"id": f"s{i}", "task": "t", "cell": "c", "response": "generated", "score": float(i < 2)})
        )  # fmt: skip
    folder = tmp_path_factory.mktemp("results")
    store = Store(folder / "work")
    methods = {"flashtrace": FlashTrace(hops=1), "ifr": IFR(), "string_match": StringMatch()} | random_draws(
        ["random"], 3
    )
    frame = evaluate(model, methods, samples, store=store, metrics=METRICS, steps=4, masks=6, progress=False)
    store.compact()
    masks = Store(folder / "work_masks").records()
    rows = [cell_row("c", Collection(samples, {"tried": 5, "correct": 2}), "m")]
    rows += [sample_row(sample, "m", "c", shown=i != 2) for i, sample in enumerate(samples)]
    write_rows(rows + method_rows(store.records(), masks, samples), folder / "out.parquet")
    return Results.read(folder / "out.parquet"), samples, frame


def test_metrics_of_stored_rows_are_those_that_were_measured(made):
    results, _, frame = made
    back, own = results.frame(), frame[~frame["method"].str.startswith("random")]
    both = own.merge(back, on=["sample", "method", "metric"], suffixes=("", "_back"))
    assert len(both) == len(own) and both["value"].notna().all()
    assert np.allclose(both["value"], both["value_back"], atol=2e-5)  # the working store keeps float32
    assert set(back["model"]) == {"m"} and set(back["answers"]) == {"own"}


def test_a_random_ranking_is_one_row_of_expectations_and_means(made):
    results, samples, frame = made
    random = results.frame(methods=["random"])
    assert set(random["metric"]) == set(METRICS)
    recovery = random[random["metric"] == "recovery"]
    assert recovery["value"].tolist() == pytest.approx([1 / 14] * 3)  # one token of fourteen is the top tenth
    lds = frame[frame["method"].str.startswith("random") & (frame["metric"] == "lds")].groupby("sample")["value"].mean()
    assert random[random["metric"] == "lds"].set_index("sample")["value"].to_dict() == pytest.approx(lds.to_dict())
    assert results.part("method").query("method == 'random'")["scores"].isna().all()


def test_samples_and_attributions_come_back(made):
    results, samples, _ = made
    rows = results.samples().to_dict("records")
    assert [sample_fingerprint(rebuilt_sample(row)) for row in rows[:2]] == [row["sample_key"] for row in rows[:2]]
    hidden = rebuilt_sample(rows[2])  # its text may not be stored: the spans are there, the ids are not
    assert not hidden.input_ids.any() and hidden.segments == samples[2].segments
    assert rows[2].get("tokens") is None and list(rows[2]["response_ids"]) == samples[2].input_ids[17:].tolist()
    back, attributions = results.attributions("flashtrace")
    assert len(back) == 3 and len(attributions[0].hops) == 2 and attributions[0].scores.dtype == torch.float32
    assert attributions[0].hops[0].scores.sum().item() == pytest.approx(1, abs=1e-5)


def test_where_chooses_samples(made):
    results, _, _ = made
    assert set(results.frame(["recovery"], ["ifr"], right=True)["sample"]) == {"s0", "s1"}
    assert results.frame(["recovery"], ["ifr"], model="other").empty
    assert results.counts().iloc[0][["tried", "correct", "kept", "kept right", "|I|"]].tolist() == [5, 2, 3, 2, 14]
    empty = Results(results.parts | {"cell": results.part("cell").assign(cell="empty")}).counts().iloc[0]
    assert empty[["tried", "kept"]].tolist() == [5, 0] and pd.isna(empty["|I|"])


def test_writing_twice_gives_equal_bytes(made, tmp_path):
    rows = [{"part": "cost", "method": "ifr", "seconds": 1.5}, {"part": "cost", "method": "x", "seconds": float("nan")}]
    for name in ("a", "b"):
        write_rows(rows, tmp_path / f"{name}.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    seconds = Results.read(tmp_path / "a.parquet").part("cost")["seconds"].tolist()
    assert seconds == pytest.approx([1.5, np.nan], nan_ok=True)


def test_a_method_is_added_to_stored_samples_once_and_as_it_was(tmp_path, monkeypatch):
    path, profile = tmp_path / "ruler.parquet", load_profile(paths.BOOK)
    rows = pq.read_table(paths.results_file(paths.BOOK, "ruler")).to_pylist()
    keys = [row["sample_key"] for row in rows if row["part"] == "sample" and row["cell"] == "h2_c3"][:2]
    rows = [row for row in rows if row["sample_key"] in keys and row["method"] in (None, "string_match", "position")]
    whole = {(row["method"], row["sample_key"]): row for row in rows if row["part"] == "method"}
    write_rows([row for row in rows if row["method"] != "string_match"], path)
    monkeypatch.setattr(paths, "results_file", lambda *_: path)
    monkeypatch.setattr(paths, "working_store", lambda *_: tmp_path / "store")
    assert [extend(profile, "ruler", ["string_match"]) for _ in range(2)] == [2, 0]
    rows = [row for row in pq.read_table(path).to_pylist() if row["part"] == "method"]
    again = {(row["method"], row["sample_key"]): row for row in rows}
    assert set(again) == set(whole)
    for place, row in again.items():
        assert np.allclose(row["scores"], whole[place]["scores"]) and row["masks_key"] == whole[place]["masks_key"]


def test_curves_are_added_to_stored_rankings(tmp_path, monkeypatch):
    path, profile = tmp_path / "ruler.parquet", load_profile(paths.BOOK)
    rows = pq.read_table(paths.results_file(paths.BOOK, "ruler")).to_pylist()
    keys = [row["sample_key"] for row in rows if row["part"] == "sample" and row["cell"] == "h2_c3"][-2:]
    write_rows([r for r in rows if r["sample_key"] in keys and r["method"] in (None, "position", "ifr")], path)
    monkeypatch.setattr(paths, "results_file", lambda *_: path)
    monkeypatch.setattr(paths, "working_store", lambda *_: tmp_path / "store")
    zeros, share = torch.zeros(21), torch.linspace(0, 1, 21)
    curve = DeletionCurve(zeros, share, zeros, 0, "bfloat16", evaluated=[0])
    monkeypatch.setattr(Scorer, "curve", lambda *_: curve)
    monkeypatch.setattr(IFR, "attribute", None)  # nothing is attributed again
    how = {"samples": 1, "curves": True, "tolerance": 0.01}
    assert [extend(profile, "ruler", ["position", "ifr"], **how) for _ in range(2)] == [2, 0]
    rows = [row for row in pq.read_table(path).to_pylist() if row["part"] == "method"]
    assert sorted(row["evaluated"] or [] for row in rows) == [[], [], [0], [0]] and len({r["key"] for r in rows}) == 4


@pytest.mark.parametrize("name", FILES)
def test_stored_results_are_whole_and_quote_no_essay(name):
    results = Results.read(paths.results_file(paths.BOOK, name))
    samples, methods = results.part("sample"), results.part("method")
    if samples.empty:
        return
    essays = samples[samples["sample"].str.contains("-essay")]
    if len(essays):
        assert essays["input_ids"].isna().all() and essays["tokens"].isna().all()
    assert set(methods["sample_key"]) <= set(samples["sample_key"])
    assert methods["key"].is_unique
    whole = samples[samples["input_ids"].notna()] if "input_ids" in samples else samples.head(0)
    for row in whole.sample(min(4, len(whole)), random_state=0).to_dict("records"):
        assert sample_fingerprint(rebuilt_sample(row)) == row["sample_key"], row["sample"]


def test_the_data_stay_small():
    stored = [path for path in (paths.results_file(paths.BOOK, "ruler").parent).glob("*") if path.is_file()]
    assert {path.stem for path in stored} == set(FILES)
    assert sum(path.stat().st_size for path in stored) < 34e6
    assert all(json.loads(text) for text in Results.read(stored[0]).part("cell").get("counts", pd.Series(dtype=str)))
