"""The notebooks of the book: both halves agree, and the whole runs from nothing.

That their stored outputs are still what the code gives is checked by nbval, in the same pytest call.
"""

import json
import re
from pathlib import Path

import nbformat
import pandas as pd
import papermill
import pytest

from flashtrace_book.notebooks import read_source
from flashtrace_book.runner import run_book
from flashtrace_lib import files
from tests.environment import ROOT

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


PRIVATE_WORDS = (  # the field has a standard term for each
    "by lot", "into its mouth", "rests? on", "told from", "told apart", "stand-?ins?", "hand-made", "made by hand",
    "turned round", "from nothing", "thinking marks", "walks? back", "contestants?", "sweepers?", "goes with",
    "pass a (?:hop|unit|token)", "step a token", "(?:samples|runs|steps) a (?:cell|point|bin|token)",
)  # fmt: skip


def outline(notebook):
    """What a reader edits: (type, source, tags) of each cell."""
    return [(cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in notebook.cells]


def read(path):
    return nbformat.read(path, as_version=4)


def text_of(output):
    """Everything that an output prints, tags of HTML left out."""
    shown = [text for kind, text in output.get("data", {}).items() if kind.startswith("text/")]
    return " ".join(re.sub(r"<[^>]+>", " ", text) for text in [output.get("text", ""), *shown])


def tagged(notebook, tag):
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def test_the_book_has_notebooks_and_each_has_both_halves():
    assert NOTEBOOKS
    assert [path.stem for path in NOTEBOOKS] == sorted(path.stem for path in (FOLDER / "py").glob("*.py"))


@each_notebook
def test_both_halves_say_the_same(path):
    name = path.stem
    assert outline(read(path)) == outline(read_source(FOLDER / "py" / f"{name}.py")), (
        f"the halves of {name} have drifted apart: edit the .py, then run `python -m flashtrace_lib notebooks {name}`"
    )


@each_notebook
def test_notebook_is_in_the_shape_of_the_book(path):
    notebook = read(path)
    assert set(notebook.metadata) == {"kernelspec"}  # in particular no widgets: GitHub would not show the notebook
    assert len(tagged(notebook, "parameters")) == 1
    assert papermill.inspect_notebook(str(path))["profile"]["default"] == '"laptop"'
    audits = tagged(notebook, "audit")
    assert audits and audits[-1] is notebook.cells[-1], "a notebook ends with its audit"
    assert all(cell.cell_type == "code" for cell in audits)


@each_notebook
def test_notebook_opens_with_a_box_whose_numbers_and_figures_are_its_own(path):
    notebook = read(path)
    lines = [line[2:] for line in notebook.cells[0].source.splitlines() if line.startswith(">")]
    box = dict(re.findall(r"\*\*(\w+)\.\*\* (.*?)(?= \*\*\w+\.\*\* |$)", " ".join(lines)))
    assert list(box) == ["Question", "Answer", "n", "Figure"], "first cell: title, then the box"
    printed = " ".join(text_of(out) for cell in notebook.cells for out in cell.get("outputs", ()))
    text = re.sub(r"`[^`]*`", "", box["Answer"] + box["n"])  # names hold numbers, too
    stale = [n for n in re.findall(r"\d+\.\d+|n = \d+|\d+ of \d+|\d+%", text) if n not in printed]
    assert not stale, f"no output holds {stale}: write the box again from the outputs"
    assert not [name for name in re.findall(r"`(\w+)`", box["Figure"]) if f"{name}.png" not in printed]


@each_notebook
def test_prose_of_a_notebook_has_no_private_words(path):
    prose = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    assert not re.findall(rf"\b(?:{'|'.join(PRIVATE_WORDS)})\b", prose, re.I)


@each_notebook
def test_notebook_carries_the_outputs_of_one_clean_run(path):
    code = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any(cell.outputs for cell in code)
    assert not [out for cell in code for out in cell.outputs if out.output_type == "error"]


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.stem != "13_claims"], ids=lambda path: path.stem)
def test_tables_of_a_page_can_be_taken_in(path):
    """At most 12 rows and 8 columns of values; the list of all claims is a page of its own."""
    for cell in read(path).cells:
        for output in cell.get("outputs", []):
            for table in re.findall(r"<table.*?</table>", output.get("data", {}).get("text/html", ""), re.DOTALL):
                rows = [row.count("<td") for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL) if "<td" in row]
                assert len(rows) <= 12 and max(rows) <= 8, cell.source


def test_nbval_collects_the_notebooks_and_nothing_else(pytestconfig):
    assert pytestconfig.getini("testpaths") == ["tests", "notebooks"]
    assert pytestconfig.option.nbval and Path(pytestconfig.option.nbval_sanitize_with).is_file()
    # Executed copies stand under build/, outside the test paths; anything below notebooks/ would be collected.
    assert sorted(FOLDER.rglob("*.ipynb")) == NOTEBOOKS


@pytest.mark.slow
def test_the_book_runs_from_nothing(tmp_path, monkeypatch):
    for name in ("RESULTS", "FIGURES", "BUILD"):
        monkeypatch.setenv(f"FLASHTRACE_{name}_DIR", str(tmp_path / name.lower()))
    result = run_book("smoke")
    assert [(outcome.name, outcome.error) for outcome in result.outcomes] == [(p.stem, None) for p in NOTEBOOKS]
    assert result.exit_code == 0

    figures = tmp_path / "figures" / "smoke"
    manifest = json.loads(result.manifest.read_text())
    assert manifest["outputs"] == files.hash_tree(figures) and manifest["outputs"]
    assert manifest["models"] and all(facts["fingerprint"] for facts in manifest["models"].values())
    assert {record["from_nothing"] for record in manifest["notebooks"].values()} == {True}
    for png in figures.glob("*.png"):
        assert png.stat().st_size > 5000 and png.with_suffix(".pdf").is_file()
    tables = list(figures.glob("*.csv"))
    assert tables and list(figures.glob("*.png"))
    for csv in tables:
        table = pd.read_csv(csv)
        may_be_empty = csv.stem == "questions_candidates"  # where no choice helps, none is combined
        assert set(table["profile"]) == {"smoke"} or (may_be_empty and table.empty)
        assert csv.with_suffix(".md").is_file() and csv.with_suffix(".tex").is_file()
