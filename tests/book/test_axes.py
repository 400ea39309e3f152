import numpy as np
import pytest
from matplotlib.figure import Figure

from flashtrace_book.figures import axes as parts


@pytest.mark.parametrize("seed", range(20))
def test_places_move_apart_and_keep_their_order(seed):
    places = np.random.default_rng(seed).uniform(size=7) ** 3  # crowded near 0
    moved = parts.moved_apart(places, gap=0.1)
    assert (np.diff(moved[np.argsort(places)]) >= 0.1 - 1e-9).all()
    assert moved.min() >= -1e-9 and moved.max() <= 1 + 1e-9


@pytest.mark.parametrize(
    ("places", "gap", "moved"),
    [
        ([0.5, 0.1, 0.9], 0.2, [0.5, 0.1, 0.9]),  # apart as they are
        ([0.5, 0.5], 0.2, [0.6, 0.4]),
        ([0.0, 0.0, 1.0, 1.0], 0.1, [0.1, 0.0, 1.0, 0.9]),
        ([0.0, 0.0, 0.0], 0.9, [1.0, 0.5, 0.0]),  # no room: spread evenly
    ],
)
def test_places_by_hand(places, gap, moved):
    assert parts.moved_apart(np.array(places), gap=gap) == pytest.approx(moved)


def drawn_ends(lines, **limits):
    figure = Figure(layout="constrained")
    axes = figure.add_subplot()
    for name, y in lines.items():
        axes.plot(range(len(y)), y, label=name)
    axes.set(**limits)
    parts.label_ends(axes)
    figure.draw_without_rendering()
    return {text.get_text(): text for text in axes.texts}, axes


def test_each_line_has_its_name_at_the_height_of_its_end():
    texts, axes = drawn_ends({"up": [1, 100], "down": [100, 10], "gone": [5, np.nan]}, yscale="log", ylim=(1, 100))
    assert axes.get_legend() is None and axes.get_ylim() == (1, 100)
    heights = {name: text.get_position()[1] for name, text in texts.items()}
    assert heights == pytest.approx({"up": 1.0, "down": 0.5, "gone": np.log10(5) / 2})  # the last point that is there


def test_names_do_not_overlap_and_lie_within_the_figure():
    texts, axes = drawn_ends({f"line {i}": [i, 0.5] for i in range(12)})
    boxes = sorted((text.get_window_extent() for text in texts.values()), key=lambda box: box.y0)
    assert len(boxes) == 12
    assert all(low.y1 <= high.y0 + 0.5 for low, high in zip(boxes, boxes[1:], strict=False))  # half a pixel
    assert max(box.x1 for box in boxes) <= axes.figure.bbox.x1


def test_a_line_without_any_point_is_named_at_the_foot():
    texts, _ = drawn_ends({"one": [1, 2], "none": [np.nan, np.nan]})
    assert texts["none"].get_position()[1] == 0
