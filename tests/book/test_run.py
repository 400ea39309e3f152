"""Figures, tables and claims of a run: equal bytes for equal content, six digits, nothing half written."""

import io

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from flashtrace_book import paths
from flashtrace_book.run import Run, start


@pytest.fixture
def run(tmp_path, monkeypatch):
    for name in ("RESULTS", "FIGURES", "BUILD"):
        monkeypatch.setenv(f"FLASHTRACE_{name}_DIR", str(tmp_path / name.lower()))
    return start("book")


@pytest.fixture
def figure():
    fig, axes = plt.subplots(figsize=(3, 2))
    axes.plot([0, 1], [0, 1])
    yield fig
    plt.close(fig)


def test_figure_has_equal_bytes_each_time_one_stamp_and_its_caption(run, figure, tmp_path):
    saved = run.figure(figure, "fig2_overview", "Mass per hop", stamp="n = 7")
    first = saved[0].read_bytes()
    run.figure(figure, "fig2_overview", "Mass per hop", stamp="n = 7")
    assert saved[0].read_bytes() == first and saved[0] == tmp_path / "figures" / "fig2_overview.png"
    assert [text.get_text() for text in figure.texts] == ["n = 7"]
    with Image.open(saved[0]) as image:
        assert image.info["Description"] == "Mass per hop" and "Software" not in image.info
    assert not list(tmp_path.rglob("*.pdf"))
    (told := PngInfo()).add_text("Description", "Mass per hop")
    for step in (1, 2):  # what another processor rounds otherwise stays as it is, what differs by more does not
        pixels = np.array(Image.open(io.BytesIO(first)))
        pixels[0, 0, 0] -= step
        Image.fromarray(pixels).save(saved[0], pnginfo=told)
        run.figure(figure, "fig2_overview", "Mass per hop", stamp="n = 7")
        assert (saved[0].read_bytes() == first) == (step == 2)
    saved[0].write_bytes(first[:99])  # cut short
    assert run.figure(figure, "fig2_overview", "Mass per hop", stamp="n = 7")[0].read_bytes() == first


def test_table_is_drawn_from_what_the_file_keeps(run, tmp_path):
    frame = pd.DataFrame({"method": ["ifr", "none"], "mean": [1 / 3, np.nan], "n": [10, 3]})
    shown = run.table(frame, "table1", "Caption")
    assert (tmp_path / "figures" / "table1.csv").read_text() == "method,mean,n\nifr,0.333333,10\nnone,,3\n"
    assert shown.frame["mean"].tolist() == pytest.approx([0.333333, np.nan], nan_ok=True, abs=0)
    assert "0.333" in shown._repr_html_() and "Caption" in shown._repr_html_()
    assert "none" in shown.frame["method"].tolist()
    run.table(pd.DataFrame({"a": [1]}))
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["table1.csv"]


def test_all_formats_go_to_build(run, figure, tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_FORMATS", "all")
    run.table(pd.DataFrame({"a_b": [r"50% & {x}"]}), "t", "A & b")
    run.figure(figure, "f", "c")
    assert {path.name for path in (tmp_path / "build" / "figures").iterdir()} == {"t.md", "t.tex", "f.pdf"}
    assert r"a\_b \\" in (tmp_path / "build" / "figures" / "t.tex").read_text()


def test_live_numbers_within_the_tolerance_leave_the_files_alone(run, figure):
    numbers = pd.DataFrame({"token": ["a", "b"], "score": [0.5, 1.0]})
    first = run.figure(figure, "live", "c", live=numbers)
    before = [path.read_bytes() for path in first]
    figure.axes[0].plot([0, 1], [1, 0])
    run.figure(figure, "live", "c", live=numbers.assign(score=[0.5004, 1.0]))
    assert [path.read_bytes() for path in first] == before
    run.figure(figure, "live", "c", live=numbers.assign(score=[0.51, 1.0]))
    assert all(path.read_bytes() != old for path, old in zip(first, before, strict=True))


@pytest.mark.parametrize("name", ["fig2.png", "../fig2", "Fig 2", ""])
def test_name_of_a_figure_is_checked(run, figure, name):
    with pytest.raises(ValueError, match="cannot name a file"):
        run.figure(figure, name, "c")


def test_only_the_book_writes_where_results_are_committed(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_BUILD_DIR", str(tmp_path / "build"))
    assert tmp_path / "build" in paths.results_file("smoke", "ruler").parents
    assert tmp_path / "build" in paths.figures_dir("smoke").parents
    with pytest.raises(ValueError, match="no model 'gpt'"):
        Run(start("smoke").profile).load_model("gpt")
