"""Calculations written out place by place, so that each equals sign asks for one small step."""

from __future__ import annotations

from functools import partial


def places(n: int) -> list[int]:
    """Parts of a positive number by decimal place, the largest first: 128 -> [100, 20, 8].

    Raises
    ------
    ValueError
        If ``n`` is not positive.
    """
    if n < 1:
        raise ValueError(f"only a positive number has places to write out, got {n}")
    digits = str(n)
    return [int(digit) * 10 ** (len(digits) - i) for i, digit in enumerate(digits, 1) if digit != "0"]


def worked(a: int, sign: str, b: int) -> str:
    """A calculation on the right of its own statement: ``"48 + 30 + 7 = 78 + 7 = 85"`` for 48 + 37.

    Parameters
    ----------
    a, b : int
        Positive.
    sign : {"+", "-", "*", "/"}
        A sum and a difference take the second number apart, a product the larger factor beyond 10, a quotient
        beyond 10 the dividend.

    Returns
    -------
    str
        Steps joined by ``" = "``, the last one the result.

    Raises
    ------
    ValueError
        If a number is not positive, the sign is unknown, or a division leaves a remainder.
    """
    if sign not in _STEPS:
        raise ValueError(f"sign must be one of {', '.join(_STEPS)}, got {sign!r}")
    if a < 1 or b < 1:
        raise ValueError(f"both numbers must be positive, got {a} and {b}")
    return " = ".join(_STEPS[sign](a, b))


def _running(sign: str, a: int, b: int) -> list[str]:
    """Take the places of ``b`` one after the other."""
    steps, parts = [], places(b)
    while parts:
        steps.append(f" {sign} ".join(map(str, (a, *parts))))
        a += parts.pop(0) * (1 if sign == "+" else -1)
    steps.append(str(a))
    return steps[1:] if b in places(b) else steps  # one place only: the first step would repeat the statement


def _product(a: int, b: int) -> list[str]:
    large, small = max(a, b), min(a, b)
    parts = places(large)
    if large <= 10 or len(parts) == 1:
        return [str(a * b)]
    # The larger factor stays on its side, so that the steps read like the statement.
    products = [f"{part} * {small}" if a == large else f"{small} * {part}" for part in parts]
    return [" + ".join(products), *_sum([part * small for part in parts])]


def _quotient(a: int, b: int) -> list[str]:
    result, rest = divmod(a, b)
    if rest:
        raise ValueError(f"{a} / {b} leaves a remainder: only whole results are written out")
    parts = places(result)
    if result <= 10 or len(parts) == 1:
        return [str(result)]
    return [" + ".join(f"{part * b} / {b}" for part in parts), *_sum(parts)]


def _sum(parts: list[int]) -> list[str]:
    return [" + ".join(map(str, parts)), str(sum(parts))]


_STEPS = {"+": partial(_running, "+"), "-": partial(_running, "-"), "*": _product, "/": _quotient}
