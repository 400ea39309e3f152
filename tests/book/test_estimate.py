"""What a profile would cost: counted by hand, and in proportion."""

import dataclasses

import pytest
import torch

from flashtrace_book.cli import main
from flashtrace_book.efficiency import core_hours as hours
from flashtrace_book.efficiency.estimate import Row, curve_passes, estimate, flashtrace_gib, passes, rows, sample_passes
from flashtrace_book.notebooks import find_notebooks, notebook_dir
from flashtrace_book.profiles import EvaluationProfile, load_profile

PAPER = load_profile("paper")


def test_passes_are_those_of_the_methods():
    assert passes(PAPER, "perturbation", 1000) == 51 and passes(PAPER, "clp", 1000) == 25.5
    assert passes(PAPER, "perturbation", 199) == 200 and passes(PAPER, "clp", 200) == 5.5  # tokens below 200
    assert passes(PAPER, "suppression", 1000, 200) == 61
    assert passes(PAPER, "reagent", 1000) == 2 * 3 * 50 and passes(PAPER, "random", 1000) == 0
    assert passes(load_profile("laptop"), "reagent", 1000) == 2 * 1 * 8
    assert passes(PAPER, "contextcite", 1000) == passes(PAPER, "contextcite", 100) == 32


def test_each_row_names_a_notebook_and_counts_its_samples():
    known = {path.stem for path in find_notebooks(notebook_dir())}
    names = [row.notebook for row in rows(PAPER)]
    assert len(set(names)) == len(names) and {name.partition(",")[0] for name in names} <= known
    samples = {row.notebook: row.samples for row in rows(PAPER)}
    assert samples["05_ruler"] == 100 * 10 and samples["06_math, GSM8K"] == 100
    assert samples["09_generalisation"] == 100 * 10 and samples["09_generalisation, tasks"] == 100


def test_hours_by_hand():
    section = dataclasses.replace(PAPER.hotpotqa, long_lengths=(700,), long_methods=("random",), long_samples=3)
    profile = dataclasses.replace(PAPER, hotpotqa=section, methods=("rollout", "random"))
    table = estimate(profile, 1e9, 1e12).set_index("notebook")
    ranked, curves = (table.loc[f"10b_longer_contexts, 700 tokens{part}"] for part in ("", ", curves"))
    assert ranked["tokens"] == curves["tokens"] == 1000 and (ranked["passes"], curves["passes"]) == (2, 21)
    assert ranked["hours"] == pytest.approx(3 * 2 * 1000 * 2e9 / 1e12 / 3600)
    assert curves["hours"] == pytest.approx(3 * 21 * 1000 * 2e9 / 1e12 / 3600)


def test_curves_share_their_ends():
    assert curve_passes(("ifr", "flashtrace", "random"), 20) == 3 * 19 + 2  # as metrics.Scorer counts
    assert curve_passes(("ifr",), 0) == curve_passes((), 20) == 0
    row = Row("05_ruler", 7, 1000, 300, ("attnlrp", "random"), curve_steps=20, contexts=64)
    assert sample_passes(PAPER, row) == 3 + 0 + 2 * 19 + 2 + 64


def test_each_kind_of_metric_has_its_own_samples():
    evaluation = EvaluationProfile(mask_samples=8, masks=64, curve_samples=6, few_methods=("cage",), few_samples=1)
    ruler = dataclasses.replace(PAPER.ruler, samples=16)
    profile = dataclasses.replace(PAPER, methods=("ifr", "random"), evaluation=evaluation, ruler=ruler, steps=20)
    found = {row.notebook: (row.samples, sample_passes(profile, row)) for row in rows(profile)}
    assert found["05_ruler"] == (160, 1.2)
    assert found["05_ruler, curves"] == (60, 7 * 19 + 2)  # one method, three draws of tokens, three of sentences
    assert found["05_ruler, masks"] == (80, 64 + 2 + 6 * 7)
    assert found["05_ruler, few"] == (10, 1.2 + 6)
    assert found["05_ruler, few curves"] == (10, 19 + 2)


def test_a_task_has_attributions_of_all_samples_and_curves_of_some():
    few = dataclasses.replace(PAPER.evaluation, curve_samples=6, curves={"exercism": 2})
    profile = dataclasses.replace(PAPER, evaluation=few, steps=20)
    found = {row.notebook: (row.samples, sample_passes(profile, row)) for row in rows(profile)}
    assert found["08_aider"] == (100, 4 * 1.2) and found["08_aider, curves"] == (2, 4 * 19 + 2)
    assert found["06_math, MATH-500"][0] == 100 and found["06_math, MATH-500, curves"][0] == 6


def test_the_second_model_has_masks_and_cells_asked_step_by_step():
    settings = {"step_by_step": ("mq_q2", "mv_v2"), "step_curves": 1, "ruler_samples": 5}
    settings |= {"mask_samples": 2, "curve_samples": 3}
    second = dataclasses.replace(PAPER.generalisation, tasks=("gsm8k",), **settings)
    found = {row.notebook: row for row in rows(dataclasses.replace(PAPER, generalisation=second))}
    assert found["09_generalisation, step by step"].samples == 10
    assert found["09_generalisation, step by step, curves"].samples == 2
    assert found["09_generalisation, masks"].samples == 2 * 11 and found["09_generalisation, masks"].contexts == 66


def test_core_hours_by_hand():
    """One chapter, samples of one size: operations of its tokens through so many parameters, on one core."""
    one = dataclasses.replace(PAPER, methods=("random",), model="some/Model-2B", steps=20)
    table = hours.core_hours(one, 1e10, ["05_ruler"])
    passes = (100 * 10 + 66) * (6 * 19 + 2 + 66 + 6 * 6)  # HotpotQA's prompts have the same length
    assert list(table["chapter"]) == ["05_ruler"] and table["passes"][0] == passes
    assert table["core_hours"][0] == pytest.approx(passes * (1024 + 300) * 2 * 2e9 / 1e10 / 3600)


def test_a_chapter_of_another_model_counts_its_size():
    small = dataclasses.replace(PAPER, generalisation=dataclasses.replace(PAPER.generalisation, model="x/Small-1B"))
    before, after = (hours.core_hours(p).set_index("chapter")["core_hours"] for p in (PAPER, small))
    assert before["09_generalisation"] == pytest.approx(8 * after["09_generalisation"])
    assert before.drop("09_generalisation").equals(after.drop("09_generalisation"))


def test_parameters_by_name():
    assert hours.parameters_of("embedded") == 134.5e6 and hours.parameters_of("Qwen/Qwen3-8B") == 8e9
    assert hours.parameters_of("SmolLM2-135M-Instruct") == 135e6 and hours.parameters_of("some/folder") is None
    assert hours.parameters_of("data/adapter") == 134.5e6


def test_forecast_has_a_line_a_chapter_and_their_sum(monkeypatch):
    monkeypatch.setattr(hours, "measured_rate", lambda: 5e10)
    laptop = load_profile("laptop")
    head, *lines = hours.forecast(laptop)
    assert "profile laptop, from scratch, at 50 GFLOP/s a core (measured now)" in head
    table = hours.core_hours(laptop, 5e10)
    assert [line.split()[0] for line in lines] == [*table["chapter"], "total"]
    numbers = [float(line.split()[-2]) for line in lines]
    assert sum(numbers[:-1]) == pytest.approx(numbers[-1], abs=0.05) and numbers[-1] > 0
    assert [line.split()[0] for line in hours.forecast(laptop, ["06_math"])[1:]] == ["06_math", "total"]
    assert hours.forecast(laptop, ["13_claims"]) == []
    assert "(the default)" in hours.forecast(load_profile("smoke"))[0]
    unknown = dataclasses.replace(laptop, model="some/folder")
    assert "size of its model is not known" in hours.forecast(unknown, rate=1e10)[-1]


def test_measured_rate_counts_operations_and_leaves_the_seed(monkeypatch):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    ticks = iter([0.0, 4.0, 10.0, 12.0])
    monkeypatch.setattr(hours.time, "process_time", lambda: next(ticks))
    rate = hours.measured_rate(runs=2)
    layer = 2 * 576**2 + 2 * 576 * 192 + 3 * 576 * 1536 + 2 * 576  # q and o, k and v, MLP, norms
    assert rate == pytest.approx(2 * (2 * layer + 576 + 2 * 64 * 576) * 512 / 2.0)
    assert torch.equal(torch.rand(2), expected)


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
