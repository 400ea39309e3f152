"""The audit of a profile: what was tampered with, changed or lost is found, on a tiny store and a tiny book."""

import dataclasses
import json
import random
import re
from types import SimpleNamespace

import nbformat
import pandas as pd
import pyarrow.parquet as pq
import pytest

from flashtrace_book import cli, paths
from flashtrace_book.audit import audit_files, audit_notebooks, audit_profile, rebuild_samples, report
from flashtrace_book.experiments import better_flashtrace, cancellation, causal_masking, direct_answers
from flashtrace_book.experiments.code_targets import OnCode
from flashtrace_book.manifest import data_hashes
from flashtrace_book.notebooks import without_audit
from flashtrace_book.profiles import load_profile
from flashtrace_book.recompute import RECOMPUTE, Source, Subject, rebuild_method
from flashtrace_book.run import Run
from flashtrace_lib import IFR, FlashTrace, files
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.fingerprints import model_fingerprint, sample_fingerprint
from flashtrace_lib.methods import METHODS, Perturbation
from flashtrace_lib.store import Store
from tests.book.test_causal_masking import Words, causal_sample
from tests.metrics.test_ablation import haystack_sample
from tests.oracles.planted import planted_model
from tests.oracles.tiny import tiny_model, tiny_sample

BOOK = files.root() / "notebooks" / "flashtrace_book"


@pytest.fixture
def book(tmp_path, monkeypatch):
    """Results, a figure, a table and the manifest of a profile, in a folder of their own."""
    for name in ("RESULTS", "FIGURES"):
        monkeypatch.setenv(f"FLASHTRACE_{name}_DIR", str(tmp_path / name.lower()))
    profile, model = load_profile("smoke"), tiny_model()
    results, figures = paths.results_dir("smoke"), paths.figures_dir("smoke")
    samples = [tiny_sample(seed=seed) for seed in range(3)]
    store = Store(results / "ruler")
    evaluate([FlashTrace(hops=2), IFR(), Perturbation()], samples, model, store=store, steps=4, progress=False)
    store.compact()
    for name, record in (("ruler_responses", {"example": "e", "cell": "c", "ids": [3, 4], "text": "3 4"}),
                         ("rollout_cost", {"method": "rollout", "sample": "s", "seconds": [1.0, 3.0, 2.0]}),
                        ):  # fmt: skip
        other = Store(results / name)
        other.put("one", record)
        other.compact()
    figures.mkdir(parents=True)
    (figures / "fig1.png").write_bytes(b"a picture")
    pd.DataFrame([{"method": "rollout", "median": 2.0}]).to_csv(figures / "table3_seconds.csv")
    manifest = {"outputs": files.hash_tree(figures), "data": data_hashes(profile)}
    (results / "manifest.json").write_text(json.dumps(manifest))
    tokenizer = SimpleNamespace(decode=lambda ids: " ".join(map(str, ids)))
    known = {sample_fingerprint(sample): sample for sample in samples}
    return SimpleNamespace(
        profile=profile, results=results, figures=figures, known=known, model=model,
        audit=lambda k=9, samples=known, model=model: audit_profile(
            profile, model, tokenizer, k, samples=samples
        ),
        files=lambda: audit_files(profile),
    )  # fmt: skip


def failing(checks):
    return [check for check in checks if not check.agrees]


def tamper(path, change):
    """Rewrite a store's merged file with every row passed through ``change``."""
    table = pq.read_table(path)
    rows = table.to_pylist()
    for row in rows:
        change(row)
    pq.write_table(type(table).from_pylist(rows, schema=table.schema), path)


def test_what_was_left_alone_agrees(book):
    rows = [*book.files(), *book.audit()]
    assert not failing(rows)
    parts = [row.part for row in rows]
    assert parts.count("results") == 9 and parts.count("responses") == 1 and parts.count("times") == 2
    assert "results    9 of 9 checks agree" in report(rows)
    assert len([row for row in book.audit(k=2) if row.part == "results"]) == 2


def test_the_masks_beside_a_store_are_audited_with_its_samples(book):
    store, sample = Store(book.results / "ruler"), haystack_sample()
    book.known[sample_fingerprint(sample)] = sample
    evaluate([IFR()], [sample], book.model, store=store, steps=4, metrics=("lds", "drop1"), masks=9, progress=False)
    store.compact()
    (masks,) = [row for row in book.audit() if row.name == "ruler_masks: tiny-0"]
    assert masks.agrees and masks.part == "results"
    tamper(book.results / "ruler_masks.parquet", lambda row: row.update(mask_log_odds=row["mask_log_odds"][::-1]))
    # the masks themselves, and the record whose LDS they give
    assert {check.name for check in failing(book.audit(k=20))} == {"ruler_masks: tiny-0", "ruler: ifr on tiny-0"}


@pytest.mark.parametrize("column", ["scores", "log_probs", "hop_scores"])
def test_a_tampered_row_is_found(book, column):
    def change(row):
        if row["method"] == "flashtrace" and row["sample"] == "tiny-1":
            values = row[column][0] if column == "hop_scores" else row[column]
            values[1] += 0.5 * max(abs(v) for v in values)

    tamper(book.results / "ruler.parquet", change)
    found = failing(book.audit())
    assert found and {row.name for row in found} == {"ruler: flashtrace on tiny-1"}
    assert column in {row.check for row in found}
    assert "DISAGREES  results: ruler: flashtrace on tiny-1" in report(found)


def test_a_row_under_other_options_is_found(book):
    def change(row):
        if row["method"] == "flashtrace":
            row["options"] = row["options"].replace('"hops": 2', '"hops": 1')

    tamper(book.results / "ruler.parquet", change)
    found = failing(book.audit())
    assert len(found) == 3 and all("stored" in row.found for row in found)


def test_what_cannot_be_rebuilt_is_said(book):
    some = dict(list(book.known.items())[:1])
    rows = book.audit(samples=some)
    assert not failing(rows) and "6 of samples that are not built here" in report(rows)
    assert [row.check for row in failing(book.audit(samples={}))] == ["rebuilt"]
    other = tiny_model(seed=1)  # the records are of a model that nothing lists, then of one that is listed
    assert [row.check for row in failing(book.audit(model=other))] == ["rebuilt"]
    listed = {"tiny": {"fingerprint": model_fingerprint(book.model)}}
    (book.results / "models.json").write_text(json.dumps(listed))
    rows = book.audit(model=other)
    assert not failing(rows) and "9 of 9 are of another model (0 of one" in report(rows)


def test_tampered_words_and_times_are_found(book):
    tamper(book.results / "ruler_responses.parquet", lambda row: row.update(text="3 5"))
    tamper(book.results / "rollout_cost.parquet", lambda row: row.update(seconds=[1.0, -3.0, 2.0]))
    found = {row.name: row.check for row in failing(book.audit())}
    assert found == {"ruler_responses: e": "text of its tokens", "rollout_cost: rollout": "positive seconds",
                     "table3_seconds: rollout": "median of the stored runs"}  # fmt: skip


def test_a_damaged_store_and_an_unknown_one_are_found(book):
    (book.results / "ruler.parquet").write_bytes(b"PAR1 no more")
    for name in ("strange", "math"):
        other = Store(book.results / name)
        other.put("one", {"colour": "red"})
        other.compact()
    found = {row.name: row.found for row in failing(book.audit())}
    assert set(found) == {"ruler", "strange", "math"} and "damaged" in found["ruler"]
    assert found["strange"].startswith("no chapter says how to audit it") and "colour, key" in found["strange"]
    assert found["math"] == "its records have no 'model_key'"


def test_changed_lost_and_new_files_are_found(book):
    (book.figures / "fig1.png").write_bytes(b"another picture")
    (book.figures / "table3_seconds.csv").unlink()
    (book.figures / "fig2.png").write_bytes(b"not listed")
    found = {row.name: (row.stored, row.found) for row in failing(book.files())}
    assert set(found) == {"figures: fig1.png", "figures: table3_seconds.csv", "figures: fig2.png"}
    assert found["figures: table3_seconds.csv"][1] == "missing" and found["figures: fig2.png"][0] == "not listed"
    (book.results / "manifest.json").unlink()
    assert "missing" in failing(book.files())[0].found


def test_records_that_are_not_there_are_asked_for(book, tmp_path, monkeypatch):
    monkeypatch.delenv("FLASHTRACE_DATA_DIR", raising=False)  # it would come before the profile's
    real = dataclasses.replace(book.profile, data_dir=str(tmp_path / "records"))
    manifest = files.read_json(book.results / "manifest.json")
    manifest["data"]["data_dir"] = {"gsm8k/test.jsonl": "0" * 64, "math500/test.jsonl": "1" * 64}
    (book.results / "manifest.json").write_text(json.dumps(manifest))
    (asked,) = failing(audit_files(real))
    assert asked.stored == "2 files" and "FLASHTRACE_DATA_DIR" in asked.found
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "other.txt").write_text("another folder")
    assert len(failing(audit_files(real))) == 3  # two missing, one not listed


def test_nothing_stored_is_touched(book):
    before = files.hash_tree(book.results)
    book.audit()
    assert files.hash_tree(book.results) == before and paths.results_dir("smoke") == book.results


def test_the_command_line_says_so_and_exits_with_it(book, capsys):
    assert cli.main(["audit", "--profile", "smoke", "-k", "0"]) == 0
    assert "files" in capsys.readouterr().out
    (book.figures / "fig1.png").write_bytes(b"another picture")
    assert cli.main(["audit", "--profile", "smoke", "-k", "0"]) == 1
    assert "DISAGREES  files: figures: fig1.png" in capsys.readouterr().out
    assert cli.main(["audit", "--profile", "nobody", "-k", "0"]) == 2


def test_every_notebook_of_the_book_ends_in_an_audit():
    assert without_audit() == [], "these notebooks do not end in a cell tagged audit"


def test_notebooks_without_an_audit_are_listed(tmp_path):
    code, text = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
    audit = code("1 == 1", metadata={"tags": ["audit"]})
    for name, cells in (("01_good", [code("1"), audit]), ("02_bad", [audit, text("more")]), ("03_none", [code("1")]),
                        ("04_empty", [])):  # fmt: skip
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
    assert without_audit(tmp_path) == ["02_bad", "03_none", "04_empty"]
    assert [row.name for row in audit_notebooks(tmp_path)] == ["02_bad", "03_none", "04_empty"]


def test_methods_are_rebuilt_from_their_options():
    for name, kind in METHODS.items():
        assert rebuild_method(name, json.loads(json.dumps(kind().options()))).name == name
    on_code = OnCode(FlashTrace(hops=2), "last_line")
    again = rebuild_method("on_code", json.loads(json.dumps(on_code.options())))
    assert again.options() == on_code.options() and again.method.hops == 2
    assert rebuild_method("last_token", {"aggregation": "last", "hops": 2}).hops == 2
    with pytest.raises(ValueError, match="no option aggregation"):
        rebuild_method("last_token", {"aggregation": "sum"})
    with pytest.raises(ValueError, match="no method 'lime'"):
        rebuild_method("lime", {})
    with pytest.raises(ValueError, match="method reagent is of revision 2 here, the record of 1"):
        rebuild_method("reagent", {"runs": 1})


RECORDS_QUOTED = {better_flashtrace.QUESTION_STORE, direct_answers.STORE}


def test_every_store_of_responses_gives_samples():
    stored = {path.stem for path in (files.root() / "data" / "results" / "laptop").glob("*_responses.parquet")}
    sources = {source.responses for audited in RECOMPUTE.values() for source in audited.sources}
    # the examples are shown and not scored; the profile has no answers to real records beside its own
    assert (stored - {"example_responses"}) | RECORDS_QUOTED == sources


def test_every_store_of_the_book_is_audited():
    stored = {path.stem for path in (files.root() / "data" / "results").glob("*/*.parquet")}
    code = [*(files.root() / "notebooks" / "py").glob("*.py"), *BOOK.rglob("*.py")]
    opened = {name for path in code for name in re.findall(r'run\.store\("(\w+)"\)', path.read_text(encoding="utf-8"))}
    with_masks = {name.removesuffix("_masks") for name in stored | opened}  # these lie beside what they belong to
    assert len(opened) > 12 and with_masks | RECORDS_QUOTED == set(RECOMPUTE)


def test_samples_are_built_where_responses_are_stored_and_a_source_that_fails_is_told(book):
    def fail(*loaded):
        raise ValueError("no sample")

    found, lost, failing = (
        Source("ruler_responses", lambda *loaded: [tiny_sample()]),
        Source("pilot_responses", fail),  # not stored: nothing is generated
        Source("ruler_responses", fail),
    )
    built, checks = rebuild_samples([found, lost, failing], Run(book.profile), book.model, None)
    assert {source: [s.id for s in samples.values()] for source, samples in built.items()} == {found: ["tiny-0"]}
    assert checks == [("results", "ruler_responses", "samples are rebuilt", "", "no sample", False)]


# --- measurements of samples ----------------------------------------------------------------------------------

PROFILE = SimpleNamespace(hops=1, seed=0)


def audited(store, model, sample):
    """Verdicts on a store of one record for each sample."""
    known = {sample_fingerprint(sample): sample}
    subject = Subject(store, PROFILE, model, Words(), known, 3, random.Random(0))
    return [check.agrees for check in RECOMPUTE[subject.name].check(subject)]


@pytest.mark.parametrize("tampered", [False, True])
def test_a_changed_share_is_found(tmp_path, tampered):
    model, sample, store = tiny_model(), tiny_sample(), Store(tmp_path / "cancellation")
    record = cancellation.measured(model, sample, PROFILE.hops)
    record["kept"][1][0] += 0.01 * tampered
    store.put(cancellation.record_key(model_fingerprint(model), sample, PROFILE.hops), record)
    assert audited(store, model, sample) == [not tampered]
    assert audited(store, model, tiny_sample(seed=1)) == [False]  # no record of any sample at hand


@pytest.mark.parametrize("tampered", [False, True])
def test_a_changed_answer_is_found(tmp_path, tampered):
    model, sample, store = planted_model(), causal_sample(), Store(tmp_path / "open_questions_answers")
    causal_masking.causal_frame(model, Words(), [sample], FlashTrace(hops=PROFILE.hops), store, seed=PROFILE.seed)
    if tampered:
        key = causal_masking.record_key(model_fingerprint(model), sample, FlashTrace(hops=PROFILE.hops), PROFILE.seed)
        record, store = store.get(key), Store(tmp_path / "tampered" / store.path.name)
        store.put(key, {**record, "answers": ["another", *list(record["answers"])[1:]]})
    assert audited(store, model, sample) == [not tampered]
