"""What chapters 06 to 08 share: bins and slopes of the length, leads, and the rollout's loss."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from flashtrace_book import reasoning


def curves(values, cells=("gsm8k",), methods=("flashtrace",), metric="mas"):
    """One row a sample and method; ``values`` maps a sample to its length and a value for each method."""
    rows = [
        {"sample": str(i), "cell": cells[i % len(cells)], "method": method, "metric": metric, "value": value,
         "n_reasoning": length, "cluster": str(i), "flagged": False}
        for i, (length, of) in enumerate(values)
        for method, value in zip(methods, of, strict=True)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_the_slope_is_that_of_a_regression_with_a_level_for_each_cell():
    rng = np.random.default_rng(0)
    lengths = rng.integers(50, 400, 14)
    values = 0.1 * lengths / 100 + np.arange(14) % 2 + 0.05 * rng.normal(size=14)
    frame = curves([(n, [v]) for n, v in zip(lengths, values, strict=True)], cells=("gsm8k", "math500"))
    row, second = reasoning.length_slopes(frame).iloc[0], np.arange(14) % 2
    design = np.column_stack([lengths / 100, 1 - second, second])
    fitted, residual, *_ = np.linalg.lstsq(design, values, rcond=None)
    error = math.sqrt(residual[0] / 11 * np.linalg.inv(design.T @ design)[0, 0])
    assert row["n"] == 14 and row["slope"] == pytest.approx(fitted[0])
    assert row["high"] - row["slope"] == pytest.approx(student.ppf(0.975, 11) * error)


def test_five_samples_have_a_slope_and_no_interval():
    row = reasoning.length_slopes(curves([(n, [n / 100 + 0.1 * (n % 3)]) for n in (100, 120, 150, 170, 200)])).iloc[0]
    assert row["slope"] > 0 and math.isnan(row["low"])


def test_each_bin_compares_with_the_best_other_method_of_that_bin():
    short, long = [(n, [0.1, 0.3, 0.2]) for n in (10, 11, 12)], [(n, [0.1, 0.2, 0.4]) for n in (90, 91, 92)]
    frame = reasoning.length_bins(curves(short + long, methods=("flashtrace", "ifr", "attnlrp")), bins=2)
    table = reasoning.lead_by_length(frame, reasoning.BASELINES)
    assert table["best other"].tolist() == ["attnlrp", "ifr"] and table["length"].tolist() == [11, 91]
    assert np.allclose(table["difference"], -0.1) and set(reasoning.by_length(frame)["n"]) == {3}


def test_leads_are_over_the_methods_that_there_are():
    frame = curves([(10, [0.1, 0.3])] * 2, methods=("flashtrace", "ifr"))
    table = reasoning.leads(frame, "flashtrace", reasoning.BASELINES)
    assert table["label"].tolist() == ["MAS on gsm8k against IFR"]
    assert table["difference"].iloc[0] == pytest.approx(-0.2)
    assert reasoning.leads(frame, "flashtrace", ("clp",)).empty


def test_the_rollouts_loss_is_counted_against_the_papers():
    values = [(10, [0.22, 0.2]), (10, [0.24, 0.2]), (10, [0.26, 0.2])]
    row = reasoning.rollout_loss(curves(values, methods=("flashtrace", "rollout"), metric="rise")).iloc[0]
    assert row["difference"] == pytest.approx(0.24 - 1.102 * 0.2) and math.isnan(row["low"]) and row["n"] == 3
