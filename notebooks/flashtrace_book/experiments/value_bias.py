"""The effect of value biases on the scores: of the loaded model, and of a tiny one that has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from flashtrace_lib.methods import FlashTrace
from flashtrace_lib.model.architecture import decoder_layers
from flashtrace_lib.sample import Sample, Segments

from ..statistics import mean_row


def biased_model(seed: int = 0) -> torch.nn.Module:
    """A tiny random Qwen2, a family whose values have biases; these are as large as the values themselves."""
    config = Qwen2Config(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
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
    samples = []
    for i in range(n):
        ids = torch.randint(3, 97, (40,), generator=generator)
        samples.append(Sample(ids, segments, mask_token_id=0, metadata={"id": f"random-{i}"}))
    return samples


def value_bias_table(models: Mapping[str, tuple[torch.nn.Module, Sequence[Sample]]], hops: int = 1) -> pd.DataFrame:
    """Change of the input's scores when value biases are left out of the contributions.

    Returns
    -------
    pandas.DataFrame
        ``model, layers, biased`` (layers whose values have a bias), ``moved, low, high, n`` (`statistics.mean_row` of
        the share of the mass that moves: half the L1 distance of the normalised scores, in [0, 1]).
    """
    rows = []
    for name, (model, samples) in models.items():
        layers = decoder_layers(model)
        biased = sum(layer.value_bias() is not None for layer in layers)
        moved = mean_row((_moved_share(model, sample, hops) for sample in samples), "moved")
        rows.append({"model": name, "layers": len(layers), "biased": biased, **moved})
    return pd.DataFrame(rows)


def _moved_share(model: torch.nn.Module, sample: Sample, hops: int) -> float:
    distributions = []
    for value_bias in ("included", "left_out"):
        scores = FlashTrace(hops=hops, value_bias=value_bias).attribute(model, sample).scores.double()
        distributions.append(scores / scores.sum())
    included, left_out = distributions
    return float((included - left_out).abs().sum() / 2)
