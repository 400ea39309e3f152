"""The page of a trace as it is written: its numbers, its colours, and that it loads nothing."""

import json
import re

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from flashtrace_lib.viewer import page as pages
from flashtrace_lib.viewer.colours import colour_of
from flashtrace_lib.viewer.page import quantised
from tests.viewer.test_heatmap import luminance


def embedded(page_text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page_text)[1])


def decoded(row):
    """Scores of a quantised row, as its documentation says, and not as the script does."""
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    numbers = [[digits.index(letter) for letter in three] for three in re.findall("...", row["codes"])]
    codes = [4096 * a + 64 * b + c for a, b, c in numbers]
    size = [row["max"] * 10 ** (-6 * (131071 - c % 131072) / 131070) if c % 131072 else 0.0 for c in codes]
    return np.array([-s if c >= 131072 else s for s, c in zip(size, codes, strict=True)])


def test_quantised_scores_are_close():
    rng = np.random.default_rng(0)
    values = torch.tensor(rng.choice([-1, 1], 5000) * 10 ** rng.uniform(-9, 1, 5000))
    found, expected = decoded(quantised(values)), values.numpy()
    large = np.abs(expected) > 1.01e-6 * np.abs(expected).max()
    np.testing.assert_allclose(found[large], expected[large], rtol=6e-5)
    assert (np.abs(found[~large]) <= 1.01e-6 * np.abs(expected).max()).all()
    assert not decoded(quantised(torch.zeros(3))).any() and quantised(torch.zeros(0), 4)["codes"] == ""


def test_the_page_holds_every_hop_of_every_sentence_and_is_small(traced, folder):
    text = (folder / "t.html").read_text(encoding="utf-8")
    data = embedded(text)
    assert "".join(data["tokens"]).replace("⏎\n", "\n") == "".join(traced.sample.tokens)
    assert data["targets"][0]["span"] == list(traced.sample.segments.output)
    by_span = {tuple(target["span"]): target for target in data["targets"]}
    for target in traced.targets:
        stored = by_span[target.span]
        np.testing.assert_allclose(decoded(stored["scores"]), target.attribution.scores, rtol=6e-5, atol=1e-7)
        for row, hop in zip(stored["hops"], target.attribution.hops, strict=True):
            np.testing.assert_allclose(decoded(row), hop.scores[: target.span[1]], rtol=6e-5, atol=1e-6)
            assert not hop.scores[target.span[1] :].any()  # what is left out is zero
    scores = sum(len(row["codes"]) for t in data["targets"] for row in [t["scores"], *t["hops"]])
    assert len(text) < 53_000 + scores + 10 * len(data["tokens"])


@pytest.mark.parametrize("name", ["t", "direct", "hostile", "plain", "token"])
def test_nothing_is_loaded_from_anywhere(folder, name):
    text = (folder / f"{name}.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in text and not re.search(r"https?://|@import|url\(", text)
    assert len(re.findall(r"<script", text)) == 2 == len(re.findall(r"</script>", text))
    assert "$" not in re.sub(r"(?s)<script.*?</script>", "", text)  # every placeholder is filled


def test_colours_keep_their_contrast_and_are_those_of_the_heatmaps():
    themes = re.findall(r":root \{(.*?)\}", pages._read("trace_page.css"), flags=re.S)
    assert len(themes) == 2

    def rgb(theme, name):
        value = re.search(rf"--{name}: ([^;]+);", theme)[1]
        return [int(v) / 255 for v in value.split()] if " " in value else to_rgb(value)

    for theme in themes:
        pairs = [(rgb(theme, "ink"), rgb(theme, name)) for name in ("page", "pane", "heat", "gain", "loss")]
        pairs += [(rgb(theme, name), rgb(theme, "page")) for name in ("soft", "accent", "found")]
        for a, b in pairs:
            low, high = sorted((luminance(a), luminance(b)))
            assert (high + 0.05) / (low + 0.05) > 4.5  # WCAG 2, normal text
    for name, (value, signed) in {"heat": (1, False), "gain": (1, True), "loss": (-1, True)}.items():
        assert rgb(themes[0], name) == pytest.approx(to_rgb(colour_of(value, 1.0, signed)), abs=1e-6)
