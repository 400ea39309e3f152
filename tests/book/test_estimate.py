"""What a profile would cost: counted by hand, and in proportion."""

import dataclasses

import pytest

from flashtrace_book.cli import main
from flashtrace_book.efficiency.estimate import estimate, flashtrace_gib, passes, rows
from flashtrace_book.notebooks import find_notebooks, notebook_dir
from flashtrace_book.profiles import load_profile

PAPER = load_profile("paper")


def test_passes_are_those_of_the_methods():
    assert passes(PAPER, "perturbation", 1000) == 51 and passes(PAPER, "clp", 1000) == 25.5
    assert passes(PAPER, "perturbation", 199) == 200 and passes(PAPER, "clp", 200) == 5.5  # tokens below 200
    assert passes(PAPER, "reagent", 1000) == 2 * 3 * 50 and passes(PAPER, "random", 1000) == 0
    assert passes(load_profile("laptop"), "reagent", 1000) == 2 * 1 * 8


def test_each_row_names_a_notebook_and_counts_its_samples():
    known = {path.stem for path in find_notebooks(notebook_dir())}
    names = [row.notebook for row in rows(PAPER)]
    assert len(set(names)) == len(names) and {name.partition(",")[0] for name in names} <= known
    samples = {row.notebook: row.samples for row in rows(PAPER)}
    assert samples["05_ruler"] == 100 * 10 and samples["06_math"] == 2 * 100
    assert samples["09_generalisation"] == 100 * 10 and samples["09_generalisation, tasks"] == 100


def test_hours_by_hand():
    section = dataclasses.replace(PAPER.hotpotqa, long_lengths=(700,), long_methods=("random",), long_samples=3)
    row = estimate(dataclasses.replace(PAPER, hotpotqa=section), 1e9, 1e12).iloc[-1]
    assert row["notebook"] == "10_ablations, 700 tokens" and row["tokens"] == 1000 and row["passes"] == 21
    assert row["hours"] == pytest.approx(3 * 21 * 1000 * 2e9 / 1e12 / 3600)


def test_twice_the_rate_takes_half_the_time():
    slow, fast = (estimate(PAPER, 8e9, rate)["hours"].sum() for rate in (1e14, 2e14))
    assert slow == pytest.approx(2 * fast) and slow > 0


def test_memory_is_that_of_the_states_kept():
    gib = flashtrace_gib(2048, 1024, layers=30, hidden=576, kv_width=192, width=4)
    assert gib == pytest.approx((30 * 2048 * 2 * 192 + 30 * 1024 * 3 * 576) * 4 / 2**30)
    assert 0.27 < gib < 0.33  # measured, see README


def test_command_line(capsys):
    assert main(["estimate", "--profile", "paper", "--tflops", "300"]) == 0
    out = capsys.readouterr().out
    assert "05_ruler" in out and "hours at 300 TFLOP/s" in out
    with pytest.raises(SystemExit):
        main(["estimate", "--tflops", "0"])
    assert "above 0" in capsys.readouterr().err
    assert main(["estimate", "--profile", "nowhere"]) == 2
