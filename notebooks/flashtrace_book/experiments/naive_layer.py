"""The slow, literal version of one layer's scores, and a short example to run it on: for chapter 02.

Every loop of the paper's definition is written out: over source tokens, heads and target tokens. It reads the same
captured queries, keys and values as the fast kernel; the tests have an independent oracle, from eager attention maps
in float64.
"""

from dataclasses import dataclass
from typing import Any

import torch
from tqdm import tqdm

from flashtrace_lib.kernel.activations import LayerActivations
from flashtrace_lib.kernel.attention import attention_rows
from flashtrace_lib.kernel.proximity import aggregate, head_proximity
from flashtrace_lib.sample import Sample, Span
from flashtrace_lib.tasks.responses import can_think, collect

from ..profile import Profile
from .groups import RULER, Group, group_examples


def example_sample(profile: Profile, model: torch.nn.Module, tokenizer: Any) -> Sample:
    """A short needle problem of two keys, answered without reasoning; by the reference, where the model is wrong.

    Its haystack is noise and not essays: it is printed and drawn, and the essays are their author's.
    """
    group = Group("reasoner", RULER, (), cells=("mq_q2",), length=256, haystack="noise", seed=1, tries=1)
    examples = group_examples(profile, group, tokenizer)["mq_q2"]
    mode = "direct" if can_think(tokenizer) else None
    return collect(model, tokenizer, examples, 1, max_new_tokens=64, mode=mode, progress=False).samples[0]


def captured_maps(layer: LayerActivations, target: Span, first_row: int) -> torch.Tensor:
    """Attention rows α_hij of the target, all at once, shape [H, m, N]."""
    rows = slice(target[0] - first_row, target[1] - first_row)
    mask = None if layer.mask is None else layer.mask[:, rows]
    how = {"mask": mask, "scaling": layer.scaling, "softcap": layer.softcap, "sinks": layer.sinks}
    return attention_rows(layer.q[:, rows], layer.k, target[0], **how)


@torch.inference_mode()
def naive_layer_scores(
    layer: LayerActivations, weights: torch.Tensor, target: Span, first_row: int, x_mid: torch.Tensor
) -> torch.Tensor:
    """Layer score of every source token, with each contribution z_{j→i} formed and added one by one (eqs. 3 to 7).

    Parameters
    ----------
    layer : LayerActivations
    weights : torch.FloatTensor, shape [m]
        Weight of each target token.
    target : (int, int)
        The m target positions.
    first_row : int
        Position of the first captured row.
    x_mid : torch.Tensor, shape [m, d]
        States after attention at the target rows, as the model computed them.

    Returns
    -------
    torch.FloatTensor, shape [N]
        e_j / (Σ_j e_j + e_res).
    """
    alpha = captured_maps(layer, target, first_row)  # [H, m, N]
    n_heads, m, n = alpha.shape
    w_o = layer.parts.projection().view(n_heads, -1, x_mid.shape[-1])  # [H, head_dim, d]
    group, start = n_heads // len(layer.v), target[0] - first_row
    scale = torch.ones(m) if layer.row_scale is None else layer.row_scale[start : start + m]
    y = sum(weights[i] * x_mid[i].float() for i in range(m))  # eq. 5, weighted
    residual = sum(weights[i] * layer.x_in[start + i].float() for i in range(m))
    e = torch.zeros(n)
    for j in tqdm(range(n), desc="source tokens", leave=False):
        for h in range(n_heads):
            v = layer.v[h // group, j].float() @ w_o[h]  # the transformed vector of eq. 3
            z = sum(weights[i] * scale[i] * alpha[h, i, j] * v for i in range(m))  # eq. 6
            e[j] += max(0.0, float(y.abs().sum() - (y - z).abs().sum()))  # eq. 7
    e_res = max(0.0, float(y.abs().sum() - (y - residual).abs().sum()))
    return e / (e.sum() + e_res)


@dataclass
class OverviewPanel:
    """One layer and head as Fig. 2 draws them: attention [m, N], its weighted sum [N], the proximity [N]."""

    head: int
    attention: torch.Tensor
    aggregated: torch.Tensor
    proximity: torch.Tensor


@torch.inference_mode()
def overview_panel(layer: LayerActivations, sample: Sample, weights: torch.Tensor, target: Span) -> OverviewPanel:
    """Pick the head whose proximity on the gold evidence is largest, and return its parts."""
    (aggregated,), _, y = aggregate(layer, weights[None], target, target[0])
    proximity = head_proximity(layer, aggregated, y)[0]  # [H, N]
    head = int(proximity[:, sample.gold].sum(-1).argmax())
    maps = captured_maps(layer, target, target[0])  # [H, m, N]
    return OverviewPanel(head, maps[head], aggregated[0, head], proximity[head])
