"""A trace as JSON and back, in the format of ``schemas/trace-2.schema.json``."""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import torch

from ..attribution import Attribution, Hop, sentences_of_input
from ..sample import Sample, Segments, Span
from ..text.sentences import question_in

FORMAT = 2  # of the file; 1 had neither messages nor sentences


def schema() -> dict[str, Any]:
    """The published JSON schema of the format."""
    return json.loads((files(__package__) / "schemas" / f"trace-{FORMAT}.schema.json").read_text(encoding="utf-8"))


def as_dict(
    sample: Sample, attribution: Attribution, model_name: str, targets: Sequence[tuple[Span, Attribution]]
) -> dict[str, Any]:
    """A trace, JSON-ready."""
    segments = sample.segments
    return {
        "format": FORMAT, "model": _clean(model_name), "method": attribution.method,
        "options": _plain(attribution.metadata.get("options", {})), "input_ids": sample.input_ids.tolist(),
        "tokens": [_clean(token) for token in sample.tokens or []],
        "segments": {name: list(getattr(segments, name)) for name in ("prompt", "reasoning", "output")},
        "response": list(sample.response), "sentences": [list(span) for span in sample.sentences or []],
        "messages": _plain(sample.metadata.get("messages", [])),
        "marks": [list(span) for span in sample.metadata.get("marks", [])],
        "reply": {"format": sample.metadata.get("format", ""), "cautions": sample.metadata.get("cautions", [])},
        "mask_token_id": sample.mask_token_id, **_attribution_dict(attribution),
        "targets": [{"span": list(span), **_attribution_dict(result)} for span, result in targets],
    }  # fmt: skip


def from_dict(data: Any) -> tuple[Sample, Attribution, str, list[tuple[Span, Attribution]]]:
    """The inverse of `as_dict`.

    Raises
    ------
    ValueError
        If the format is another one, or something is missing or does not fit the rest.
    """
    version = data.get("format") if isinstance(data, dict) else None
    if version != FORMAT:
        raise ValueError(f"this is no trace of format {FORMAT} (its format is {version!r}): trace the text again")
    try:
        sample = _sample(data)
        _checked_texts([data["model"]])
        attribution = _attribution(data, sample, data)
        targets = [(tuple(t["span"]), _attribution(t, sample.with_output(t["span"]), data)) for t in data["targets"]]
        return sample, attribution, data["model"], targets
    except (KeyError, TypeError, AttributeError, IndexError, RuntimeError, OverflowError) as error:
        raise ValueError(f"the trace is damaged: {type(error).__name__} {error}") from error


def _sample(data: dict[str, Any]) -> Sample:
    marks = [(int(start), int(stop)) for start, stop in data.get("marks", [])]  # version 1.0 wrote none, and no reply
    reply = data.get("reply", {})
    _checked_texts([*(data["tokens"] or []), reply.get("format", ""), *reply.get("cautions", [])])
    metadata = {"messages": data["messages"], "marks": marks, **reply}
    segments = Segments(**{name: tuple(span) for name, span in data["segments"].items()})
    sentences = [tuple(span) for span in data["sentences"]]
    if data["tokens"] and sentences:
        metadata |= question_in(data["tokens"], sentences, segments.prompt, data["messages"])
    return Sample(
        torch.tensor(data["input_ids"], dtype=torch.long), segments, response=tuple(data["response"]),
        tokens=data["tokens"] or None, sentences=sentences or None, mask_token_id=data["mask_token_id"],
        metadata={name: value for name, value in metadata.items() if value or name == "question_start"},
    )  # fmt: skip


def _checked_texts(values: list[Any]) -> None:
    if wrong := [value for value in values if not isinstance(value, str)]:
        raise TypeError(f"{wrong[0]!r} is no text")


def _attribution_dict(attribution: Attribution) -> dict[str, Any]:
    """Scores, flow and hops of one target."""
    metadata = {name: value for name, value in attribution.metadata.items() if name != "options"}
    return {
        "scores": _numbers(attribution.scores), "seconds": attribution.seconds,
        "flow": [float(rho) for rho in attribution.flow],
        "hops": [
            {"target": list(h.target), "weights": _numbers(h.weights), "scores": _numbers(h.scores), "scale": h.scale}
            for h in attribution.hops
        ],
        "metadata": _plain(metadata),
    }  # fmt: skip


def _attribution(data: dict[str, Any], sample: Sample, trace: dict[str, Any]) -> Attribution:
    """Attribution of one target, with method and options of the trace; ValueError where it does not fit the sample."""
    hops = [Hop(torch.tensor(h["scores"]), tuple(h["target"]), torch.tensor(h["weights"]), h.get("scale", 1.0))
            for h in data["hops"]]  # fmt: skip
    lengths = {"scores": (len(data["scores"]), len(sample.prompt_ids)), "flow": (len(data["flow"]), len(hops))}
    for k, hop in enumerate(hops):
        lengths[f"scores of hop {k}"] = (len(hop.scores), len(sample))
        lengths[f"weights of hop {k}"] = (len(hop.weights), hop.target[1] - hop.target[0])
    compared = {name: torch.tensor(o["scores"]) for name, o in data["metadata"].get("compared", {}).items()}
    lengths |= {f"scores of {name}": (len(other), len(sample.prompt_ids)) for name, other in compared.items()}
    for name, (length, expected) in lengths.items():
        if length != expected:
            raise ValueError(f"the trace is damaged: {length} {name} where {expected} belong")
    scores, flow = torch.tensor(data["scores"]), torch.tensor([*data["flow"], *(hop.scale for hop in hops)])
    numbers = [scores, flow, *(hop.scores for hop in hops), *(hop.weights for hop in hops), *compared.values()]
    if not all(values.isfinite().all() for values in numbers):
        raise ValueError("the trace is damaged: some scores are not finite")
    metadata, sentences = {"options": trace["options"], **data["metadata"]}, sentences_of_input(sample)
    return Attribution(scores, trace["method"], data["seconds"], hops, data["flow"], metadata, sentences)


def _numbers(values: torch.Tensor) -> list[float]:
    """float32 values as the shortest decimals that read back as the same float32."""
    return [float(str(value)) for value in values.cpu().numpy().astype(np.float32)]


def _plain(value: Any) -> Any:
    """The value after a round trip through JSON: tuples as lists, names as text."""
    return json.loads(json.dumps(value, default=str))


def _clean(text: str) -> str:
    """Lone surrogates replaced: UTF-8 has no place for them."""
    return text.encode("utf-8", "replace").decode("utf-8")
