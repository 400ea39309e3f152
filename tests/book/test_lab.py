"""A notebook that is saved in JupyterLab changes both of its halves, wherever Lab was started."""

import shutil

import pytest
from jupytext import TextFileContentsManager

from tests.environment import ROOT

NAME = "00_quickstart"
CONFIGURATION = ["pyproject.toml", "jupytext.toml", "notebooks/jupytext.toml"]  # where jupytext looks


@pytest.fixture
def checkout(tmp_path):
    """One notebook of the book, and what tells jupytext of its halves."""
    folder = tmp_path / "checkout"
    for name in [f"notebooks/{NAME}.ipynb", f"notebooks/py/{NAME}.py", *CONFIGURATION]:
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.mark.parametrize("place", [".", "notebooks"])
def test_a_notebook_saved_in_lab_changes_both_halves(checkout, place):
    halves = [checkout / "notebooks" / f"{NAME}.ipynb", checkout / "notebooks" / "py" / f"{NAME}.py"]
    lab = TextFileContentsManager(root_dir=str(checkout / place))  # what Lab opens and saves files by
    for word, half in zip(("first", "second"), halves, strict=True):
        path = half.relative_to(checkout / place).as_posix()
        model = lab.get(path, type="notebook")
        model["content"]["cells"][0]["source"] += f"\n\nThe {word} edit."
        lab.save({"type": "notebook", "content": model["content"]}, path)
        for saved in halves:
            assert f"The {word} edit." in saved.read_text(encoding="utf-8"), f"{half.name} was saved: {saved}"
    left = [p for p in checkout.rglob("*.*") if p.suffix in (".ipynb", ".py") and ".ipynb_checkpoints" not in p.parts]
    assert sorted(left) == sorted(halves)  # and no third file
