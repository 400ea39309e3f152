"""The evaluation: every method on every sample; several processes may share a store."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pandas as pd
import torch
from tqdm import tqdm

from ..attribution import Method
from ..methods import chosen_method
from ..metrics import Scorer
from ..names import check_order
from ..sample import Sample
from ..store import Store
from .ablations import MASK_COLUMNS, Memory, Record, masks_beside
from .recorder import Recorder, facts, labelled, labels
from .results_table import DEFAULT_METRICS, ON_CURVE, check_metrics, frame_from_records, has_curve


def evaluate(
    model: torch.nn.Module, methods: Iterable[Method | str] | Mapping[str, Method], samples: Iterable[Sample], *,
    store: Store | str | os.PathLike[str] | None = None, metrics: Sequence[str] = DEFAULT_METRICS, steps: int = 20,
    tolerance: float = 0.0, masks: int = 64, scorer: Scorer | None = None, progress: bool = True,
) -> pd.DataFrame:  # fmt: skip
    """Attribute every sample with every method and score the result.

    Each finished record is stored at once, so that an interrupted run goes on where it stopped. What is stored is
    raw (scores, hops, log-probabilities); the metrics in the frame are computed from it.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    methods : list of Method or str, or dict label -> Method
        Labels name the rows; a list takes each method's ``name``. A str is a name of `methods.METHODS`.
    samples : iterable of Sample
        Task, cell and id come from their metadata.
    store : Store or path, optional
        Where to resume from and write to.
    metrics : sequence of str
        Keys of ``METRICS``. Deletion curves and sentence ablations are computed only where one of them needs them, and
        are added later to a record that lacks them, without attributing again.
    steps : int
        Groups of the deletion curve.
    tolerance : float
        Error of RISE that is allowed, such as .01: above 0 only some steps are evaluated, named in each record, and the
        others interpolated (`metrics.curve.bisected`).
    masks : int
        Random masks over the sentences of a sample, for ``lds``: so many forward passes, and two, serve all methods,
        and are stored once in ``<name>_masks`` beside the store ``<name>``.
    scorer : Scorer, optional
        Default: ``Scorer(model, precision="auto")``. Its arithmetic, where it is open, is that of the first stored
        curve that is met, else what the first missing curve decides (`Scorer.settle`); each record notes it.
    progress : bool
        Show a progress bar.

    Returns
    -------
    pandas.DataFrame
        See `frame_from_records`.
    """
    check_order("evaluate(model, methods, samples)", model=model)
    check_metrics(metrics)
    if masks < 2:
        raise ValueError(f"masks is the number of random masks over a sample's sentences, at least 2, got {masks}")
    if not isinstance(methods, Mapping):
        methods = [chosen_method(method) for method in methods]
    store = Memory() if store is None else store if isinstance(store, Store) else Store(store)
    curve, n_masks = any(name in ON_CURVE for name in metrics), masks if "lds" in metrics else 0
    job = _Job(Recorder(model, scorer, steps, tolerance), labelled(methods), store, masks_beside(store), curve, n_masks)
    shown = {} if progress else {"disable": True}
    records = [job.run(sample) for sample in tqdm(list(samples), "evaluate", unit="sample", **shown)]
    return frame_from_records([record for of_sample in records for record in of_sample], metrics)


@dataclass
class _Job:
    """What the samples of one evaluation share."""

    recorder: Recorder
    methods: dict[str, Method]
    store: Store | Memory
    masks: Store | Memory
    curve: bool  # whether records need a deletion curve
    n_masks: int  # masks of a sample; 0 for none

    def run(self, sample: Sample) -> list[Record]:
        """Records of all methods on ``sample``, with the columns of its masks, which are stored apart."""
        shared = {}
        if self.n_masks:
            with _naming("sentence ablations", sample):
                key = self.recorder.masks_key(sample, self.n_masks)
                found = self.masks.cached(key, lambda: self.recorder.masks(sample, self.n_masks))
                shared = {name: found[name] for name in MASK_COLUMNS}
                shared["masks_key"] = key
        return [self._record(label, method, sample, shared) for label, method in self.methods.items()]

    def _record(self, label: str, method: Method, sample: Sample, shared: Record) -> Record:
        """The stored record, a new one, or the stored one with what it lacked; what is new is stored in one write."""
        key, scorer = self.recorder.key(method, sample), self.recorder.scorer
        stored = record = self.store.get(key) or {}
        with _naming(label, sample):
            if not record:
                record = self.recorder.attribution(method, sample)
            if not has_curve(record):
                record = record | (self.recorder.curve(sample, record["scores"]) if self.curve else {})
            elif scorer.is_open and "changes RISE by" in record["curve_note"]:
                scorer.use(record["curve_dtype"], record["curve_note"])  # a resumed run goes on in its arithmetic
        # The key knows nothing of names: a renamed method or cell finds its record and shows under the new name.
        record = record | shared | labels(sample) | facts(sample) | {"method": label, "key": key}
        if _parts(stored) != _parts(record):
            self.store.put(key, {name: value for name, value in record.items() if name not in MASK_COLUMNS})
        return record


def _parts(record: Record) -> tuple:
    """What tells a record from one of the same key that holds more."""
    return bool(record), has_curve(record), record.get("masks_key")


@contextmanager
def _naming(label: str, sample: Sample) -> Iterator[None]:
    """Name method and sample in a note on any error."""
    try:
        yield
    except Exception as error:
        error.add_note(f"while evaluating {label} on sample {sample.id}")
        raise
