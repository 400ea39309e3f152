"""Integrated gradients on attention maps, combined with attention (Chen et al. 2022; appendix D)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn
from tqdm import tqdm

from ..attribution import Attribution
from ..kernel.activations import LayerActivations
from ..kernel.attention import attend, attention_maps, mix, soft_cap
from ..kernel.capture import capture
from ..kernel.decomposition import check_weights
from ..kernel.interception import answering, in_this_thread
from ..kernel.proximity import column_sums
from ..model.architecture import decoder_layers
from ..model.state import model_budget
from ..sample import Sample, Span
from . import gradient_base
from .gradient_base import GradientMethod, Target


@dataclass
class _Tap:
    """Puts the attention maps of one layer, at the rows that predict O, into the graph as a leaf.

    Parameters
    ----------
    rows : (int, int)
        Positions that predict the M tokens of O.
    scales : torch.FloatTensor, shape [B]
        Factor on the maps of each batch entry.
    full, maps : torch.FloatTensor, shape [B, H, M, n]
        The maps as the model has them, and times the factor: the leaf.
    """

    rows: Span
    scales: torch.Tensor
    full: torch.Tensor | None = None
    maps: torch.Tensor | None = None

    def __call__(self, query, key, value, mask, *, scaling, softcap, sinks, **_) -> torch.Tensor:
        """Attention output [B, n, H, head_dim]; zero at other rows, which nothing reads after the last layer."""
        rows = slice(*self.rows)
        cap = None if softcap is None else partial(soft_cap, cap=softcap)
        mask = None if mask is None else mask[:, :, rows, : key.shape[-2]]
        with torch.no_grad():
            self.full = attention_maps(query[:, :, rows], key, mask, scaling, first=self.rows[0], cap=cap, sinks=sinks)
        self.maps = (self.full * self.scales.to(self.full.device)[:, None, None, None]).requires_grad_()
        out = torch.zeros(len(value), query.shape[2], query.shape[1], value.shape[-1]).to(value)
        out[:, rows] = mix(self.maps, value)  # [B, M, H, head_dim]
        return out


@contextmanager
def _tapped(model: nn.Module, tap: _Tap) -> Iterator[None]:
    """Route attention through the tap in the last layer; a batch of scales splits there from a shared context."""
    last = decoder_layers(model)[-1]

    def expand(_, args, kwargs):  # hidden states [1, n, d] to [B, n, d]; mask and rotary tables broadcast
        if args:
            return (args[0].expand(len(tap.scales), -1, -1), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": kwargs["hidden_states"].expand(len(tap.scales), -1, -1)}

    def attention(module, *args, **how):
        return tap(*args, **how) if module is last.attention else attend(module, *args, **how)

    with ExitStack() as stack:
        stack.enter_context(answering(model, attention))
        stack.callback(last.layer.register_forward_pre_hook(in_this_thread(expand), with_kwargs=True).remove)
        yield


def _tapped_log_probs(model: nn.Module, target: Target) -> torch.Tensor:
    """Log-probabilities [M] with the last layer's maps as they are; two of a batch, as the path has many."""
    with _tapped(model, _Tap(target.rows, torch.ones(2))):
        return gradient_base.log_probs_of_text(model, target)


@dataclass
class IGAttention(GradientMethod):
    """Reasoning feedback × attention perception, summed over the tokens of O.

    For the token o_t, predicted at row r, and source j:

        feedback   F_rj = mean over heads of max(0, ∫ ∂ log p(o_t) / ∂A_hrj dα), A the attention of the last layer
        perception P_r  = e_r (I + Ā_L M_L) … (I + Ā_1 M_1), Ā the mean over heads, M = diag(‖W_O v_j‖ / ‖x_j‖)
        a_j        = F_rj · P_rj

    The path α scales the last layer's maps from 0 to what they are (integrated gradients on attention maps, as the
    FlashTrace paper words it); M is what a source passes on for what it holds (the method's token-wise variant). Behind
    the last attention nothing mixes positions, so one backward pass serves every row of O at once.

    Parameters
    ----------
    steps : int
        Points on the path, both ends included; at least 20.

    References
    ----------
    Chen et al., "Beyond Intuition: Rethinking Token Attributions inside Transformers", 2022; FlashTrace, appendix D.
    """

    steps: int = 20

    name: ClassVar[str] = "ig_attn"
    removed: ClassVar[dict] = {"path": "maps", "perception": "token", "start_layer": 0}

    def __post_init__(self) -> None:
        gradient_base.check_steps(self.steps)

    def _attribute(self, model: nn.Module, sample: Sample) -> Attribution:
        check_weights(model, self.name)
        gradient_base.check_forward(model, self.name, partial(_tapped_log_probs, model), logits=False)
        target = gradient_base.target_of(model, sample)
        feedback, report = self._feedback(model, sample, target)  # [M, n]
        return self._attribution(model, (feedback * self._perception(model, target)).mean(0), sample, **report)

    def _feedback(self, model: nn.Module, sample: Sample, target: Target) -> tuple[torch.Tensor, dict[str, Any]]:
        """F [M, n], on the CPU, and what it took."""
        n, m = len(target.context), len(target.ids)
        of_maps = 4 * 4 * model.config.get_text_config().num_attention_heads * m * n  # bytes: two, a gradient, a cast
        at_once = max(1, gradient_base.fits(model, n, m, n_layers=1, more=of_maps))
        points = torch.linspace(0, 1, self.steps)
        weights = torch.full_like(points, 1 / (self.steps - 1))  # trapezoid rule
        weights[[0, -1]] /= 2
        embeddings = gradient_base.embed(model, target.context)  # [1, n, d]
        total, values = 0, []
        with (
            gradient_base.differentiable(model),
            tqdm(total=self.steps, desc=f"{self.name} {sample.id}", leave=False, unit="step") as bar,
        ):
            for part, weight in zip(points.split(at_once), weights.split(at_once), strict=True):
                tap = _Tap(target.rows, part)
                with _tapped(model, tap):
                    value = gradient_base.log_probs(model, embeddings, target).sum(-1)  # [B]
                (gradient,) = torch.autograd.grad(value.sum(), tap.maps)  # [B, H, M, n]
                total = total + torch.einsum("b,bhmn->hmn", weight.to(gradient.device), gradient)
                values.append(value.detach().cpu())
                bar.update(len(part))
        first, last = torch.cat(values)[[0, -1]]
        report = {
            "forward_passes": len(values) + 1,  # and the one of the perception
            "backward_passes": self.steps,
            "passed": bool(total.any()),  # before it is cut at 0
            "gap": float(last - first - (total * tap.full[-1]).sum()),
        }
        return total.clamp_min(0).mean(0).cpu(), report

    @torch.no_grad()
    def _perception(self, model: nn.Module, target: Target) -> torch.Tensor:
        """P [M, n], on the CPU; some target rows at a time."""
        n = len(target.context)
        layers = capture(model, target.context, (0, n)).layers
        at_once = max(1, model_budget(model) // (3 * 4 * len(layers[0].q) * n))
        rows = torch.zeros(len(target.ids), n)  # [M, n]: row i begins at the position that predicts token i of O
        rows[:, slice(*target.rows)] = torch.eye(len(target.ids))
        return torch.cat([_roll(layers, part) for part in rows.split(at_once)])


def _roll(layers: list[LayerActivations], mass: torch.Tensor) -> torch.Tensor:
    """Take rows [M, n] down through the layers."""
    for layer in reversed(layers):
        mass = mass.to(layer.x_in.device)
        # a post-attention norm scales what row i receives
        weighted = mass if layer.row_scale is None else mass * layer.row_scale
        mass = mass + column_sums(layer, weighted, (0, mass.shape[-1]), 0).mean(1) * _passed_on(layer)
    return mass.cpu()


def _passed_on(layer: LayerActivations) -> torch.Tensor:
    """‖W_O v_j‖₂ / ‖x_j‖₂ of every source j, shape [n]."""
    w_o = layer.parts.projection()  # [H * head_dim, d]
    heads = w_o.shape[0] // layer.v.shape[-1]
    values = layer.v.float().repeat_interleave(heads // len(layer.v), 0).transpose(0, 1).flatten(1)  # [n, H * head_dim]
    return (values @ w_o).norm(dim=-1) / layer.x_in.float().norm(dim=-1).clamp_min(1e-30)
