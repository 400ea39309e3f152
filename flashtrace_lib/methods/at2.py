"""AT2: attention weighted by head, with weights that were learned once for a model (Cohen-Wang et al. 2025)."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from ..attribution import Attribution, Method
from ..files import data_folder, read_json
from ..kernel.capture import capture
from ..kernel.decomposition import check_weights
from ..kernel.fused_attention import choose
from ..kernel.proximity import column_sums
from ..model.architecture import decoder_layers
from ..sample import Sample
from .perturbation_base import of_signed

UNIFORM = "uniform"
_PROBED = 8  # values of each W_O that tell one model from another
# Hash of the committed weights -> that under which results were stored, when those of a second model lay beside them.
_STORED_AS = {"bdd37a81a7203db522bb": "9df5e9337fc5db18de98"}
_SAME = 0.01  # their relative distance: rounding to bfloat16 makes 0.002, the reasoner's adapter 0.021


@dataclass
class AT2(Method):
    """Attention that the target pays to each token of I, a weighted sum over all heads of all layers.

    The score of token j is Σ_lh w_lh · mean_i α^lh_ij, where i runs over the positions that predict the target tokens.
    The weights are learned once for a model, so that the scores of the sentences that a random ablation keeps, added
    up, follow what the ablation does to the probability of the response (``data/at2/README.md`` says how). The target
    is all tokens of T and O; tokens of the template between them are none.

    Parameters
    ----------
    weights : str or path-like, optional
        A file that the training wrote. ``"uniform"``: all heads count the same, which is the mean attention and needs
        no training. Default: the file under ``data/at2`` that was learned from this very model.
    content : str, optional
        Hash of the weights, filled in where it is not given: part of every key, so that results of other weights are
        not taken for these.

    Raises
    ------
    ValueError
        If a file holds no weights or not those of ``content``, or they do not fit the model.

    References
    ----------
    Cohen-Wang et al., "Learning to Attribute with Attention", arXiv 2504.13752, 2025.
    """

    weights: str | Path | None = None
    content: str | None = None

    name: ClassVar[str] = "at2"
    removed: ClassVar[dict] = {"target": "generation"}

    def __post_init__(self) -> None:
        self.weights = None if self.weights is None else str(self.weights)
        content = hashlib.sha256(json.dumps([one["weights"] for one in self._read()]).encode()).hexdigest()[:20]
        content = _STORED_AS.get(content, content)
        if self.content not in (None, content):
            where = self.weights or "data/at2"
            raise ValueError(f"at2: the weights in {where} are not those of {self.content}, but of {content}")
        self.content = content

    def _attribute(self, model: nn.Module, sample: Sample) -> Attribution:
        check_weights(model, self.name)
        weights, attention = self._weights(model), head_attention(model, sample)
        signed = torch.zeros(len(sample))  # [N]
        for row, by_head in zip(_fitting(weights, attention), attention, strict=True):
            signed += row @ by_head  # [H] @ [H, N]
        return of_signed(self.name, signed[slice(*sample.segments.prompt)], forward_passes=1)

    def _read(self) -> list[dict[str, Any]]:
        """What the files hold that may have the weights."""
        if self.weights == UNIFORM:
            return []
        return [read_weights(path) for path in (committed() if self.weights is None else [self.weights])]

    def _weights(self, model: nn.Module) -> list[list[float]] | None:
        """Weights [L][H] for this model; None where all heads count the same."""
        if self.weights == UNIFORM:
            return None
        found = [one for one in self._read() if self.weights is not None or is_of(one, model)]
        if not found:
            raise ValueError(
                "at2: no weights under data/at2 were learned from this model: give AT2(weights=FILE), or use "
                f"AT2(weights={UNIFORM!r}), the mean attention"
            )
        return found[0]["weights"]


@torch.inference_mode()
def head_attention(model: nn.Module, sample: Sample) -> list[torch.Tensor]:
    """Attention that the positions which predict T and O pay to every token, by layer and head.

    Returns
    -------
    list of torch.FloatTensor, shape [H, N], one a layer
        Mean over the target tokens, on the CPU. No attention map is kept: memory grows linearly with N.
    """
    segments = sample.segments
    start, stop = segments.generated
    mean = torch.zeros(1, stop - start)  # [1, m]
    for first, last in (segments.reasoning, segments.output):
        mean[:, max(first - start, 0) : last - start] = 1
    mean /= mean.sum()
    rows = (start - 1, stop - 1)  # the position before a token is the one that predicts it
    attention = choose(model.device, model.config.get_text_config().num_attention_heads, rows)
    layers = capture(model, sample.input_ids, rows, attention=attention).layers
    return [column_sums(layer, mean.to(layer.k.device), rows, rows[0])[0].cpu() for layer in layers]


def _fitting(weights: list[list[float]] | None, attention: list[torch.Tensor]) -> list[torch.Tensor]:
    """Weights [H] of each layer; ValueError where they were made for other layers or heads."""
    heads = [len(by_head) for by_head in attention]
    if weights is None:
        return [torch.full((n,), 1 / sum(heads)) for n in heads]
    if [len(row) for row in weights] != heads:
        raise ValueError(
            f"at2: the weights are for {len(weights)} layers of {len(weights[0])} heads, the model has {len(heads)} "
            f"of {heads[0]}: learn weights from this model"
        )
    return [torch.tensor(row) for row in weights]


# --- files of weights -------------------------------------------------------------------------------------------


def committed() -> list[Path]:
    """Files of weights that come with the library; none where it was installed without them."""
    try:
        return sorted(data_folder("at2").glob("*.json"))
    except ValueError:
        return []


def read_weights(path: Path | str) -> dict[str, Any]:
    """A file of weights: ``weights`` [L][H] and ``probe`` (see `probe`), beside what the training says of itself.

    Raises
    ------
    ValueError
        If there is no such file, or it holds no weights.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise ValueError(f"at2: there is no file {path}: give one of weights by layer and head")
    found = read_json(path)
    rows = found.get("weights")
    numbers = [x for row in rows if isinstance(row, list) for x in row or [None]] if isinstance(rows, list) else []
    if not numbers or not all(isinstance(x, (int, float)) for x in numbers):
        raise ValueError(f"at2: {path} holds no weights by layer and head: learn them again")
    return found


def probe(model: nn.Module) -> list[list[float]]:
    """A few values of W_O of each layer, [L][8]: they tell a model from others, in any dtype and on any machine."""
    flat = [parts.o_proj.weight.detach().reshape(-1) for parts in decoder_layers(model)]
    return [w[:: len(w) // _PROBED][:_PROBED].float().tolist() for w in flat]


def is_of(found: dict[str, Any], model: nn.Module) -> bool:
    """Whether weights that `read_weights` read were learned from this model, up to rounding of its parameters."""
    stored, own = (torch.tensor(values) for values in (found.get("probe", []), probe(model)))
    return stored.shape == own.shape and bool((stored - own).norm() <= _SAME * own.norm())
