"""The numbers transcribed from the paper: complete, in agreement with each other, and read with care."""

import math
import re

import pytest

from flashtrace_book.paper_numbers import NIAH_CELLS, PAPER, TEXT, VT_CELLS, paper_value, read_paper_numbers, text_value

TABLE_1_METHODS = ("perturbation", "reagent", "clp", "ifr", "attnlrp", "flashtrace")


def test_table_1_is_complete():
    cells = (*NIAH_CELLS, *VT_CELLS, "hotpotqa")
    keys = {(m, c, k) for m in TABLE_1_METHODS for c in cells for k in ("recovery", "rise", "mas")}
    assert set(PAPER[1]) == keys and len(cells) == 11
    assert all(0 < value < 1 for value in PAPER[1].values())


@pytest.mark.parametrize("table", [2, 3, 4, 5, 7, 8, 9, 10])
def test_other_tables_are_full_grids(table):
    methods, cells, metrics = (set(part) for part in zip(*PAPER[table], strict=True))
    assert set(PAPER[table]) == {(m, c, k) for m in methods for c in cells for k in metrics}
    fractions = [v for (_, _, metric), v in PAPER[table].items() if metric in ("recovery", "rise", "mas")]
    assert all(0 < value < 1 for value in fractions)


def test_the_tables_agree_with_each_other():
    # One experiment, several tables: Table 2, 3 and 7 hold the same MoreHopQA runs, Table 1 and 10 the same HotpotQA.
    for metric in ("rise", "mas"):
        same = {paper_value(2, "flashtrace", "morehopqa", metric), paper_value(3, "flashtrace", "morehopqa", metric)}
        assert same == {paper_value(7, "flashtrace_k1", "morehopqa", metric)}
    for metric in ("recovery", "rise", "mas"):
        assert paper_value(1, "flashtrace", "hotpotqa", metric) == paper_value(10, "flashtrace", "hotpotqa", metric)
    # Numbers of the text that follow from tables.
    saved = 1 - paper_value(3, "flashtrace", "morehopqa", "seconds") / paper_value(3, "rollout", "morehopqa", "seconds")
    assert text_value("rollout_time_saved") == pytest.approx(saved, abs=5e-4)
    for metric in ("rise", "mas"):
        loss = paper_value(3, "flashtrace", "morehopqa", metric) / paper_value(3, "rollout", "morehopqa", metric) - 1
        assert text_value(f"rollout_{metric}_loss") == pytest.approx(loss, abs=2e-3)
    memory = [paper_value(9, mode, "qwen3_4b_2048", "peak_gib") for mode in ("recompute", "cached")]
    assert text_value("memory_saved") == pytest.approx(1 - memory[0] / memory[1], abs=5e-3)
    seconds = [paper_value(9, mode, "qwen3_4b_2048", "seconds") for mode in ("recompute", "cached")]
    assert text_value("latency_added") == pytest.approx(seconds[0] / seconds[1] - 1, abs=5e-3)


def test_unknown_numbers():
    assert math.isnan(paper_value(1, "random", "mq_q2", "recovery"))
    with pytest.raises(ValueError, match="no numbers in table 6"):
        paper_value(6, "flashtrace", "mq_q2", "recovery")
    with pytest.raises(ValueError, match="no number 'x'"):
        text_value("x")
    assert all(place for _, place in TEXT.values())


@pytest.mark.parametrize(("line", "message"), [
    ("1,ifr,mq_q2,recovery,0.4", "line 3: there must be 6 columns, got 5"),
    ("first,ifr,mq_q2,recovery,0.4,Table 1", "line 3: table 'first' must be a number, or 'text'"),
    ("1,ifr,mq_q2,recovery,much,Table 1", "line 3: could not convert string to float: 'much'"),
    ("1,ifr,mq_q2,recovery,0.4,", "line 3: metric and place must be given"),
    ("1,clp,mq_q2,recovery,0.4,Table 1", "line 3: 1, clp, mq_q2, recovery stands in the file twice"),
])  # fmt: skip
def test_a_mistake_among_the_papers_numbers_is_named_with_its_line(tmp_path, line, message):
    path, columns = tmp_path / "numbers.csv", "table,method,cell,metric,value,place\n"
    path.write_text(f"{columns}1,clp,mq_q2,recovery,0.3,Table 1\n{line}\n")
    with pytest.raises(ValueError, match=re.escape(f"numbers.csv, {message}")):
        read_paper_numbers(path)
    path.write_text(columns.replace("cell,", ""))
    with pytest.raises(ValueError, match=r"numbers.csv, line 1: the columns must be"):
        read_paper_numbers(path)
