"""One (method, sample) pair -> the record that is stored: its key, its raw columns, where it came from."""

import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
import transformers

from ..attribution import Method, sentences_of_input
from ..fingerprints import code_fingerprint, fingerprint, model_fingerprint, sample_fingerprint
from ..metrics import Scorer
from ..metrics.deletion import dtype_name
from ..model.wrapped import unwrap
from ..sample import Sample
from .ablations import Record, mask_columns, masks_key, sources_of_input

RECORD_VERSION = 1  # raise when what a record's raw columns mean changes; definitions of metrics do not matter


class Recorder:
    """What all records of one run share: the model, the scorer, the number of steps and the provenance."""

    def __init__(self, model, scorer: Scorer | None, steps: int, tolerance: float = 0.0):
        model = unwrap(model)
        if scorer is not None and scorer.model is not model:
            raise ValueError("the scorer wraps another model: build it with Scorer(model)")
        self.model, self.steps, self.tolerance = model, steps, tolerance
        self.scorer = scorer if scorer is not None else Scorer(model, precision="auto")
        # The arithmetic that was asked for, as keys have it; a dtype that is not the model's own stands beside it.
        other = self.scorer.precision == "model" and self.scorer.dtype not in (None, dtype_name(model))
        self.precision = f"model:{self.scorer.dtype}" if other else self.scorer.precision
        self.model_key = model_fingerprint(model)
        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        self.provenance = {
            "model_key": self.model_key,
            "model": str(getattr(model.config, "_name_or_path", "") or type(model).__name__),
            "model_dtype": str(model.dtype).removeprefix("torch."),
            "device": str(model.device),
            "code": code_fingerprint(),
            "versions": to_json({**versions, "python": platform.python_version()}, "versions"),
        }

    def key(self, method: Method, sample: Sample) -> str:
        """Key of everything that shapes the record."""
        shared = (self.steps, self.precision, self.tolerance)
        return record_key(self.model_key, sample_fingerprint(sample), method, *shared)

    def masks_key(self, sample: Sample, n: int) -> str:
        """Key of the record of a sample's masks."""
        return masks_key(self.model_key, sample_fingerprint(sample), sources_of_input(sample), n, self.precision)

    def attribution(self, method: Method, sample: Sample) -> Record:
        """Attribute, and return the raw columns that need no deletion curve."""
        result, spans = method.attribute(self.model, sample), sample.segments
        return {
            "method_name": method.name,
            "options": to_json(method.options(), f"options of {method.name}"),
            "method_metadata": to_json(result.metadata, f"metadata of {method.name}"),
            "sample_metadata": to_json(sample.metadata, f"metadata of sample {sample.id}"),
            "sample_key": sample_fingerprint(sample), "seconds": float(result.seconds),
            "n_tokens": len(sample), "n_input": len(sample.prompt_ids),
            "n_reasoning": spans.reasoning[1] - spans.reasoning[0], "n_output": spans.output[1] - spans.output[0],
            "scores": result.scores.numpy(), "steps": self.steps, "log_probs": None,
            "hop_scores": [hop.scores.detach().float().cpu().numpy() for hop in result.hops],
            "hop_targets": [list(hop.target) for hop in result.hops],
            "flow": [float(rho) for rho in result.flow], **self.provenance,
        }  # fmt: skip

    def curve(self, sample: Sample, scores) -> Record:
        """Columns of the deletion curve of ``scores``."""
        curve = self.scorer.curve(sample, scores, self.steps, self.tolerance)
        listed = {name: getattr(curve, name).tolist() for name in ("log_probs", "cumulative", "n_masked")}
        told = {"evaluated": curve.evaluated, "mask_token_id": curve.mask_token_id}
        return listed | told | {"curve_dtype": curve.dtype, "curve_note": curve.note}

    def masks(self, sample: Sample, n: int) -> Record:
        """The whole record of a sample's masks."""
        columns = mask_columns(self.scorer, sample, n)
        return columns | labels(sample) | {"sample_key": sample_fingerprint(sample), **self.provenance}


def record_key(
    model_key: str, sample_key: str, method: Method, steps: int, precision: str, tolerance: float = 0.0
) -> str:
    """Key of a stored record; it knows the names of classes and options, never where they are defined."""
    shaped_by = {
        "version": RECORD_VERSION,
        "model": model_key,
        "sample": sample_key,
        "method": [type(method).__qualname__, method.name, method.options()],
        "steps": steps,
        "precision": precision,
        **({"tolerance": tolerance} if tolerance else {}),  # an option that came after results had been stored
    }
    return fingerprint(shaped_by)


def labelled(methods: Iterable[Method] | Mapping[str, Method]) -> dict[str, Method]:
    """Label -> method; refuses double labels and methods whose state could not be part of a key."""
    pairs = list(methods.items()) if isinstance(methods, Mapping) else [(method.name, method) for method in methods]
    if len({label for label, _ in pairs}) < len(pairs):
        raise ValueError(f"two methods share a name in {[label for label, _ in pairs]}: pass a dict label -> method")
    for label, method in pairs:
        known = [field.name for field in fields(method)] if is_dataclass(method) else []
        if unknown := [name for name in vars(method) if name not in known and not name.startswith("_")]:
            raise ValueError(f"method {label} is no dataclass with {unknown}, which stored keys could not tell")
    return dict(pairs)


def facts(sample: Sample) -> Record:
    """What ranking metrics ask of a sample beside its scores; token ranges are counted from the first token of I."""
    first = sample.segments.prompt[0]
    return {
        "gold": None if sample.gold is None else sample.gold_in_prompt.tolist(),
        "sentences": [list(span) for span in sentences_of_input(sample)],
        "haystack": [position - first for position in sample.haystack],
        "words": sample.not_blank[slice(*sample.segments.prompt)],
    }


def labels(sample: Sample) -> dict[str, Any]:
    """Names under which a sample appears in the tables, who wrote its answer, and whether it is right."""
    named = {name: str(sample.metadata.get(name, "")) for name in ("task", "cell")}
    score, forced = sample.metadata.get("score"), sample.metadata.get("response") == "teacher-forced"
    right = None if score is None else bool(score == 1)
    return {"sample": sample.id, **named, "answers": "forced" if forced else "own", "right": right}


def to_json(value: Any, name: str) -> str:
    """JSON text of ``value``; ValueError naming ``name`` where it has no JSON form."""
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    except TypeError as error:
        raise ValueError(f"{name} is not JSON-ready ({error}): keep to numbers, text, lists and dicts") from error
