"""What every attribution method returns, and the one abstract class they share."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar

import torch

from .model.context import check_context
from .model.wrapped import in_use
from .sample import Sample, Span


@dataclass
class Hop:
    """One attribution pass.

    Parameters
    ----------
    scores : torch.FloatTensor, shape [N]
        Distribution over the whole context; sums to 1.
    target : (int, int)
        Token range that was explained.
    weights : torch.FloatTensor, shape [target length]
        Weight of each target token.
    scale : float
        Factor of the scores in the sum over hops; 1 unless hops are added with their raw sums over layers.
    """

    scores: torch.Tensor
    target: Span
    weights: torch.Tensor
    scale: float = 1.0


@dataclass(repr=False)
class Attribution:
    """Importance of the input tokens.

    Parameters
    ----------
    scores : torch.FloatTensor, shape [|I|]
        Final input importance.
    method : str
        Name of the method, as in the tables.
    seconds : float
        Wall-clock time of ``attribute``, s.
    hops : list of Hop
        The passes behind it (FlashTrace); empty for methods without hops.
    flow : list of float
        ``[rho_0, rho_1, ...]``, the share of hop k's mass that lies on T (section 4.3).
    metadata : dict
        Options of the method, counts of forward and backward passes, notes.
    sentences : list of (int, int)
        Token ranges of the sentences that tile I, counted from its first token; empty where the sample has none.
    """

    scores: torch.Tensor
    method: str
    seconds: float = 0.0
    hops: list[Hop] = field(default_factory=list)
    flow: list[float] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    sentences: list[Span] = field(default_factory=list)

    def __repr__(self) -> str:
        flow = ", ".join(f"{rho:.2f}" for rho in self.flow)
        return f"Attribution({self.method}: {len(self.scores)} scores, flow [{flow}], {self.seconds:.2f} s)"

    def by_sentence(self) -> torch.Tensor:
        """Importance of every sentence of I: the sum of its tokens' scores.

        Of a method that scores sentences and gives each token a copy (``spread="copy"``), the score that was copied.

        Returns
        -------
        torch.FloatTensor, shape [U]
            In the order of ``sentences``.

        Raises
        ------
        ValueError
            If the sample had no sentences.
        """
        if not self.sentences:
            raise ValueError(
                f"{self.method}: the sample has no sentences in its input: build it with text.build_sample, or set "
                "Sample.sentences"
            )
        return sentence_scores(self.scores, self.sentences, holds_copies(self.metadata))


def sentence_scores(scores: torch.Tensor, sentences: Sequence[Span], copies: bool = False) -> torch.Tensor:
    """Sum (of copies: mean) of the scores [|I|] over each of the token ranges, counted from the start of I; [U]."""
    parts = [scores[start:stop] for start, stop in sentences]
    return torch.stack([part.mean() if copies else part.sum() for part in parts])


def holds_copies(metadata: Mapping[str, Any]) -> bool:
    """Whether, by an attribution's metadata, every token holds a copy of its sentence's score."""
    return metadata.get("units") == "sentence" and metadata.get("options", {}).get("spread") == "copy"


def sentences_of_input(sample: Sample) -> list[Span]:
    """Token ranges of the sentences of I, counted from its first token."""
    first, stop = sample.segments.prompt
    return [(a - first, b - first) for a, b in sorted(sample.sentences or ()) if first <= a and b <= stop]


class Method(ABC):
    """An attribution method: a dataclass of options with one job, ``attribute``.

    Subclasses set ``name`` (the key in tables) and implement ``_attribute``. Of an option that came after results had
    been stored (``added_after_v1``) a key says something only where it differs from its default; one that went
    (``removed``) stays in the keys with the value that it now always has. ``revision`` is raised when the algorithm
    changes under the same options, so that results of the former one are not taken for it.
    """

    name: ClassVar[str] = "method"
    added_after_v1: ClassVar[tuple[str, ...]] = ()
    removed: ClassVar[Mapping[str, Any]] = {}
    revision: ClassVar[int] = 1

    @abstractmethod
    def _attribute(self, model: torch.nn.Module, sample: Sample) -> Attribution:
        """Explain ``sample``; ``attribute`` adds the time and the options."""

    def attribute(self, model: torch.nn.Module, sample: Sample) -> Attribution:
        """Importance of the tokens of I for what the model generated.

        Parameters
        ----------
        model : transformers.PreTrainedModel
            A causal language model, or one that is compiled, parallel or has a value head (`wrapped.unwrap`); left
            exactly as it was. Threads that share it take turns.
        sample : Sample
            The context and its segments.

        Returns
        -------
        Attribution
            ``scores`` is float32 of shape [|I|] on the CPU.

        Raises
        ------
        ValueError
            If the scores are not finite (the activations overflowed), an option does not fit the sample, or the
            model cannot read the context (`context.check_context`).
        """
        with in_use(model) as model:
            start = time.perf_counter()
            check_context(model, sample)
            return self._finished(self._attribute(model, sample), sample, time.perf_counter() - start)

    def _finished(self, result: Attribution, sample: Sample, seconds: float) -> Attribution:
        """Add time and options to a result; ValueError where its scores are not finite."""
        result.seconds = seconds
        result.scores = result.scores.float().cpu()
        if not torch.isfinite(result.scores).all():
            raise ValueError(f"{self.name}: non-finite scores for sample {sample.id}; load it in float32 or bfloat16")
        result.metadata = {"options": self.options(), **result.metadata}
        result.sentences = sentences_of_input(sample)
        return result

    def options(self) -> dict[str, Any]:
        """The fields that shape the result, JSON-ready: part of every store key."""
        options = {f.name: (getattr(self, f.name), f.default) for f in fields(self)} if is_dataclass(self) else {}
        late = self.added_after_v1
        shaping = {name: value for name, (value, default) in options.items() if name not in late or value != default}
        return {**self.removed, **shaping} | ({"revision": self.revision} if self.revision > 1 else {})
