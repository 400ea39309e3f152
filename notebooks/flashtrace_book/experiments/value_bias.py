"""Do value biases matter to the scores? Computed on the model at hand, and on a tiny one that has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from flashtrace_lib.methods import FlashTrace
from flashtrace_lib.metrics import mean_interval
from flashtrace_lib.model.architecture import decoder_layers
from flashtrace_lib.sample import Sample, Segments


def biased_model(seed: int = 0) -> torch.nn.Module:
    """A tiny random Qwen2, a family whose values have biases; these are as large as the values themselves."""
    config = Qwen2Config(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("v_proj.bias"):  # initialised to zero
                    parameter.copy_(torch.randn_like(parameter))
                elif "norm" not in name and "embed" not in name:
                    parameter.mul_(8)  # sharper attention than the initialisation gives
    return model


def random_samples(n: int, seed: int = 0) -> list[Sample]:
    """Contexts of random tokens for `biased_model`: 24 of input, 8 of reasoning, 4 of output."""
    generator = torch.Generator().manual_seed(seed)
    segments = Segments((1, 25), (26, 34), (35, 39))
    return [
        Sample(
            torch.randint(3, 97, (40,), generator=generator), segments, mask_token_id=0, metadata={"id": f"random-{i}"}
        )
        for i in range(n)
    ]


def value_bias_table(models: Mapping[str, tuple[torch.nn.Module, Sequence[Sample]]], hops: int = 1) -> pd.DataFrame:
    """How far the input's scores move when value biases are left out of the contributions.

    Parameters
    ----------
    models : mapping of str to (model, samples)

    Returns
    -------
    pandas.DataFrame
        ``model, layers, biased`` (layers whose values have a bias), ``moved, low, high`` (mean share of the mass that
        moves, half the L1 distance of the normalised scores, in [0, 1]; `metrics.mean_interval`), ``n``.
    """
    rows = []
    for name, (model, samples) in models.items():
        layers = decoder_layers(model)
        moved = [_moved(model, sample, hops) for sample in samples]
        low, high = mean_interval(moved)
        biased = sum(layer.value_bias() is not None for layer in layers)
        rows.append(
            {"model": name, "layers": len(layers), "biased": biased, "moved": sum(moved) / len(moved), "low": low,
             "high": high, "n": len(moved)}
        )  # fmt: skip
    return pd.DataFrame(rows)


def _moved(model: torch.nn.Module, sample: Sample, hops: int) -> float:
    both = [FlashTrace(hops=hops, value_bias=v).attribute(model, sample).scores for v in ("included", "left_out")]
    a, b = (scores.double() / scores.double().sum() for scores in both)
    return float((a - b).abs().sum() / 2)
