"""What the perturbation family shares: units of the input, their scores, and the cut to I (appendices D.1, D.2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ..attribution import Attribution, Method
from ..model.batched_forward import log_prob_of, score_rows
from ..model.context import mask_token
from ..sample import Sample, Span

TOKEN_LIMIT = 200  # |I| from which units="auto" changes a sentence at a time: a pass a token is still affordable below


def check_choice(option: str, value: Any, allowed: tuple) -> None:
    """Raise ValueError unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        raise ValueError(f"{option} must be one of {', '.join(map(str, allowed))}, got {value!r}")


def renormalise(signed: torch.Tensor) -> torch.Tensor:
    """Distribution over I from signed scores of I, float32 [|I|] (appendix D.1, second equation).

    A token that speaks against the target gets 0: the result is to be a distribution of evidence, and a sum in
    which signs cancel could turn the ranking around. Scores of which none is positive give all zeros: no evidence.
    """
    positive = signed.double().clamp_min(0)
    return (positive / positive.sum().clamp_min(torch.finfo(torch.float64).tiny)).float()


def of_signed(name: str, signed: torch.Tensor, forward_passes: int, **more) -> Attribution:
    """Attribution of the method ``name`` from signed scores of I; ``more`` goes to its metadata."""
    passes = {"forward_passes": forward_passes, "backward_passes": 0}
    return Attribution(renormalise(signed), name, metadata=passes | more | {"signed": signed.tolist()})


def unit_spans(sample: Sample, segment: Span, units: str) -> list[Span]:
    """Token ranges of the units that tile the words of one segment: its tokens or its sentences."""
    start, stop = segment
    tokens = [(i, i + 1) for a, b in sample.words(segment) for i in range(a, b)]
    if units == "token":
        return tokens
    spans = sorted(tuple(span) for span in sample.sentences or [] if span[0] < stop and span[1] > start)
    if tokens != [(i, i + 1) for a, b in spans for i in range(a, b)]:
        raise ValueError(
            f"sample {sample.id}: its sentences do not tile the words in [{start}, {stop}); units='sentence' needs "
            "Sample.sentences, token ranges that text.build_sample fills in; units='token' does not"
        )
    return spans


def over_input(sample: Sample, spans: list[Span], values: torch.Tensor) -> torch.Tensor:
    """The value of each unit at all of its tokens, [|I|]; 0 at the template's, which are in none."""
    signed, first = values.new_zeros(len(sample.prompt_ids)), sample.segments.prompt[0]
    for (start, stop), value in zip(spans, values, strict=True):
        signed[start - first : stop - first] = value
    return signed


@dataclass
class UnitMethod(Method):
    """A method that changes one or more units of the input and looks at what the model then says.

    Parameters
    ----------
    units : {"auto", "token", "sentence"}
        What is changed at a time. ``"auto"``: a token where |I| is below 200, else a sentence, the coarser unit that
        appendix D.2 takes for long contexts (it prints no limit). ``metadata["units"]`` says which it was.

    Each token of a sentence gets all of its score ("assigned uniformly to all its constituent tokens", appendix D.2).
    """

    units: str = "auto"

    removed: ClassVar[dict] = {"spread": "copy"}

    def __post_init__(self) -> None:
        check_choice("units", self.units, ("auto", "token", "sentence"))

    def options(self) -> dict[str, Any]:
        """The fields that shape the result, as in every method."""
        # Tokens have nothing to spread: they keep the key under which such results were first stored.
        return super().options() | ({"spread": "share"} if self.units == "token" else {})

    def _units(self, sample: Sample) -> str:
        """What is changed at a time in this sample: ``"token"`` or ``"sentence"``."""
        if self.units != "auto":
            return self.units
        return "token" if len(sample.prompt_ids) < TOKEN_LIMIT else "sentence"

    def _spans(self, sample: Sample) -> list[Span]:
        """Units of I, in the order of the text."""
        return unit_spans(sample, sample.segments.prompt, self._units(sample))

    def _losses(
        self, model, sample: Sample, rows: Iterator[torch.Tensor], total: int, in_place: bool = True
    ) -> torch.Tensor:
        """How badly each context predicts O: -log p(o_t | context), mean over its tokens, nats; float64 [total].

        Parameters
        ----------
        rows : iterator of torch.LongTensor
            Contexts up to the last token of O, exclusive.
        total : int
            How many.
        in_place : bool
            Contexts differ from the intact one from some position on, so that what stands before is computed once.
        """
        start, stop = sample.segments.output
        how = {"progress": f"{self.name} {sample.id}", "resembling": sample.input_ids[: stop - 1] if in_place else None}
        measure = log_prob_of(sample.input_ids[start:stop])
        return -score_rows(model, rows, stop - start, measure, total=total, **how).double().mean(1)

    def _attribution(self, sample: Sample, values: torch.Tensor, forward_passes: int, **metadata) -> Attribution:
        """Attribution from the score of each unit of I, float [U]."""
        signed = over_input(sample, self._spans(sample), values)
        metadata = {"n_units": len(values), "units": self._units(sample)} | metadata
        return of_signed(self.name, signed, forward_passes, **metadata)


def masked_rows(sample: Sample, spans: list[Span]) -> Iterator[torch.Tensor]:
    """The context up to the last token of O, exclusive; then once for each span with that span masked in place.

    Raises
    ------
    ValueError
        If the sample has no mask token.
    """
    mask, intact = mask_token(sample), sample.input_ids[: sample.segments.output[1] - 1].cpu()
    yield intact
    for start, stop in spans:
        row = intact.clone()
        row[start:stop] = mask
        yield row
