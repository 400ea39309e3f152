"""What gradient methods share: a clean graph, target values, memory budgets, the cut to I (appendix D.1)."""

import threading
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
from ..kernel.decomposition import check_readable
from ..kernel.interception import is_foreign
from ..model.architecture import family, is_plain, text_decoder
from ..model.checks import check_equal, check_ids, check_once, plain_logits, run_checked
from ..model.state import eager_maps, evaluating, input_device, mlp_width, model_budget
from ..sample import Sample, Span
from .hops import mass_by_segment
from .perturbation_base import renormalise


@dataclass
class GradientMethod(Method):
    """A method that differentiates the sum over the tokens of O.

    That is |O| times the average of the tokens' own vectors (appendix D.1), because differentiation is linear. What
    autograd keeps is cut to the memory that is free; one context that exceeds it is recomputed layer by layer.
    """

    def _attribution(self, model: nn.Module, signed: torch.Tensor, sample: Sample, **metadata: Any) -> Attribution:
        """Cut signed scores of the context to I (appendix D.1); ValueError where all are 0 and O rests on it yet.

        Parameters
        ----------
        signed : torch.FloatTensor, shape [n]
            Scores of the first n tokens; those behind cannot matter and count 0.
        **metadata
            Of the attribution; ``passed=True`` says that a gradient is known to have come through, and is not kept.
        """
        positive = torch.zeros(len(sample), dtype=torch.float64)
        positive[: len(signed)] = signed.double().clamp_min(0)
        on_input = signed[slice(*sample.segments.prompt)]  # [|I|]
        if not (metadata.pop("passed", False) or on_input.any()) and _rests_on_input(model, sample):
            raise ValueError(
                f"{self.name}: the gradient is exactly 0 at every token of the input of sample {sample.id}, on which "
                "the output rests: some layer passes none on (a quantised one?); use a method without gradients "
                "('flashtrace', 'perturbation')"
            )
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


def _rests_on_input(model: nn.Module, sample: Sample) -> bool:
    """Whether O's log-probabilities change with the embeddings of I."""
    target = target_of(model, sample)
    embeddings = embed(model, target.context).repeat(2, 1, 1)  # [2, n, d]
    embeddings[1, slice(*sample.segments.prompt)] *= -1
    with torch.inference_mode(False), torch.no_grad(), evaluating(model):
        plain, changed = log_probs(model, embeddings, target)  # [M] each
    return not torch.equal(plain, changed)


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
        check_readable(model)
        run_checked(model, f"by {method}", partial(check_gradients, model, target))
        found = run_checked(model, f"by {method}", partial(values, target)).detach().float().cpu()  # [M]
        plain = plain_logits(model, target.context).cpu()  # [M, V]
        plain = plain if logits else plain.log_softmax(-1)
        expected = plain.gather(-1, target.ids.cpu()[:, None])[:, 0]  # [M]
        check_equal(model, found[None], expected[None], f"under {method}")

    check_once(model, method, check)


def check_gradients(model: nn.Module, target: Target) -> None:
    """ValueError where a layer gives its input no gradient, or a linear one a gradient that is not its slope.

    Packed and quantised layers may round on the way, where autograd sees no slope. PyTorch's own with plain weights
    need no test; of other linear layers one of each kind is tested, on what it reads.
    """
    kinds: dict[tuple[str, str], Callable[[], bool]] = {}

    def look(layer: nn.Module, args: tuple, kwargs: dict[str, Any], out: Any) -> None:
        x, out = args[0] if args else kwargs.get("hidden_states"), out[0] if isinstance(out, tuple) else out
        states = [t for t in (x, out) if isinstance(t, torch.Tensor) and t.is_floating_point() and t.ndim == 3]
        if len(states) < 2 or not x.requires_grad or not torch.is_grad_enabled() or isinstance(layer, nn.Embedding):
            return
        weight = getattr(layer, "weight", None)
        kind = type(layer).__name__, type(weight).__name__
        if not out.requires_grad and (x.shape == out.shape or weight is not None):
            kinds[kind] = lambda: False
        elif hasattr(layer, "in_features") and not (type(layer) is nn.Linear and is_plain(weight)):
            kinds.setdefault(kind, partial(_has_slope, layer, x.detach()))

    with differentiable(model), ExitStack() as stack:
        for layer in {*text_decoder(model).modules(), model.get_output_embeddings()} - {None}:
            stack.callback(layer.register_forward_hook(look, with_kwargs=True).remove)
        log_probs(model, embed(model, target.context).requires_grad_() * 1, target)  # no leaf: some write into it
    with differentiable(model):
        wrong = [kind for kind, has_slope in kinds.items() if not has_slope()]
    if wrong:
        raise ValueError(
            f"{wrong[0][0]} (weight: {wrong[0][1]}) passes no gradient on, or a wrong one, so this method would be "
            "silently wrong: load the model unquantised, or use one without gradients ('flashtrace', 'perturbation')"
        )


def _has_slope(layer: nn.Module, x: torch.Tensor) -> bool:
    """Whether autograd's slope of a layer at x [1, n, d_in] is what a step changes; of one that is not linear, any."""
    step = x.roll(1, 1)  # another token's state
    change, size = (out := layer(x + step) - layer(x)).detach(), out.detach().float().square().sum()
    try:
        x = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad((layer(x) * change).sum(), x)  # [1, n, d_in]
    except RuntimeError:  # no graph, or no backward pass
        return False
    bent = (layer(step) - layer(torch.zeros_like(x)) - change).detach().float().square().sum()
    off = ((gradient * step).float().sum() - size).abs()
    return bool(gradient.any()) and bool(bent > 0.01 * size or off < 0.2 * size)


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
    """Gradient checkpointing of the decoder layers, on this model and in this thread alone."""
    owner = threading.get_ident()

    def recomputed(forward: Callable) -> Callable:
        again = partial(checkpoint, forward, use_reentrant=False)
        return lambda *args, **kwargs: (forward if is_foreign(owner) else again)(*args, **kwargs)

    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    before = [vars(layer).get("forward") for layer in layers]
    try:
        for layer in layers:
            layer.forward = recomputed(layer.forward)
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            del layer.forward
            if own is not None:
                layer.forward = own


def fits(
    model: nn.Module, n_tokens: int, n_targets: int, n_layers: int | None = None, maps: int | None = None, more: int = 0
) -> int:
    """How many contexts autograd may keep at once; 0 where not even one fits the memory. A rough estimate.

    Per layer (of ``n_layers``, by default all) and token: about 12 vectors of width d and 4 of the MLP's width;
    ``maps`` attention maps (default: those that the model forms where it runs eagerly); log-probabilities of the
    targets over the vocabulary; and ``more`` bytes.
    """
    config = model.config.get_text_config()
    item = next(model.parameters()).element_size()
    per_layer = n_tokens * (12 * config.hidden_size + 4 * mlp_width(config)) * item
    maps = eager_maps(config) if maps is None else maps
    per_layer += maps * n_tokens**2 * (2 * item + 4)  # scores, their cap, and the float32 softmax
    each = (n_layers or config.num_hidden_layers) * per_layer + n_targets * config.vocab_size * (item + 8) + more
    return model_budget(model) // each


def check_steps(steps: int) -> None:
    """Raise ValueError unless ``steps`` is a whole number of at least 20."""
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 20:
        raise ValueError(f"steps must be a whole number of at least 20, got {steps!r}: fewer leave a large gap")
