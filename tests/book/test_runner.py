"""Running the book, on a trivial one in a temporary folder."""

import json
import os
import platform
import shutil
import types
from functools import partial

import nbformat
import pytest
import yaml

from flashtrace_book import cli, profiles
from flashtrace_book.notebooks import find_notebooks, kernel_environment, read_source, refresh_notebooks
from flashtrace_book.runner import promote, run_book
from flashtrace_lib import files

# It counts how often its result was computed, draws a "figure", and shows which library it would import.
GOOD = """\
# %% [markdown]
# # A trivial chapter

# %% tags=["parameters"]
profile = "laptop"
depth = 1

# %%
import importlib.util, os, pathlib
stored = pathlib.Path(os.environ["FLASHTRACE_RESULTS_DIR"], profile, "count.txt")
stored.parent.mkdir(parents=True, exist_ok=True)
if not stored.exists():
    stored.write_text(f"computed at depth {depth}")
figure = pathlib.Path(os.environ["FLASHTRACE_FIGURES_DIR"], profile, "fig1_trivial.png")
figure.parent.mkdir(parents=True, exist_ok=True)
figure.write_bytes(stored.read_bytes())

# %%
print(stored.read_text(), os.getcwd() == str(pathlib.Path.cwd()))

# %%
print(pathlib.Path(importlib.util.find_spec("flashtrace_lib").origin).parents[1])
"""
BAD = """\
# %% tags=["parameters"]
profile = "laptop"

# %%
import os
if not os.environ.get("TEST_MENDED"):
    raise RuntimeError("the well is dry")
"""


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A folder of notebooks; results, figures and executed copies go elsewhere in the same temporary folder."""
    for name in ("RESULTS", "FIGURES", "BUILD"):
        monkeypatch.setenv(f"FLASHTRACE_{name}_DIR", str(tmp_path / name.lower()))
    folder = tmp_path / "notebooks"
    (folder / "py").mkdir(parents=True)

    def add(name, source):
        half = folder / "py" / f"{name}.py"
        half.write_text(source)
        nbformat.write(read_source(half), folder / f"{name}.ipynb")

    add("02_good", GOOD)
    return types.SimpleNamespace(
        folder=folder, add=add, results=tmp_path / "results", figures=tmp_path / "figures", build=tmp_path / "build"
    )


def stream(notebook):
    """Everything a notebook has printed."""
    cells = nbformat.read(notebook, as_version=4).cells
    return "".join(o.get("text", "") for cell in cells if cell.cell_type == "code" for o in cell.outputs)


def test_a_run_says_first_what_it_takes(book, monkeypatch, capsys):
    book.add("05_ruler", GOOD)
    done = []
    monkeypatch.setattr("flashtrace_book.runner._run_all", lambda *args, **kwargs: done.append(capsys.readouterr().out))
    run_book("smoke", folder=book.folder)
    assert "core-hours" in done[0] and "05_ruler" in done[0] and "total" in done[0] and "06_math" not in done[0]


def test_book_runs_resumes_and_leaves_an_audit_trail(book):
    source = (book.folder / "02_good.ipynb").read_bytes()
    result = run_book("smoke", folder=book.folder, parameters={"depth": 3})
    assert result.exit_code == 0
    assert (book.folder / "02_good.ipynb").read_bytes() == source, "the committed notebook was touched"
    executed = stream(book.build / "executed" / "smoke" / "02_good.ipynb")
    assert "computed at depth 3 True" in executed
    assert str(files.root()) in executed, "the kernel would import another library"

    manifest = json.loads(result.manifest.read_text())
    assert result.manifest == book.results / "smoke" / "manifest.json"
    assert manifest["profile"]["name"] == "smoke"
    assert manifest["parameters"] == {"depth": 3}
    assert manifest["seed"] == manifest["profile"]["seed"]
    assert manifest["versions"]["torch"] and manifest["versions"]["python"] == platform.python_version()
    assert manifest["hardware"]["cores"]["logical"] >= 1 and manifest["hardware"]["memory_gib"] > 0
    assert set(manifest["git"]) == {"commit", "dirty"}
    assert manifest["outputs"] == {"fig1_trivial.png": files.sha256(book.figures / "smoke" / "fig1_trivial.png")}
    record = manifest["notebooks"]["02_good"]
    assert record["seconds"] > 0 and record["error"] is None and record["from_nothing"] is True
    assert record["sha256"] == files.sha256(book.folder / "02_good.ipynb")

    again = run_book("smoke", folder=book.folder, parameters={"depth": 4})
    assert "computed at depth 3 True" in stream(book.build / "executed" / "smoke" / "02_good.ipynb")
    assert json.loads(again.manifest.read_text())["notebooks"]["02_good"]["from_nothing"] is False


# It writes two tables, one of which changes with the depth.
TABLES = """\
# %% tags=["parameters"]
profile = "smoke"
depth = 1

# %%
import os, pathlib
folder = pathlib.Path(os.environ["FLASHTRACE_FIGURES_DIR"], profile)
folder.mkdir(parents=True, exist_ok=True)
(folder / "table1_ruler.csv").write_text(f"depth\\n{depth}\\n")
(folder / "table2_math.csv").write_text("depth\\n1\\n")
"""


def showing(profile, table):
    return f'# %% tags=["parameters"]\nprofile = "laptop"\n\n# %%\ntables.stored("{profile}", "{table}")\n'


def test_a_run_names_the_notebooks_that_show_tables_it_has_changed(book):
    book.add("03_tables", TABLES)
    book.add("04_shows_both", showing("smoke", "table1_ruler") + '"table2_math"\n')
    book.add("05_shows_what_stays", showing("smoke", "table2_math"))
    book.add("06_shows_another_profile", showing("real", "table1_ruler"))
    run = partial(run_book, "smoke", ["03"], folder=book.folder)
    assert run().outdated == ("04_shows_both", "05_shows_what_stays")
    assert run().outdated == ()
    assert run(parameters={"depth": 2}).outdated == ("04_shows_both",)
    shutil.rmtree(book.folder / "py")
    assert run(parameters={"depth": 3}).outdated == ()


def test_a_profile_may_name_the_notebooks_that_it_runs(book, tmp_path):
    for name in ("02_good", "03_other"):
        book.add(name, GOOD.replace(", profile,", ', "part",'))  # they are given the path of the profile's file
    data = yaml.safe_load((profiles._FOLDER / "smoke.yaml").read_text())
    (tmp_path / "part.yaml").write_text(yaml.safe_dump({**data, "name": "part", "notebooks": ["03"]}))
    result = run_book(tmp_path / "part.yaml", folder=book.folder)
    assert [(outcome.name, outcome.error) for outcome in result.outcomes] == [("03_other", None)]
    assert list(json.loads(result.manifest.read_text())["notebooks"]) == ["03_other"]
    asked = run_book(tmp_path / "part.yaml", ["02"], folder=book.folder)  # whoever asks for another one gets it
    assert [outcome.name for outcome in asked.outcomes] == ["02_good"]
    again = run_book(tmp_path / "part.yaml", folder=book.folder)  # and keeps what is known of it
    assert set(json.loads(again.manifest.read_text())["notebooks"]) == {"02_good", "03_other"}
    assert set(json.loads((again.manifest.parent / "used.json").read_text())) == {"02_good", "03_other"}


def test_failing_notebook_is_shown_and_stops_no_other(book, capsys, monkeypatch):
    book.add("01_bad", BAD)
    old = book.results / "smoke"
    old.mkdir(parents=True)
    (old / "count.txt").write_text("an old result")

    result = run_book("smoke", fresh=True, folder=book.folder)
    assert result.exit_code == 1
    assert [outcome.name for outcome in result.outcomes] == ["01_bad", "02_good"]
    assert "the well is dry" in result.outcomes[0].error and result.outcomes[1].error is None
    shown = capsys.readouterr().err
    assert "01_bad failed" in shown and "RuntimeError: the well is dry" in shown and "\x1b" not in shown
    assert (old / "count.txt").read_text() == "an old result", "a failed fresh run replaced stored results"
    unfinished = book.build / "reproduce" / "smoke"
    assert (unfinished / "count.txt").read_text() == "computed at depth 1", "the fresh run did not start from nothing"
    assert "dry" in json.loads((unfinished / "manifest.json").read_text())["notebooks"]["01_bad"]["error"]

    # The next fresh run resumes that one and, once it has succeeded, takes the old results' place.
    (unfinished / "count.txt").write_text("kept from the failed run")
    monkeypatch.setenv("TEST_MENDED", "1")
    mended = run_book("smoke", fresh=True, folder=book.folder)
    assert mended.exit_code == 0
    assert (old / "count.txt").read_text() == "kept from the failed run"
    assert mended.manifest == old / "manifest.json" and mended.manifest.is_file()
    assert not unfinished.exists()
    assert os.environ["FLASHTRACE_RESULTS_DIR"] == str(book.results)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"parameters": {"dept": 3}}, r"02_good\.ipynb has no parameter dept: it declares profile, depth"),
        ({"parameters": {"profile": "laptop"}}, "choose that one instead"),
        ({"profile": "desktop"}, "no profile 'desktop'"),
        ({"notebooks": ["03"]}, r"no notebook '03' in .*: known are 02_good"),
        ({"notebooks": ["02"], "fresh": True}, "it takes the whole book"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(book, arguments, message):
    with pytest.raises(ValueError, match=message):
        run_book(**{"profile": "smoke", **arguments}, folder=book.folder)
    assert not book.results.exists() and not book.build.exists()


def test_notebook_without_parameters_cell_is_refused(book):
    book.add("03_bare", "# %%\nprint(1)\n")
    with pytest.raises(ValueError, match=r"03_bare\.ipynb has no parameter profile: it declares none"):
        run_book("smoke", folder=book.folder)
    assert not book.build.exists()


def test_notebooks_are_found_by_name_and_number_in_reading_order(book, tmp_path):
    book.add("10_later", BAD)

    def stems(names):
        return [path.stem for path in find_notebooks(book.folder, names)]

    assert stems(None) == ["02_good", "10_later"]
    assert stems(["10", "02_good.ipynb", "10_later"]) == ["02_good", "10_later"]
    with pytest.raises(ValueError, match="no notebook .* run inside the book's checkout"):
        find_notebooks(tmp_path)


def test_refreshed_notebooks_are_equal_bytes_and_a_failing_one_is_left_alone(book, capsys):
    book.add("01_bad", BAD)
    before = (book.folder / "01_bad.ipynb").read_bytes()
    assert refresh_notebooks(folder=book.folder) == ["01_bad"]
    assert (book.folder / "01_bad.ipynb").read_bytes() == before
    assert "the well is dry" in capsys.readouterr().err
    first = (book.folder / "02_good.ipynb").read_bytes()
    assert refresh_notebooks(["02"], folder=book.folder) == []
    assert (book.folder / "02_good.ipynb").read_bytes() == first

    notebook = nbformat.read(book.folder / "02_good.ipynb", as_version=4)
    assert set(notebook.metadata) == {"kernelspec"}
    assert [cell.id for cell in notebook.cells] == [f"02_good-{index}" for index in range(5)]
    assert [dict(cell.metadata) for cell in notebook.cells] == [{}, {"tags": ["parameters"]}, {}, {}, {}]
    assert "computed at depth 1 True" in stream(book.folder / "02_good.ipynb")


def test_kernel_environment_puts_everything_back(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.delenv("TQDM_DISABLE")
    monkeypatch.delenv("MALLOC_MMAP_MAX_", raising=False)
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")  # what the user has set stays
    before = dict(os.environ)
    with kernel_environment(TQDM_DISABLE="1"):
        assert (os.environ["MALLOC_MMAP_MAX_"], os.environ["MALLOC_TOP_PAD_"]) == ("0", "1")
        own = [str(files.root()), str(files.root() / "notebooks")]
        assert os.environ["PYTHONPATH"].split(os.pathsep) == [*own, "elsewhere"]
        assert os.environ["TQDM_DISABLE"] == "1"
    assert dict(os.environ) == before


def test_promoted_folder_replaces_the_whole_of_the_old_one(tmp_path):
    new, old = tmp_path / "new", tmp_path / "kept" / "old"
    for folder, name in ((new, "b"), (old, "a")):
        folder.mkdir(parents=True)
        (folder / name).write_text(name)
    assert promote(new, old) == old
    assert [path.name for path in old.iterdir()] == ["b"]
    assert [path.name for path in old.parent.iterdir()] == ["old"] and not new.exists()


def test_manifest_keeps_notebooks_run_earlier_and_drops_those_that_are_gone(book):
    shutil.copy(book.folder / "02_good.ipynb", book.folder / "04_twin.ipynb")
    run_book("smoke", folder=book.folder)
    manifest = run_book("smoke", notebooks=["02"], folder=book.folder).manifest
    assert set(json.loads(manifest.read_text())["notebooks"]) == {"02_good", "04_twin"}
    (book.folder / "04_twin.ipynb").unlink()
    manifest = run_book("smoke", notebooks=["02"], folder=book.folder).manifest
    assert set(json.loads(manifest.read_text())["notebooks"]) == {"02_good"}


def test_command_line_shows_bad_input_as_one_line(capsys):
    assert cli.main(["book", "--profile", "desktop"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: no profile 'desktop'") and shown.count("\n") == 1
    assert cli.main(["book", "--set", "3=4"]) == 2
    assert cli.main(["notebooks", "99"]) == 2
    with pytest.raises(SystemExit) as stop:
        cli.main(["book", "--profil3", "smoke"])
    assert stop.value.code == 2


def test_command_line_hands_its_arguments_on(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr("flashtrace_lib.bench.measure.main", seen.append)
    assert cli.main(["bench", "--tokens", "64", "x"]) == 0
    assert seen == [["--tokens", "64", "x"]]

    called = {}

    def run_book(*args, **kwargs):
        called.update(args=args, **kwargs)
        outcome = types.SimpleNamespace(name="a", seconds=1.0, error="dry")
        return types.SimpleNamespace(outcomes=[outcome], exit_code=1, manifest="m", outdated=["12b_better"])

    monkeypatch.setattr("flashtrace_book.runner.run_book", run_book)
    assert cli.main(["book", "05", "--profile", "smoke", "--set", "depth=3"]) == 1
    assert "python -m flashtrace_lib notebooks 12b_better" in capsys.readouterr().out
    assert called == {"args": ("smoke", ["05"], False), "parameters": {"depth": 3}}
