"""One look for every figure: fonts, sizes, and one colour, marker and line a method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

import matplotlib as mpl

INK = "#1a1a1a"  # text on white and on every heatmap colour
SEGMENTS = ("prompt", "reasoning", "output", "context")
SEGMENT_NAMES = {"prompt": "Input I", "reasoning": "Reasoning T", "output": "Output O", "context": "Context"}
SEGMENT_COLOURS = {"prompt": "#0072B2", "reasoning": "#E69F00", "output": "#009E73", "context": "#8C8C8C"}
SEGMENT_HATCHES = {"prompt": "", "reasoning": "///", "output": "...", "context": "xxx"}
METRIC_NAMES = {
    "recovery": "recovery rate (fraction)", "r_precision": "R-precision (fraction)", "rise": "RISE (fraction)",
    "mas": "MAS (fraction)",
}  # fmt: skip
HIGHER_IS_BETTER = {"recovery": True, "recovery_ceil": True, "r_precision": True, "rise": False, "mas": False}
WIDTH = 7.0  # inches; text width of a two-column page
SEQUENTIAL, DIVERGING = "Oranges", "BrBG"  # BrBG: brown loses, teal gains, told apart by every kind of colour vision
SEQUENTIAL_RANGE, DIVERGING_RANGE = (0.0, 0.6), (0.24, 0.74)  # where dark text keeps its contrast


@dataclass(frozen=True)
class MethodStyle:
    """How a method looks in every figure, and what it is called there."""

    label: str
    colour: str
    marker: str
    line: str | tuple = "-"


# Okabe-Ito and Tol's muted colours; marker and line tell methods apart where colour does not.
METHOD_STYLES = {
    "flashtrace": MethodStyle("FlashTrace", "#D55E00", "o", "-"),
    "ifr": MethodStyle("IFR", "#0072B2", "s", "--"),
    "attnlrp": MethodStyle("AttnLRP", "#009E73", "^", "-."),
    "perturbation": MethodStyle("Perturbation", "#E69F00", "D", ":"),
    "reagent": MethodStyle("ReAGent", "#CC79A7", "v", (0, (5, 1))),
    "clp": MethodStyle("CLP", "#56B4E9", "P", (0, (3, 1, 1, 1))),
    "ig": MethodStyle("IG", "#332288", "X", (0, (1, 1))),
    "ig_attn": MethodStyle("IG-Attn", "#AA4499", "<", (0, (5, 1, 1, 1))),
    "cage": MethodStyle("CAGE", "#117733", ">", (0, (5, 5))),
    "rollout": MethodStyle("Exhaustive rollout", "#000000", "*", (0, (3, 1, 1, 1, 1, 1))),
    "last_token": MethodStyle("Last token", "#999933", "h", (0, (1, 3))),
    "mean_pooling": MethodStyle("Mean pooling", "#661100", "p", (0, (3, 3))),
    "sentence": MethodStyle("Sentence spans", "#E69F00", "8", (0, (6, 1))),
    "rising": MethodStyle("Rising weights", "#332288", "H", (0, (2, 1))),
    "falling": MethodStyle("Falling weights", "#CC79A7", "3", (0, (2, 4))),
    "flashtrace_k0": MethodStyle("FlashTrace, K = 0", "#56B4E9", "4", ":"),
    "flashtrace_k1": MethodStyle("FlashTrace, K = 1", "#D55E00", "|", "-"),
    "flashtrace_k2": MethodStyle("FlashTrace, K = 2", "#009E73", "_", "--"),
    "flashtrace_k3": MethodStyle("FlashTrace, K = 3", "#CC79A7", ".", "-."),
    "ifr_one_by_one": MethodStyle("IFR, one by one", "#CC6677", "d", (0, (4, 2))),
    "ifr_last_line": MethodStyle("IFR, last line", "#44AA99", "1", (0, (2, 2))),
    "flashtrace_last_line": MethodStyle("FlashTrace, last line", "#882255", "2", (0, (4, 1))),
    "random": MethodStyle("Random", "#7F7F7F", "x", (0, (1, 2))),
    "position": MethodStyle("Position", "#A6A6A6", "+", (0, (1, 4))),
}
_SPARE = ("#44AA99", "#882255", "#DDCC77", "#6699CC", "#CC6677")


def method_style(name: str) -> MethodStyle:
    """Style of a method; a name unknown here gets a spare colour that depends on the name alone."""
    if name in METHOD_STYLES:
        return METHOD_STYLES[name]
    return MethodStyle(name, _SPARE[sum(name.encode()) % len(_SPARE)], "d", (0, (4, 2)))


def method_order(names: list[str]) -> list[str]:
    """``names`` without repeats, in the order of the paper's tables; the others follow by name."""
    known = ["perturbation", "reagent", "clp", "ifr", "attnlrp"]
    known += [name for name in METHOD_STYLES if name not in (*known, "flashtrace")]
    place = {name: i for i, name in enumerate([*known, "flashtrace"])}
    return sorted(set(names), key=lambda name: (place.get(name, len(place)), name))


def use_style() -> None:
    """Set the book's matplotlib defaults; call it once at the top of a notebook."""
    mpl.rcParams.update(rc_params())


def rc_params() -> dict[str, object]:
    """The settings of `use_style`, for use with ``matplotlib.rc_context``."""
    return {
        "font.family": "DejaVu Sans",  # comes with matplotlib, so figures look the same everywhere
        "font.size": 8,
        "axes.titlesize": 9,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": 8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": True,
        "grid.color": "#E5E5E5",
        "grid.linewidth": 0.6,
        "hatch.linewidth": 0.5,
        "legend.fontsize": 7,
        "legend.frameon": False,
        "lines.linewidth": 1.4,
        "lines.markersize": 4.5,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "figure.dpi": 110,
        "savefig.dpi": 200,
        "savefig.facecolor": "white",
        "pdf.fonttype": 42,  # embedded TrueType: text stays text
        "svg.hashsalt": "flashtrace",  # ids do not change from run to run
        "svg.fonttype": "none",
    }


def styled(draw: Callable) -> Callable:
    """Decorator: run ``draw`` under the book's settings, whatever the global ones are."""

    @wraps(draw)
    def drawn(*args: object, **kwargs: object) -> object:
        with mpl.rc_context(rc_params()):
            return draw(*args, **kwargs)

    return drawn
