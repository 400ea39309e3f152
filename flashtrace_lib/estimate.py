"""What an attribution will take, before it starts: seconds and memory."""

import warnings
from functools import partial

import psutil
import torch

from .attribution import Method
from .model.context import vocabulary_size
from .sample import Sample

PROBE = 128  # tokens of the forward pass that is timed
# Forward passes that a method takes, measured on two cores (chapters 04 and 12); of others two are a lower
# bound, as of the default, which adds a pass of what follows each step.
PASSES = {"flashtrace": 1.6, "flashtrace_best": 2, "ifr": 1.6, "ifr_all": 3, "attnlrp": 5}
LOWER = "explain a shorter passage (input=), load the weights in bfloat16 (--dtype bfloat16), or use another device"


def estimate(model: torch.nn.Module, sample: Sample, method: Method) -> str:
    """Seconds of one attribution, from a timed forward pass of a few tokens, and its memory, in words."""
    from .bench.measure import forward_pass, random_sample, timed  # slow to import

    probe = random_sample(min(len(sample), PROBE) - 1, 0, 1, vocabulary_size(model))
    seconds = min(timed(partial(forward_pass, model, probe)) for _ in range(2)) * len(sample) / len(probe)
    gib, free = needed_gib(model, sample), free_gib(model.device)
    took = f"{'' if method.name in PASSES else 'at least '}{PASSES.get(method.name, 2) * seconds:.2g} s"
    return f"estimate for {method.name}: {took} and {gib:.2g} GiB over the model ({free:.3g} GiB are free)"


def warn_if_short(model: torch.nn.Module, sample: Sample) -> None:
    """A `RuntimeWarning` where an attribution needs more memory than is free, with what lowers it."""
    gib, free = needed_gib(model, sample), free_gib(model.device)
    if gib > free:
        warnings.warn(f"this trace needs about {gib:.2g} GiB and {free:.2g} are free: {LOWER}", RuntimeWarning, 3)


def needed_gib(model: torch.nn.Module, sample: Sample) -> float:
    """GiB over the loaded model of FlashTrace or IFR; other methods may need more.

    Each layer keeps the keys and values of every position and three states of each row that may be a target; the work
    of one layer comes on top.
    """
    config, n, (start, stop) = model.config.get_text_config(), len(sample), sample.segments.generated
    plain = {name: value for name, value in config.to_dict().items() if type(value) is int}  # some differ by layer
    width, heads = getattr(config, "hidden_size", 0), plain.get("num_attention_heads") or 1
    kept = 2 * (plain.get("head_dim") or width // heads) * (plain.get("num_key_value_heads") or heads)
    inner, layers = plain.get("intermediate_size") or 4 * width, getattr(config, "num_hidden_layers", None) or 1
    floats = layers * (n * kept + 3 * (stop - start) * width) + n * (6 * width + 3 * inner)
    return 4 * floats / 2**30  # attribution computes in float32


def free_gib(device: torch.device) -> float:
    """GiB that are free on a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] / 2**30
    return psutil.virtual_memory().available / 2**30
