"""One look for every figure: fonts, sizes, names, and the colour, marker and line of each method."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

import matplotlib as mpl

from flashtrace_lib.metrics import HIGHER_IS_BETTER
from flashtrace_lib.viewer.colours import rc_params

METRIC_NAMES = {
    "recovery": "recovery rate (fraction)", "r_precision": "R-precision (fraction)", "rise": "RISE (fraction)",
    "mas": "MAS (fraction)", "auroc": "AUROC (fraction)", "auroc_facts": "AUROC among the facts (fraction)",
    "lds": "LDS (rank correlation)",
}  # fmt: skip


@dataclass(frozen=True)
class MethodStyle:
    """Name, colour, marker and line of a method in every figure."""

    label: str
    colour: str
    marker: str
    line: str | tuple = "-"

    @property
    def plot_options(self) -> dict[str, object]:
        """Colour, marker and line as ``Axes.plot`` takes them."""
        return {"color": self.colour, "marker": self.marker, "ls": self.line}


# FlashTrace first and in one colour everywhere; the paper's other methods, then others; controls last and grey.
# Okabe-Ito and Tol's muted colours; marker and line tell methods apart where colour does not.
METHOD_STYLES = {
    "flashtrace": MethodStyle("FlashTrace", "#D55E00", "o", "-"),
    "flashtrace_best": MethodStyle("FlashTrace.best()", "#882255", "D", (0, (7, 1))),
    "flashtrace_causal": MethodStyle("Causal hop", "#AA3377", "*", (0, (5, 1, 1, 1))),
    "flashtrace_released": MethodStyle("FlashTrace as released", "#EE7733", "P", (0, (4, 2, 1, 2))),
    "flashtrace_k0": MethodStyle("FlashTrace, K = 0", "#56B4E9", "4", ":"),
    "flashtrace_k1": MethodStyle("FlashTrace, K = 1", "#D55E00", "|", "-"),
    "flashtrace_k2": MethodStyle("FlashTrace, K = 2", "#009E73", "_", "--"),
    "flashtrace_k3": MethodStyle("FlashTrace, K = 3", "#CC79A7", ".", "-."),
    "code_flashtrace": MethodStyle("FlashTrace, all code", "#D55E00", "o", "-"),
    "line_flashtrace": MethodStyle("FlashTrace, last line", "#E69F00", "2", (0, (4, 1))),
    "code_ifr": MethodStyle("IFR, all code", "#0072B2", "s", "--"),
    "line_ifr": MethodStyle("IFR, last line", "#44AA99", "1", (0, (2, 2))),
    "ifr": MethodStyle("IFR", "#0072B2", "s", "--"),
    "ifr_one_by_one": MethodStyle("IFR, one by one", "#6699CC", "d", (0, (4, 2))),
    "ifr_all": MethodStyle("IFR on T ∪ O", "#56B4E9", "H", (0, (4, 1, 1, 1))),
    "attnlrp": MethodStyle("AttnLRP", "#009E73", "^", "-."),
    "perturbation": MethodStyle("Perturbation", "#E69F00", "D", ":"),
    "reagent": MethodStyle("ReAGent", "#CC79A7", "v", (0, (5, 1))),
    "clp": MethodStyle("CLP", "#332288", "P", (0, (3, 1, 1, 1))),
    "rollout": MethodStyle("Exhaustive rollout", "#000000", "*", (0, (3, 1, 1, 1, 1, 1))),
    "cage": MethodStyle("CAGE", "#117733", ">", (0, (5, 5))),
    "ig": MethodStyle("IG", "#B07AA1", "X", (0, (1, 1))),
    "ig_attn": MethodStyle("IG-Attn", "#AA4499", "<", (0, (5, 1, 1, 1))),
    "gim": MethodStyle("GIM", "#999933", "p", (0, (3, 2))),
    "at2": MethodStyle("AT2", "#8DA0CB", "8", (0, (6, 2, 1, 2))),
    "at2_uniform": MethodStyle("AT2, uniform weights", "#8DA0CB", "8", (0, (6, 2, 1, 2))),
    "suppression": MethodStyle("Attention suppression", "#661100", "h", (0, (3, 2, 1, 2))),
    "suppression_response": MethodStyle("Suppression from T ∪ O", "#CC6677", "h", (0, (1, 1, 3, 1))),
    "contextcite": MethodStyle("ContextCite", "#B8860B", "d", (0, (2, 1, 1, 1))),
    "mean_pooling": MethodStyle("Mean pooling", "#661100", "p", (0, (3, 3))),
    "last_token": MethodStyle("Last token", "#999933", "h", (0, (1, 3))),
    "sentence": MethodStyle("Sentence spans", "#E69F00", "8", (0, (6, 1))),
    "rising": MethodStyle("Rising weights", "#332288", "H", (0, (2, 1))),
    "falling": MethodStyle("Falling weights", "#CC79A7", "3", (0, (2, 4))),
    "string_match": MethodStyle("String match", "#4D4D4D", "X", (0, (2, 1, 1, 1))),
    "position": MethodStyle("Position", "#8C8C8C", "+", (0, (1, 4))),
    "random_sentences": MethodStyle("Random sentences", "#A6A6A6", "1", (0, (2, 3))),
    "random": MethodStyle("Random", "#7F7F7F", "x", (0, (1, 2))),
}
COSTS = ("forward passes", "GiB")
CONTROLS = ("string_match", "position", "random_sentences", "random")
_SPARE = ("#44AA99", "#882255", "#DDCC77", "#6699CC", "#CC6677")


def method_style(name: str) -> MethodStyle:
    """Style of a method; a name without one gets a spare colour that depends on the name alone."""
    if name in METHOD_STYLES:
        return METHOD_STYLES[name]
    return MethodStyle(name, _SPARE[sum(name.encode()) % len(_SPARE)], "d", (0, (4, 2)))


def method_order(names: list[str]) -> list[str]:
    """``names`` without repeats: FlashTrace first, controls last, unknown ones before these by name."""
    place = {name: i for i, name in enumerate(METHOD_STYLES)}
    return sorted(set(names), key=lambda name: (place.get(name, place[CONTROLS[0]] - 0.5), name))


def metric_name(metric: str) -> str:
    """Name of a metric on axes and in tables, with its unit."""
    whole = metric.removesuffix("_haystack")
    if whole != metric and whole in METRIC_NAMES:
        return METRIC_NAMES[whole].replace(" (", ", haystack alone (")
    return METRIC_NAMES.get(metric, metric)


def short_metric(metric: str) -> str:
    """Name of a metric in a narrow column, with the direction in which it is better."""
    name = metric_name(metric).split(" (")[0].replace("recovery rate", "recovery")
    name = name.replace(", haystack alone", ",\nin haystack")
    return name + (" ↑" if higher_is_better(metric) else " ↓")


def better_side(metric: str) -> str:
    """``"higher is better"`` or ``"lower is better"``."""
    return "higher is better" if higher_is_better(metric) else "lower is better"


def higher_is_better(metric: str) -> bool:
    """Whether more of a metric is better: of all but what the library says, and costs."""
    return HIGHER_IS_BETTER.get(metric, metric not in COSTS)


def use_style() -> None:
    """Set the book's matplotlib defaults; call it once at the top of a notebook."""
    mpl.rcParams.update(rc_params())


def styled(draw: Callable) -> Callable:
    """Decorator: run ``draw`` under the book's settings, whatever the global ones are."""

    @wraps(draw)
    def drawn(*args: object, **kwargs: object) -> object:
        with mpl.rc_context(rc_params()):
            return draw(*args, **kwargs)

    return drawn
