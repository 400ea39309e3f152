"""Figures, tables and paths: stamped, atomic, equal bytes for equal content."""

import dataclasses
import random
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from flashtrace_book import paths
from flashtrace_book.manifest import data_hashes, read_models, record_model
from flashtrace_book.profiles import load_profile
from flashtrace_book.run import Run, start
from flashtrace_lib import files
from flashtrace_lib.fingerprints import model_fingerprint
from flashtrace_lib.methods import METHODS


@pytest.fixture
def run(tmp_path, monkeypatch):
    for name in ("RESULTS", "FIGURES", "BUILD"):
        monkeypatch.setenv(f"FLASHTRACE_{name}_DIR", str(tmp_path / name.lower()))
    return start("smoke")


@pytest.fixture
def figure():
    fig, axis = plt.subplots(figsize=(3, 2))
    axis.plot([0, 1], [0, 1], label="ρ")
    yield fig
    plt.close(fig)


def frame():
    return pd.DataFrame(
        {"method": ["ifr", "flashtrace"], "cell": "mq_q2", "metric": "recovery", "mean": [1 / 3, 0.5],
         "low": [0.1, np.nan], "n": [10, 8]}
    )  # fmt: skip


def test_start_seeds_every_generator():
    start("smoke")
    first = (random.random(), np.random.rand(), torch.rand(1).item())
    start("smoke")
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == first
    assert random.random() != first[0]


def test_figure_is_saved_twice_with_equal_bytes_and_one_stamp(run, figure, tmp_path):
    saved = run.figure(figure, "fig2_overview", caption="Mass ρ per hop", n=7)
    assert repr(saved) == "fig2_overview.png, fig2_overview.pdf"
    assert [path.parent for path in saved] == [tmp_path / "figures" / "smoke"] * 2
    first = [path.read_bytes() for path in saved]
    run.figure(figure, "fig2_overview", caption="Mass ρ per hop", n=7)
    assert [path.read_bytes() for path in saved] == first
    assert [text.get_text() for text in figure.texts] == ["6 layers of SmolLM2-135M + adapter · n = 7 · profile smoke"]
    assert not [path for path in saved[0].parent.iterdir() if path not in saved]


def test_a_figure_of_real_records_is_not_saved_where_figures_are_committed(run, figure, tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_BUILD_DIR", str(tmp_path / "build"))
    own = run.figure(figure, "fig6_heatmap", shows_records=True)
    assert {path.parent for path in own} == {tmp_path / "figures" / "smoke"}
    section = dataclasses.replace(run.profile.reasoning, source="folder")
    real = Run(dataclasses.replace(run.profile, reasoning=section))
    assert {path.parent for path in real.figure(figure, "fig6_heatmap", shows_records=True)} == {
        tmp_path / "build" / "figures" / "smoke"
    }
    assert {path.parent for path in real.figure(figure, "fig5_mas")} == {tmp_path / "figures" / "smoke"}


def test_figure_has_150_dpi_and_its_caption(run, figure):
    png, pdf = run.figure(figure, "fig2_overview", caption="Mass ρ per hop", n=7)
    with Image.open(png) as image:
        assert (
            image.info["Description"] == "Mass ρ per hop (6 layers of SmolLM2-135M + adapter · n = 7 · profile smoke)"
        )
        assert round(image.info["dpi"][0]) == 150
        assert "Software" not in image.info
    assert b"CreationDate" not in pdf.read_bytes()


@pytest.mark.parametrize("name", ["fig2.png", "../fig2", "Fig 2", ""])
def test_name_of_a_figure_is_checked(run, figure, name):
    with pytest.raises(ValueError, match="cannot name a file"):
        run.figure(figure, name)


def test_what_shows_rise_or_mas_says_in_which_arithmetic_the_curves_are(run, figure):
    frame = pd.DataFrame({"metric": ["recovery", "rise", "mas"], "curve_dtype": [None, "bfloat16", "bfloat16"], "n": 2})
    table = run.table(frame.drop(columns="curve_dtype"), "before")
    assert "curves" not in table[1].read_text()  # nothing is known of them yet
    run.note_curves(frame)
    for name, part, said in (("a", frame, True), ("b", frame[:1], False)):
        texts = [path.read_text() for path in run.table(part.drop(columns="curve_dtype"), name)[1:]]
        assert all(("curves in bfloat16" in text) == said for text in texts)
    assert "curves in bfloat16" in run.table(frame[:1], "c", "Cost and MAS")[1].read_text()
    for caption, said in (("RISE by cell", True), ("Recovery by cell", False)):
        run.figure(figure, "fig", caption)
        assert any("curves in bfloat16" in text.get_text() for text in figure.texts) == said
    run.note_curves(pd.concat([frame, frame.assign(curve_dtype="float32")]))
    assert run.stamp(3, on_curve=True).endswith("n = 3 · curves in bfloat16 and float32 · profile smoke")


def test_table_is_stamped_in_all_three_forms(run):
    run.model_name = "other_model"
    csv, md, tex = run.table(frame(), "table1_ruler", caption="RULER & more")
    back = pd.read_csv(csv)
    assert list(back.columns) == ["method", "cell", "metric", "mean", "low", "n", "profile", "model"]
    assert set(back["profile"]) == {"smoke"} and set(back["model"]) == {"other_model"}
    assert back["mean"].tolist() == pytest.approx([1 / 3, 0.5], rel=1e-5)
    text = md.read_text()
    assert "RULER & more\n\n| method | cell | metric | mean | low | n |\n| --- |" in text
    assert "| flashtrace | mq_q2 | recovery | 0.500 | – | 8 |" in text
    assert "*other_model · n = 8–10 · profile smoke*" in text
    text = tex.read_text()
    assert r"\caption{RULER \& more (other\_model $\cdot$ n = 8--10 $\cdot$ profile smoke)}" in text
    assert r"flashtrace & mq\_q2 & recovery & 0.500 & -- & 8 \\" in text


def test_table_shows_the_wide_form_and_stores_the_long_one(run):
    wide = frame().pivot(index="method", columns=["cell", "metric"], values="mean")
    csv, md, _ = run.table(frame(), "table1_ruler", wide=wide)
    assert len(pd.read_csv(csv)) == 2
    assert md.read_text().startswith("| method | mq_q2 recovery |\n")


def test_a_pivoted_or_filtered_table_keeps_its_names_in_every_form(run):
    pivoted = frame().pivot(index="method", columns=["cell", "metric"], values="mean")
    csv, md, _ = run.table(pivoted, "pivoted")
    assert list(pd.read_csv(csv).columns) == ["method", "mq_q2 recovery", "profile", "model"]
    assert md.read_text().startswith("| method | mq_q2 recovery |\n")
    filtered = frame()[frame()["method"] == "flashtrace"]  # bare row numbers say nothing
    assert "index" not in pd.read_csv(run.table(filtered, "filtered")[0])


def test_latex_escapes_each_special_mark_once(run):
    odd = pd.DataFrame({"a_b": [r"50% & {x} \ ~ ^ # $"]})
    text = run.table(odd, "odd")[2].read_text()
    assert r"a\_b \\" in text
    assert r"50\% \& \{x\} \textbackslash{} \textasciitilde{} \textasciicircum{} \# \$ \\" in text


def test_versions_are_rounded_to_the_minor(run, capsys):
    run.versions()
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0] == "python {}.{}".format(*sys.version_info)
        and lines[-1] == "6 layers of SmolLM2-135M + adapter · profile smoke"
    )
    assert all(line.split()[1].count(".") == 1 for line in lines[:-1])


def test_store_path_and_recorded_models(run, tmp_path):
    assert run.store("ruler") == tmp_path / "results" / "smoke" / "ruler"
    record_model("smoke", "a", {"fingerprint": "1"})
    record_model("smoke", "b", {"fingerprint": "2"})
    record_model("smoke", "a", {"fingerprint": "3"})
    assert read_models("smoke") == {"a": {"fingerprint": "3"}, "b": {"fingerprint": "2"}}
    assert read_models("laptop") == {}


def test_record_model_notes_what_the_fingerprint_says(run):
    model = torch.nn.Linear(3, 2)
    run.record_model(model, "tiny")
    assert run.model_name == "tiny"
    facts = read_models("smoke")["tiny"]
    assert facts["parameters"] == 8 and facts["dtype"] == "float32"
    assert facts["fingerprint"] == model_fingerprint(model)


def test_atomic_path_keeps_the_old_file_when_the_writer_fails(tmp_path):
    path = tmp_path / "deep" / "table.csv"
    files.write_text(path, "old")
    with pytest.raises(RuntimeError), files.atomic_path(path) as temporary:
        temporary.write_text("half of the n")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["table.csv"]


def test_hash_tree_leaves_out_hidden_and_named_files(tmp_path):
    for name in ("a.txt", "results/b.txt", "c/d.txt", ".hidden/e.txt"):
        files.write_text(tmp_path / name, name)
    assert files.hash_tree(tmp_path, without=("results",)) == {
        name: files.sha256(tmp_path / name) for name in ("a.txt", "c/d.txt")
    }


def test_data_hashes_cover_real_records_where_the_profile_reads_them(tmp_path, monkeypatch):
    monkeypatch.delenv("FLASHTRACE_DATA_DIR", raising=False)
    files.write_text(tmp_path / "records.json", "[]")
    profile = load_profile("smoke")
    assert "data_dir" not in data_hashes(profile)
    object.__setattr__(profile, "data_dir", str(tmp_path))
    assert data_hashes(profile)["data_dir"] == {"records.json": files.sha256(tmp_path / "records.json")}


def test_roots_follow_the_environment_from_the_checkout(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # a notebook's working directory is not the shell's
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", "elsewhere/figures")
    assert paths.figures_dir("smoke") == files.root() / "elsewhere" / "figures" / "smoke"
    monkeypatch.delenv("FLASHTRACE_FIGURES_DIR")
    assert paths.figures_dir("smoke") == files.root() / "figures" / "smoke"
    monkeypatch.delenv("FLASHTRACE_DATA_DIR", raising=False)
    assert paths.data_dir() is None
    assert paths.data_dir("data/real") == files.root() / "data" / "real"
    monkeypatch.setenv("FLASHTRACE_DATA_DIR", str(tmp_path))
    assert paths.data_dir("data/real") == tmp_path


def test_no_checkout_is_said_clearly(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "_MARKER", "no/such/file")
    with pytest.raises(ValueError, match="no checkout of the book found"):
        files.root()
    monkeypatch.setenv("FLASHTRACE_ROOT", str(tmp_path))
    assert files.root() == tmp_path


def cut(run, **options):
    return dataclasses.replace(run, profile=dataclasses.replace(run.profile, method_options=options))


NOTE = "ReAGent: 1 run of at most 8 steps, replacements proposed by the causal model."


def test_tables_say_what_the_profile_cuts(run):
    run = cut(run, reagent={"runs": 1, "max_steps": 8}, clp={"metric": "kl"})
    table = frame().assign(method=["reagent", "flashtrace"])
    _, md, tex = (path.read_text() for path in run.table(table, "table1_ruler", caption="Quality"))
    assert md.startswith(f"Quality. {NOTE}\n") and rf"\caption{{Quality. {NOTE} (6 layers of SmolLM2" in tex
    csv, md, _ = (path.read_text() for path in run.table(frame(), "table1_ruler", caption="Quality"))
    assert md.startswith("Quality\n") and "step" not in csv + md  # neither is in the table
    wide = pd.DataFrame({"cell": ["mq_q2"], "clp": [0.5], "ifr": [0.4]})
    assert run.table(wide, "wide", caption="Wide.")[1].read_text().startswith("Wide. CLP: metric kl (default nll).\n")


def test_figures_say_what_the_profile_cuts(run, figure):
    run = cut(run, reagent={"runs": 1, "max_steps": 8})
    run.figure(figure, "fig", caption="Quality", n=7)
    assert not any("step" in text.get_text() for text in figure.texts)
    figure.axes[0].set_yticks([0.5], ["ReAGent"])
    saved = run.figure(figure, "fig", caption="Quality", n=7)
    assert [text.get_text() for text in figure.texts] == [
        f"6 layers of SmolLM2-135M + adapter · n = 7 · profile smoke\n{NOTE}"
    ]
    assert Image.open(saved[0]).info["Description"].endswith(NOTE)


def test_a_method_with_its_own_options_says_nothing_but_for_who_proposed():
    assert METHODS["ifr"]().setting() == "" and METHODS["perturbation"](max_batch_bytes=5).setting() == ""
    assert METHODS["reagent"]().setting() == "3 runs of at most 50 steps, replacements proposed by the causal model"
    said = METHODS["reagent"](proposals="roberta-base").setting()
    assert said == "3 runs of at most 50 steps, replacements proposed by the masked language model roberta-base"


def test_a_model_of_the_checkout_is_a_path_from_anywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert Path(paths.model_path("data/adapter_short")).is_absolute() and paths.model_path("embedded") == "embedded"
    assert paths.model_path("Qwen/Qwen3-8B") == "Qwen/Qwen3-8B"
