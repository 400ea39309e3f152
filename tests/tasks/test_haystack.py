"""Haystacks: the essays, statements hidden in a text, and the largest size that fits."""

import random
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flashtrace_lib.tasks import haystack
from flashtrace_lib.tasks.haystack import EssayHaystack, NoiseHaystack, hide, largest_fitting


def test_essays():
    words, begins = haystack.essay_words()
    assert len(words) > 100_000 and 0 in begins and " ".join(words[:3]) == EssayHaystack().text(0, 3)
    before = [words[i - 1] for i in begins if i]
    assert sum(bool(re.search(r"[.?!]", word)) for word in before) / len(before) > 0.95
    assert "accelerating. We wouldn't" in " ".join(words)  # glued together in the file
    assert EssayHaystack(len(words) - 2).text(0, 4) == " ".join([*words[-2:], *words[:2]])  # round and round
    starts = {EssayHaystack.seeded(random.Random(i)).start for i in range(20)}
    assert len(starts) > 15 and starts <= begins


@settings(max_examples=60, deadline=None)
@given(st.booleans(), st.integers(0, 120), st.integers(0, 50), st.integers(0, 10**6))
def test_hidden_statements_leave_the_haystack_whole(essay, n, k, seed):
    hay = EssayHaystack.seeded(random.Random(seed)) if essay else NoiseHaystack()
    statements = tuple(f"<needle {i}>" for i in range(k))
    text, spans = hide(hay, n, statements, random.Random(seed))
    assert tuple(text[a:b] for a, b in spans) == statements
    assert spans == sorted(spans)
    assert re.sub(r"<needle \d+>", " ", text).split() == hay.text(0, n).split()
    assert hide(hay, n, statements, random.Random(seed)) == (text, spans)
    places = hay.places(n, k, random.Random(seed))
    if not essay and k <= n + 1:
        assert len(set(places)) == k  # lines of noise, or a sentence, between any two


@settings(max_examples=200)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=50), st.lists(st.integers(0, 3)), st.integers(0, 3000))
def test_largest_fitting_is_tight(steps, noise, budget):
    def cost(n):
        wobble = noise[n % len(noise)] if noise else 0  # not monotonic
        return sum(steps) * (n // len(steps)) + sum(steps[: n % len(steps)]) + wobble

    probes = []
    assume(cost(0) <= budget)
    n = largest_fitting(lambda n: probes.append(n) or cost(n), budget, rate=1.35)
    assert cost(n) <= budget < cost(n + 1)
    assert len(probes) == len(set(probes)) <= 60


def test_largest_fitting_gives_up_where_nothing_fits_or_nothing_counts():
    with pytest.raises(ValueError, match="7 tokens are needed without any haystack, 5 are allowed"):
        largest_fitting(lambda n: 7 + n, 5, 1.0)
    with pytest.raises(ValueError, match="adds no tokens"):
        largest_fitting(lambda n: 3, 5, 1.0)
