"""Records that no notebook uses are found, by what the notebooks looked up, and removed; others never are."""

import nbformat
import pytest

from flashtrace_book import cli, profiles, stale
from flashtrace_book.notebooks import read_source
from flashtrace_book.profiles import load_profile
from flashtrace_book.runner import run_book
from flashtrace_lib.files import root
from flashtrace_lib.store import Store

USES = """\
# %% tags=["parameters"]
profile = "laptop"
keys = ["a", "b"]
fails = False

# %%
import os, pathlib
from flashtrace_lib.store import Store
folder = pathlib.Path(os.environ["FLASHTRACE_RESULTS_DIR"])
store = Store(folder / profile / "numbers")
for key in keys:
    if store.get(key) is None:
        store.put(key, {"x": 1.0})
store.compact()
Store(folder / "elsewhere" / "numbers").put("other", {"x": 1})  # no store of the profile
if fails:
    raise RuntimeError("half way")
"""
BOOK = ["01_first", "02_second"]


@pytest.fixture
def book(tmp_path, monkeypatch):
    """Two notebooks with a store; returns a function that runs one of them."""
    for name in ("RESULTS", "FIGURES", "BUILD"):
        monkeypatch.setenv(f"FLASHTRACE_{name}_DIR", str(tmp_path / name.lower()))
    folder = tmp_path / "notebooks"
    (folder / "py").mkdir(parents=True)
    for name in BOOK:
        (folder / "py" / f"{name}.py").write_text(USES)
        nbformat.write(read_source(folder / "py" / f"{name}.py"), folder / f"{name}.ipynb")

    def run(name, keys, fails=False):
        return run_book("smoke", [name], folder=folder, parameters={"keys": keys, "fails": fails}).exit_code

    return run


@pytest.mark.slow  # it runs notebooks
def test_what_no_notebook_uses_is_found_and_removed(book, tmp_path, monkeypatch, capsys):
    profile, store = load_profile("smoke"), Store(tmp_path / "results" / "smoke" / "numbers")
    assert book("01", ["a", "b"]) == 0
    with pytest.raises(ValueError, match="not known which records 02_second uses: run .*--profile smoke"):
        stale.unused(profile, BOOK)
    assert book("02", ["b", "c"]) == 0
    assert stale.unused(profile, BOOK) == {}
    store.put("stray", {"x": 2.0})
    Store(tmp_path / "results" / "smoke" / "old").put("k", {"x": 2.0})  # of which nothing is used
    assert stale.unused(profile, BOOK) == {"numbers": ["stray"], "old": ["k"]}
    store.compact()
    assert book("01", ["a"]) == 0 and book("02", ["c"]) == 0  # other settings: b is used no more
    assert stale.unused(profile, BOOK) == {"numbers": ["b", "stray"], "old": ["k"]}
    assert book("02", ["b"], fails=True) == 1  # it will go on from what it has reached
    assert stale.unused(profile, BOOK) == {"numbers": ["stray"], "old": ["k"]}
    assert book("02", ["c"]) == 0
    assert stale.unused(profile, BOOK) == {"numbers": ["b", "stray"], "old": ["k"]}
    assert not list((tmp_path / "results" / "smoke" / ".using").iterdir())

    monkeypatch.setattr(stale, "find_notebooks", lambda folder, names: [tmp_path / f"{name}.ipynb" for name in BOOK])
    assert cli.main(["stale", "--profile", "smoke"]) == 1
    assert "numbers: 2 records that no notebook uses" in capsys.readouterr().out and len(store) == 4
    assert cli.main(["stale", "--profile", "smoke", "--remove"]) == 0
    assert Store(store.path).records()["key"].tolist() == ["a", "c"]
    assert not (tmp_path / "results" / "smoke" / "old.parquet").exists()
    assert cli.main(["stale", "--profile", "smoke"]) == 0 and stale.remove(profile, BOOK) == {}


def test_removal_keeps_the_other_records_as_they_are(tmp_path):
    store = Store(tmp_path / "s")
    for i, key in enumerate("abcd"):
        store.put(key, {"x": float(i), "scores": [0.1 * i, 1.0]})
        if key == "b":
            store.compact()
    before = {key: store.get(key) for key in "ad"}
    store.drop(["b", "c", "nothing"])
    assert {key: store.get(key) for key in "abcd"} == before | {"b": None, "c": None}
    assert Store(store.path).records()["key"].tolist() == ["a", "d"] and not list(store.parts.glob("*.parquet"))
    store.put("b", {"x": 1.0})
    assert store.get("b")["x"] == 1.0


def test_nothing_is_noted_outside_of_a_run(tmp_path, monkeypatch):
    monkeypatch.delenv("FLASHTRACE_USED_LOG", raising=False)
    store = Store(tmp_path / "s")
    store.put("a", {"x": 1})
    monkeypatch.setenv("FLASHTRACE_USED_LOG", str(tmp_path / "log"))
    assert store.get("b") is None and not (tmp_path / "log").exists()
    assert store.get("a") and store.get("a")
    assert (tmp_path / "log").read_text() == f"{store.path.resolve()}\ta\n"


RESULTS = root() / "data" / "results"
COMMITTED = [name for name in profiles.profile_names() if (RESULTS / name / "manifest.json").is_file()]


@pytest.mark.parametrize("name", COMMITTED)
def test_every_committed_record_is_one_that_a_notebook_uses(name, monkeypatch):
    """What fails here is mended by ``python -m flashtrace_lib book``, then ``stale --remove``, of the profile."""
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(RESULTS))
    assert stale.unused(load_profile(name)) == {}
