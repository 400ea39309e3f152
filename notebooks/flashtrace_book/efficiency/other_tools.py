"""Published tools beside the library's methods, at equal lengths: an adapter each, skipped where the package is absent.

An adapter is a `Method` like any other, so that `worker` measures it in the same way, against the same forward pass and
under the same limits. Only time and memory are compared: on random tokens the scores say nothing. The authors' package
may lie in a folder of its own, since its command is called ``flashtrace`` as well: ``pip install --target build/tools``
spacy and wordfreq, and ``flashtrace==0.1.1`` with ``--no-deps``.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar

import torch

from flashtrace_lib.attribution import Attribution, Method
from flashtrace_lib.files import build_root
from flashtrace_lib.kernel.interception import attention_implementation
from flashtrace_lib.methods import METHODS
from flashtrace_lib.methods.gradient_base import log_probs, target_of
from flashtrace_lib.methods.perturbation_base import renormalise, unit_spans
from flashtrace_lib.sample import Sample

_WORD = " the"  # one token in the vocabularies of the models here; its meaning does not matter
sys.path.append(str(build_root() / "tools"))


@dataclass
class CaptumAblation(Method):
    """captum's ``FeatureAblation`` of the sentences of I, one pass a sentence; the nearest to `Perturbation`."""

    name: ClassVar[str] = "captum_ablation"

    def _attribute(self, model: torch.nn.Module, sample: Sample) -> Attribution:
        from captum.attr import FeatureAblation

        target, spans = target_of(model, sample), unit_spans(sample, sample.segments.prompt, "sentence")
        start, stop = sample.segments.prompt
        lengths = torch.tensor([last - first for first, last in spans])
        features = torch.arange(len(spans)).repeat_interleave(lengths).to(target.context.device)  # [|I|]

        @torch.inference_mode()
        def forward(inputs: torch.Tensor) -> torch.Tensor:
            contexts = target.context.repeat(len(inputs), 1)  # [B, n]
            contexts[:, start:stop] = inputs
            return log_probs(model, model.get_input_embeddings()(contexts), target).sum(1)  # [B]

        drops = FeatureAblation(forward).attribute(
            target.context[None, start:stop], baselines=sample.mask_token_id, feature_mask=features[None]
        )
        scores = renormalise(drops[0].float().cpu())
        return Attribution(scores, self.name, metadata={"forward_passes": 1 + len(spans)})


@dataclass
class PublishedFlashTrace(Method):
    """The authors' package. It takes text: it gets one of as many tokens as the sample has.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        The model's.
    recompute : bool
        Recompute attention instead of keeping all maps.
    """

    tokenizer: Any = field(default=None, repr=False)
    recompute: bool = False

    name: ClassVar[str] = "published_flashtrace"

    def _attribute(self, model: torch.nn.Module, sample: Sample) -> Attribution:
        from flashtrace import FlashTrace

        n_input, n_generated = sample.segments.prompt[1], len(sample) - sample.segments.prompt[1]
        first_output = sample.segments.output[0] - sample.segments.generated[0]
        with attention_implementation(model, "eager"):  # with sdpa it finds no attention maps
            tracer = FlashTrace(model, self.tokenizer, recompute_attention=self.recompute)
            trace = tracer.trace(
                prompt=_WORD * n_input, target=_WORD * n_generated, hops=1,
                output_span=(first_output, n_generated - 1), reasoning_span=(0, max(first_output - 1, 0)),
            )  # fmt: skip
        scores = torch.tensor(trace.scores)
        return Attribution(scores, self.name, metadata={"forward_passes": 1, "input_tokens": len(scores)})


@dataclass
class InseqGradient(Method):
    """inseq's input x gradient of the probability of every generated token, one backward pass each; it takes text, too.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        The model's.
    """

    tokenizer: Any = field(default=None, repr=False)

    name: ClassVar[str] = "inseq_gradient"

    def _attribute(self, model: torch.nn.Module, sample: Sample) -> Attribution:
        import inseq

        n_input, n_generated = sample.segments.prompt[1], len(sample) - sample.segments.prompt[1]
        prompt = _WORD * n_input
        attribution = inseq.load_model(model, "input_x_gradient", tokenizer=self.tokenizer).attribute(
            prompt, prompt + _WORD * n_generated, show_progress=False, step_scores=[]
        )
        table = attribution.sequence_attributions[0].target_attributions  # [N, |T| + |O|, d]
        scores = table[:n_input].nan_to_num().norm(dim=-1).sum(1)  # inseq's own aggregation, then the target's sum
        return Attribution(scores.float().cpu(), self.name, metadata={"forward_passes": n_generated})


ADAPTERS = {  # tool -> its package, the method that runs it, and its options
    "captum_ablation": ("captum", CaptumAblation, {}),
    "inseq_gradient": ("inseq", InseqGradient, {}),
    "published_flashtrace": ("flashtrace", PublishedFlashTrace, {}),
    "published_flashtrace_recompute": ("flashtrace", PublishedFlashTrace, {"recompute": True}),
}


def available(names: Iterable[str]) -> list[str]:
    """Those of some tools whose package is installed."""
    return [name for name in names if find_spec(ADAPTERS[name][0])]


def build(name: str, options: Mapping[str, Any], tokenizer: Any) -> Method:
    """A method of the library, or a tool's adapter, by its name."""
    if name not in ADAPTERS:
        return METHODS[name](**options)
    _, kind, own = ADAPTERS[name]
    return kind(**own, **options, **({"tokenizer": tokenizer} if hasattr(kind, "tokenizer") else {}))
