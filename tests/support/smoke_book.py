"""A part of the book, run by profile ``smoke`` from nothing: every figure and table is there, listed and stamped."""

import json

import pandas as pd

from flashtrace_book.notebooks import find_notebooks
from flashtrace_book.runner import run_book
from flashtrace_lib import files
from tests.environment import ROOT

FIRST_OF_SECOND_PART = "06_math"  # about half of the time
WITH_THE_FIRST = ("11_metric_audit",)  # on the records of chapter 05, which it would compute again


def parts():
    """Names of the notebooks of the first part and of the second, in reading order."""
    names = [path.stem for path in find_notebooks(ROOT / "notebooks", [])]
    first = [name for name in names if name < FIRST_OF_SECOND_PART or name in WITH_THE_FIRST]
    return first, [name for name in names if name not in first]


def check_part(names, tmp_path, monkeypatch):
    """Run these notebooks with nothing stored."""
    for name in ("RESULTS", "FIGURES", "BUILD"):
        monkeypatch.setenv(f"FLASHTRACE_{name}_DIR", str(tmp_path / name.lower()))
    result = run_book("smoke", names)
    assert [(outcome.name, outcome.error) for outcome in result.outcomes] == [(name, None) for name in names]
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
        assert len(table) and set(table["profile"]) == {"smoke"}
        assert csv.with_suffix(".md").is_file() and csv.with_suffix(".tex").is_file()
