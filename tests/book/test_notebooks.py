"""The chapters: both halves agree, each opens with its answer, and what the book made is small and in place.

That their stored outputs are still what the code gives is checked by nbval, in the same pytest call.
"""

import ast
import re

import nbformat
import pandas as pd
import papermill
import pytest

from flashtrace_book.notebooks import read_source
from tests.environment import ROOT

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def outline(notebook):
    """What a reader edits: (type, source, tags) of each cell."""
    return [(cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in notebook.cells]


def read(path):
    return nbformat.read(path, as_version=4)


def test_there_are_fifteen_chapters_and_each_has_both_halves():
    assert len(NOTEBOOKS) == 15
    assert [path.stem for path in NOTEBOOKS] == sorted(path.stem for path in (FOLDER / "py").glob("*.py"))


@each_notebook
def test_both_halves_say_the_same(path):
    name = path.stem
    assert outline(read(path)) == outline(read_source(FOLDER / "py" / f"{name}.py")), (
        f"the halves of {name} have drifted apart: edit the .py, then run `flashtrace book --write {name[:2]}`"
    )


@each_notebook
def test_notebook_is_in_the_shape_of_the_book(path):
    notebook = read(path)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}  # no widgets: GitHub would not show it
    assert len([c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]) == 1
    assert papermill.inspect_notebook(str(path))["profile"]["default"] == '"book"'
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [out for cell in code for out in cell.outputs if out.output_type == "error"]


@each_notebook
def test_a_cell_that_makes_a_table_or_a_figure_shows_it(path):
    for cell in read(path).cells:
        if cell.cell_type == "code" and re.search(r"\brun\.(table|figure)\(", cell.source):
            last = ast.parse(cell.source).body[-1]
            assert isinstance(last, (ast.Expr, ast.Assign, ast.If, ast.For)), cell.source
            if isinstance(last, ast.Expr):
                assert cell.outputs, f"nothing is shown: {cell.source}"


def box_of(path):
    lines = [line[2:] for line in read(path).cells[0].source.splitlines() if line.startswith(">")]
    return dict(re.findall(r"\*\*(\w+)\.\*\* (.*?)(?= \*\*\w+\.\*\* |$)", " ".join(lines)))


@each_notebook
def test_notebook_opens_with_a_box_whose_numbers_are_bound(path):
    box = box_of(path)
    assert list(box) == ["Question", "Answer", "n", "Figure"], "first cell: title, then the box"
    text = re.sub(r"`[^`]*`|\$[^$]*\$|K = \d", "", box["Answer"])  # names and symbols hold numbers, too
    numbers = [n.replace("−", "-") for n in re.findall(r"(?<![\w.])[−+-]?\d+\.\d+", text)]
    assert len(numbers) <= 4 and len(re.findall(r"[.!?](?:\s|$)", text)) <= 5
    bound = bindings(read(path).cells[0].source)
    for number in numbers:
        assert any(printed == number.lstrip("+") for printed, _ in bound), f"{number} of the box is bound to no cell"
    for printed, cell in bound:
        value, digits = value_of(cell), len(printed.partition(".")[2])
        assert printed in (f"{value:.{digits}f}", f"{abs(value):.{digits}f}"), f"{cell} is {value}, not {printed}"
    for name in re.findall(r"`(\w+)`", box["Figure"]):
        assert (ROOT / "figures" / f"{name}.png").is_file() or (ROOT / "figures" / f"{name}.csv").is_file(), name


def bindings(source):
    """``0.548 = table1.csv[method=flashtrace,metric=recovery].mean`` of the comment behind the box, as pairs."""
    found = re.search(r"<!-- numbers: (.*?) -->", source, re.DOTALL)
    parts = found[1].split(";") if found else []
    return [tuple(x.strip().replace("−", "-") for x in part.split("=", 1)) for part in parts if part.strip()]


def value_of(cell):
    """The number in a cell of a table: ``table.csv[column=value,…].column``."""
    name, where, column = re.fullmatch(r"(\w+)\.csv\[(.*?)\]\.([\w ]+)", cell).groups()
    frame = pd.read_csv(ROOT / "figures" / f"{name}.csv", keep_default_na=False, na_values=[""])
    for condition in where.split(","):
        key, value = condition.split("=")
        frame = frame[frame[key.strip()].astype(str) == value.strip()]
    assert len(frame) == 1, f"{cell} names {len(frame)} rows"
    return float(frame[column].iloc[0])


def test_figures_are_few_and_each_is_made_by_a_chapter():
    files = [path for path in (ROOT / "figures").rglob("*") if path.is_file()]
    assert len(files) <= 150 and {path.suffix for path in files} <= {".png", ".csv", ".md", ".json", ".svg"}
    source = "".join(path.read_text(encoding="utf-8") for path in (FOLDER / "py").glob("*.py"))
    made = {path.stem for path in files if path.suffix in (".png", ".csv")} - {"claims"}
    stale = [name for name in made if f'"{name}"' not in source and re.sub(r"_\d+$", "", name) + '"' not in source]
    assert not stale, f"no chapter makes {stale}"


@pytest.mark.parametrize("chapter", ["05_ruler", "06_math", "07_morehopqa", "08_aider", "09_generalisation"])
def test_the_controls_stand_in_every_table_of_faithfulness(chapter):
    source = (FOLDER / "py" / f"{chapter}.py").read_text(encoding="utf-8")
    files = [ROOT / "figures" / f"{name}.csv" for name in re.findall(r'"(table[1245]\w*)"', source)]
    methods = set(pd.concat([pd.read_csv(file) for file in files if file.is_file()])["method"])
    assert {"string_match", "position", "random"} <= methods
