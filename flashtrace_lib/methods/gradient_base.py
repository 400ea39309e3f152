"""What gradient methods share: a clean graph, target values, memory budgets, the cut to I (appendix D.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from ..attribution import Attribution, Method
from ..kernel.decomposition import check_equal, check_ids, check_once, plain_logits
from ..model.architecture import family
from ..model.state import eager_maps, evaluating, model_budget
from ..sample import Sample, Span
from .hops import mass_by_segment
from .perturbation_base import renormalise


@dataclass
class GradientMethod(Method):
    """A method that differentiates the sum over the tokens of O.

    That is |O| times the average of the tokens' own vectors (appendix D.1), because differentiation is linear. What
    autograd keeps is cut to the memory that is free; one context that exceeds it is recomputed layer by layer.
    """

    def _attribution(self, signed: torch.Tensor, sample: Sample, **metadata: Any) -> Attribution:
        """Cut signed scores of the context to I (appendix D.1).

        Parameters
        ----------
        signed : torch.FloatTensor, shape [n]
            Scores of the first n tokens; those behind cannot matter and count 0.
        """
        positive = torch.zeros(len(sample), dtype=torch.float64)
        positive[: len(signed)] = signed.double().clamp_min(0)
        on_input = signed[slice(*sample.segments.prompt)]  # [|I|]
        metadata |= {"signed": on_input.tolist(), "mass": [mass_by_segment(positive, sample)]}
        return Attribution(renormalise(on_input), self.name, metadata=metadata)


@dataclass(frozen=True)
class Target:
    """The tokens of O and the positions that predict them.

    Parameters
    ----------
    context : torch.LongTensor, shape [n]
        The context without the last token of O, which predicts none of them.
    ids : torch.LongTensor, shape [M]
        Tokens of O.
    rows : (int, int)
        Positions whose logits predict them, one before each; the last one is n - 1.
    """

    context: torch.Tensor
    ids: torch.Tensor
    rows: Span


def target_of(model: nn.Module, sample: Sample) -> Target:
    """Target of ``sample`` on the model's device (appendix D.1: every token of O)."""
    start, stop = sample.segments.output
    ids = sample.input_ids.to(input_device(model))
    return Target(ids[: stop - 1], ids[start:stop], (start - 1, stop - 1))


def input_device(model: nn.Module) -> torch.device:
    """Device of the input embeddings."""
    return model.get_input_embeddings().weight.device


def embed(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Input embeddings of one context, outside any graph, shape [1, n, d]."""
    with torch.no_grad():
        return model.get_input_embeddings()(ids[None]).detach()


def log_probs(model: nn.Module, embeddings: torch.Tensor, target: Target) -> torch.Tensor:
    """Log-probability of each target token given what stands before it, nats.

    Parameters
    ----------
    embeddings : torch.Tensor, shape [B, n, d]
    target : Target

    Returns
    -------
    torch.FloatTensor, shape [B, M]
    """
    keep = torch.arange(*target.rows)  # on the CPU, from where they index states on whatever device these end
    try:
        logits = model(inputs_embeds=embeddings, use_cache=False, logits_to_keep=keep).logits  # [B, M, V]
    except RuntimeError as error:
        if "inputs_embeds" not in str(error):
            raise
        raise ValueError(
            f"{family(model)} reads embeddings that are a token's alone, and integrated gradients need those between: "
            "use another method"
        ) from error
    logits = logits[:, -len(target.ids) :].float()  # a model that does not know logits_to_keep returns all
    ids = target.ids.to(logits.device).expand(len(logits), -1)  # [B, M]
    return logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]


def log_probs_of_text(model: nn.Module, target: Target) -> torch.Tensor:
    """`log_probs` of the text as it is, handed over as embeddings, outside any graph, shape [M]."""
    with torch.inference_mode(False), torch.no_grad(), evaluating(model):
        return log_probs(model, embed(model, target.context), target)[0]


def check_forward(model: nn.Module, method: str, values: Callable[[Target], torch.Tensor], *, logits: bool) -> None:
    """Assert that a method's own way through the model predicts what the model predicts; see `check_once`.

    Embeddings that are handed over in the place of tokens, other attention functions and logits that are formed by
    hand may each leave out something that a family does.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    method : str
        For the message.
    values : callable
        Takes a `Target`; returns the logit, or log-probability, of each of its M tokens, float32 [M].
    logits : bool
        Which of the two.

    Raises
    ------
    ValueError
        If they differ.
    """

    def check() -> None:
        ids = check_ids(model).to(input_device(model))
        target = Target(ids[:-1], ids[1:], (0, len(ids) - 1))
        try:
            found = values(target).detach().float().cpu()  # [M]
        except (ValueError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # of the model's own code, which has no common kind
            raise ValueError(
                f"{family(model)} cannot be explained by {method}: its code fails there ({type(error).__name__}: "
                f"{str(error)[:200]}); use another method"
            ) from error
        plain = plain_logits(model, target.context).cpu()  # [M, V]
        plain = plain if logits else plain.log_softmax(-1)
        expected = plain.gather(-1, target.ids.cpu()[:, None])[:, 0]  # [M]
        check_equal(model, found[None], expected[None], f"under {method}")

    check_once(model, method, check)


@contextmanager
def differentiable(model: nn.Module, *, recompute: bool = False) -> Iterator[None]:
    """Gradients on, dropout off, parameters without gradients; everything is restored afterwards.

    Frozen parameters keep autograd from saving each layer's input for weight gradients that nobody wants.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    recompute : bool
        Keep only the input of each decoder layer and run the layer again in the backward pass.
    """
    trainable = [p for p in model.parameters() if p.requires_grad]
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(evaluating(model))
        stack.callback(lambda: [p.requires_grad_(True) for p in trainable])
        for parameter in trainable:
            parameter.requires_grad_(False)
        if recompute:
            stack.enter_context(_recomputing(model))
        yield


@contextmanager
def _recomputing(model: nn.Module) -> Iterator[None]:
    """Gradient checkpointing of the decoder layers, by their own flags, set on this model alone."""
    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    settings = {
        "gradient_checkpointing": True,
        "_gradient_checkpointing_func": partial(checkpoint, use_reentrant=False),
        "training": True,  # of the layer alone, which only asks whether to checkpoint; dropout is in its children
    }
    before = [{name: layer.__dict__[name] for name in settings if name in layer.__dict__} for layer in layers]
    try:
        for layer in layers:
            layer.__dict__.update(settings)
        yield
    finally:
        for layer, old in zip(layers, before, strict=True):
            for name in settings:
                layer.__dict__.pop(name)
            layer.__dict__.update(old)


def fits(
    model: nn.Module, n_tokens: int, n_targets: int, n_layers: int | None = None, maps: int | None = None, more: int = 0
) -> int:
    """How many contexts autograd may keep at once; 0 where not even one fits the memory. A rough estimate.

    Per layer (of ``n_layers``, by default all) and token: about 12 vectors of width d and 4 of the MLP's width;
    ``maps`` attention maps (default: those that the model forms where it runs eagerly); log-probabilities of the
    targets over the vocabulary; and ``more`` bytes.
    """
    config = model.config.get_text_config()
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    item = next(model.parameters()).element_size()
    per_layer = n_tokens * (12 * config.hidden_size + 4 * inner) * item
    maps = eager_maps(config) if maps is None else maps
    per_layer += maps * n_tokens**2 * (2 * item + 4)  # scores, their cap, and the float32 softmax
    each = (n_layers or config.num_hidden_layers) * per_layer + n_targets * config.vocab_size * (item + 8) + more
    return model_budget(model) // each


def check_steps(steps: int) -> None:
    """Raise ValueError unless ``steps`` is a whole number of at least 20."""
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 20:
        raise ValueError(f"steps must be a whole number of at least 20, got {steps!r}: fewer leave a large gap")
