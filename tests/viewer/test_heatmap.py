import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from flashtrace_lib import Sample, Segments
from flashtrace_lib.attribution import Attribution, Hop
from flashtrace_lib.viewer.colours import INK, colour_of
from flashtrace_lib.viewer.figure import heatmap_figure, hops_figure
from flashtrace_lib.viewer.html import _wrap, token_heatmap
from flashtrace_lib.viewer.tokens import hop_panels, make_panel, shown_tokens, top_ranks, visible

PLAIN = ["<script>alert('x')</script>", '" onmouseover="x', "&amp;"]
HOSTILE = [*PLAIN, "a\u200bb", "\u202eevil", " שלום", "\n", "  in", "\ud800"]


class Reader(HTMLParser):
    """Collects tags, attributes and text; fails on tags left open."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.attributes, self.open = [], "", [], []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def sample_and_hops(n=60, hops=2, seed=0):
    rng, segments = np.random.default_rng(seed), Segments((5, 35), (38, 50), (52, 58))
    sample, made = Sample(torch.arange(n), segments, tokens=[f" w{i}" for i in range(n)], metadata={"id": "s"}), []
    for _ in range(hops):
        scores = torch.tensor(rng.dirichlet(np.full(n, 0.3)), dtype=torch.float32)
        made.append(Hop(scores, segments.output, torch.ones(6) / 6))
    return sample, Attribution(made[0].scores[5:35] if hops else torch.ones(30), "flashtrace", hops=made)


# --- HTML -----------------------------------------------------------------------------------------------------


def test_hostile_text_is_text():
    page = token_heatmap(HOSTILE, np.linspace(0.1, 1, len(HOSTILE)), title="<b>&")
    reader = Reader(page)
    assert set(reader.tags) == {"div", "span"}
    assert {name for name, _ in reader.attributes} <= {"style", "title"}  # no ids, no handlers
    for text in (*PLAIN, "a⟨U+200B⟩b", "⟨U+202E⟩evil", "⏎\n", "  in", "<b>&"):
        assert text in reader.text
    assert "\u200b" not in page and "\u202e" not in page
    page.encode("utf-8")  # no lone surrogate is left
    assert "white-space:pre-wrap" in page  # leading spaces and newlines stay


def test_output_is_deterministic_and_ignores_the_last_digits():
    tokens, scores = [f"t{i}" for i in range(50)], np.linspace(0, 1, 50)
    assert token_heatmap(tokens, scores) == token_heatmap(tokens, torch.tensor(scores, requires_grad=True))
    assert token_heatmap(tokens, scores) == token_heatmap(tokens, scores * (1 + 1e-9))


def test_tooltips_name_position_score_rank_and_segment():
    page = token_heatmap(["a", "b"], [0.25, 0.5], labels=["prompt", "reasoning"], top_k=1)
    titles = [value for name, value in Reader(page).attributes if name == "title"]
    assert titles == ["token 0 · score 0.25 · prompt", "token 1 · score 0.5 · rank 1 · reasoning"]


def test_top_tokens_are_underlined_not_only_coloured():
    page = token_heatmap([f"<{i}>" for i in range(12)], np.arange(12.0), top_k=3)
    assert re.findall(r'<span style="[^"]*underline[^"]*"[^>]*>&lt;(\d+)&gt;</span>', page) == ["9", "10", "11"]


def test_context_is_never_ranked_and_unscored_tokens_stay_plain():
    labels = ["context", "prompt", "prompt", "output"]
    assert top_ranks(np.array([9.0, 1.0, 2.0, np.nan]), labels, 2).tolist() == [0, 2, 1, 0]
    page = token_heatmap(["c", "p", "q", "o"], [9.0, 1.0, 2.0, np.nan], labels=labels)
    assert 'title="token 3 · not scored · output">o<' in page
    assert "Output O · 1 token · not scored" in page
    assert "Input I · 2 tokens · 25.0 % of the total" in page


def test_blocks_name_the_segments_in_order():
    sample, attribution = sample_and_hops()
    text = Reader(_wrap(hop_panels(sample, attribution))).text
    for title in ("Hop 0 (explains O)", "Hop 1 (explains T)", "Δ (Hop 1 − Hop 0)"):
        assert title in text
    first = text[: text.index("Hop 1 (explains T)")]
    assert "Hop 1" not in _wrap(hop_panels(*sample_and_hops(hops=1)))
    places = [first.index(name) for name in ("Input I · 30", "Reasoning T · 12", "Output O · 6")]
    assert places == sorted(places)
    share = 100 * float(attribution.hops[0].scores[38:50].sum())
    assert f"Reasoning T · 12 tokens · {share:.1f} % of the total" in first


def test_difference_panel_holds_the_differences():
    sample, attribution = sample_and_hops()
    page = _wrap(hop_panels(sample, attribution))
    change = attribution.hops[1].scores.double() - attribution.hops[0].scores.double()
    found = re.findall(r'title="token (\d+) · score ([-\d.e]+)', page[page.index("Δ (Hop") :])
    assert len(found) == 60
    assert all(float(value) == pytest.approx(float(change[int(i)]), rel=6e-3, abs=1e-6) for i, value in found)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((["a"], [1, 2]), {}, "one score a token"), ((["a"], [float("inf")]), {}, "infinite"),
        ((["a"], [-1.0]), {}, "diverging=True"),
        ((["a", "b"], [1, 2]), {"labels": ["prompt"]}, "one segment name a token"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("draw", [token_heatmap, heatmap_figure])
def test_bad_input(draw, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        draw(*arguments, **options)


def test_hops_need_hops_and_tokens():
    sample, attribution = sample_and_hops(hops=0)
    with pytest.raises(ValueError, match="no hops"):
        hops_figure(sample, attribution)
    sample, attribution = sample_and_hops()
    sample.tokens = None
    with pytest.raises(ValueError, match="no display tokens"):
        hops_figure(sample, attribution)


# --- colour and text ------------------------------------------------------------------------------------------


def luminance(colour):
    channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return float(np.dot(channels, (0.2126, 0.7152, 0.0722)))


@pytest.mark.parametrize("diverging", [False, True])
def test_dark_text_keeps_its_contrast_on_every_colour(diverging):
    colours = {colour_of(score, 1.0, diverging) for score in np.linspace(-1.5 if diverging else 0, 1.5, 301)}
    assert len(colours) > 15  # a scale, not two colours
    for colour in colours:  # WCAG 2: 4.5 for normal text
        assert (luminance(colour) + 0.05) / (luminance(INK) + 0.05) > 4.5
    assert colour_of(0.0, 1.0, diverging) == colour_of(float("nan"), 1.0, diverging) == "#ffffff"


def test_an_attention_sink_does_not_bleach_the_rest():
    scores = np.full(200, 0.001)
    scores[0], scores[100:120] = 0.9, 0.02
    panel = make_panel(["x"] * 200, scores, ["context"] + ["prompt"] * 199)
    assert panel.limit == pytest.approx(0.02)
    assert panel.boxes[110].colour == panel.boxes[0].colour != panel.boxes[50].colour


def test_the_output_does_not_set_the_scale_unless_it_stands_alone():
    scores, labels = [0.01, 0.04, 0.02, 0.7, 0.9], ["prompt", "prompt", "reasoning", "output", "context"]
    assert make_panel(list("abcde"), scores, labels).limit == pytest.approx(0.04)
    assert make_panel(list("de"), scores[3:], labels[3:]).limit == pytest.approx(0.7)


def test_visible_keeps_plain_text():
    assert visible(" café 日本 $x$ \\n") == " café 日本 $x$ \\n"
    assert visible("") == "·" and visible("\r\n") == "⏎\n" and visible("\x00\t") == "⟨U+0000⟩⇥"


# --- folding --------------------------------------------------------------------------------------------------


def test_folding_keeps_the_high_scores_and_every_token_is_accounted_for():
    n = 1000
    scores = np.full(n, 1e-4)
    scores[[300, 700]] = 1.0
    labels = ["context"] * 20 + ["prompt"] * 900 + ["output"] * 80
    keep = shown_tokens(scores, labels, budget=60)
    assert keep[300] and keep[295] and keep[705] and not keep[500]
    assert keep[20] and keep[919] and keep[920]  # where segments begin and end
    assert 20 < keep.sum() < 110
    boxes = make_panel([f"t{i} " for i in range(n)], scores, labels, keep=keep).boxes
    assert [b.start for b in boxes[1:]] == [b.stop for b in boxes[:-1]] and boxes[-1].stop == n
    assert sum(b.score for b in boxes) == pytest.approx(scores.sum())
    folded = [b for b in boxes if b.folded]
    assert folded and all(f"… {b.stop - b.start} tokens …" in b.text for b in folded)
    assert all(len({labels[i] for i in range(b.start, b.stop)}) == 1 for b in boxes)
    page = token_heatmap([f"t{i} " for i in range(n)], scores, labels=labels, budget=60)
    assert "t300" in page and "t500" not in page
    assert shown_tokens(scores, labels, None).all() and shown_tokens(scores, labels, n).all()


# --- figures --------------------------------------------------------------------------------------------------


def pixels(figure):
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def test_figure_draws_the_colours_and_grows_with_the_text():
    short = heatmap_figure(["one", " two"], [0.0, 1.0], title="t")
    image, expected = pixels(short), np.round(255 * np.array(to_rgb(colour_of(1.0, 1.0, False))))
    assert (np.abs(image - expected) <= 1).all(-1).sum() > 100
    long = heatmap_figure([f" word{i}" for i in range(300)], np.ones(300), budget=None)
    assert long.get_size_inches()[1] > 3 * short.get_size_inches()[1]
    assert (pixels(heatmap_figure(["one", " two"], [0.0, 1.0], title="t")) == image).all()


def test_figure_survives_hostile_tokens_without_warnings(recwarn):
    tokens = [*HOSTILE, "x" * 500, "$\\frac{", "日本🦜", ""]
    pixels(heatmap_figure(tokens, np.linspace(0, 1, len(tokens))))
    assert not [w for w in recwarn if "Glyph" in str(w.message)]


def test_nothing_is_drawn_beyond_the_margin():
    axes = heatmap_figure(["x" * 500, *(f" word{i}" for i in range(200))], np.linspace(0, 1, 201), width=5).axes[0]
    extents = [patch.get_path().get_extents() for patch in axes.patches]
    assert max(e.x1 for e in extents) <= axes.get_xlim()[1] + 1e-6
    assert max(e.y1 for e in extents) <= axes.get_ylim()[0] + 1e-6 and min(e.y0 for e in extents) >= 0


def test_hops_figure_has_a_panel_a_hop_and_the_difference():
    sample, attribution = sample_and_hops()
    assert len(hops_figure(sample, attribution).axes) == 3
    with pytest.raises(ValueError, match="make the figure wider"):
        hops_figure(sample, attribution, width=3)
