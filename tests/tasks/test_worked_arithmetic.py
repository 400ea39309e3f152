"""Calculations written out place by place: every equals sign holds."""

import random

import pytest

from flashtrace_lib.tasks.synthetic.worked_arithmetic import places, worked


@pytest.mark.parametrize("sign", "+-*/")
def test_worked_calculations_hold_at_every_equals_sign(sign):
    rng = random.Random(sign)
    for _ in range(500):
        a, b = rng.randint(1, 400), rng.randint(1, 400 if sign in "+-" else 40)
        if sign == "-" and a == b:
            continue
        a = a * b if sign == "/" else a
        steps = worked(a, sign, b).split(" = ")
        truth = {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[sign]
        assert steps[-1] == str(truth) and all(eval(step) == truth for step in steps)
        assert f"{a} {sign} {b}" != steps[0]  # the statement itself is not repeated


def test_worked_calculations_read_as_meant():
    assert worked(48, "+", 37) == "48 + 30 + 7 = 78 + 7 = 85"
    assert worked(88, "-", 39) == "88 - 30 - 9 = 58 - 9 = 49"
    assert worked(7, "*", 12) == "7 * 10 + 7 * 2 = 70 + 14 = 84" and worked(40, "*", 3) == "120"
    assert worked(96, "/", 8) == "80 / 8 + 16 / 8 = 10 + 2 = 12" and worked(48, "+", 30) == "78"
    for bad in ((0, "+", 1), (1, "%", 1), (7, "/", 2)):
        with pytest.raises(ValueError):
            worked(*bad)
    with pytest.raises(ValueError, match="positive"):
        places(0)
