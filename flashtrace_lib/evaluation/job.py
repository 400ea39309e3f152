"""An evaluation as a job of many tasks: a task is one sample with all methods, which share the ends of its curves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tqdm import tqdm

from ..attribution import Method
from ..metrics.deletion import COMPARED, Scorer, choose_dtype
from ..sample import Sample
from ..store import Store
from .ablations import Memory, Needs, Record, has_top, masks_beside, only_masks, without_masks
from .recorder import Recorder, facts, labels, sources_of_input
from .results_table import has_curve


@dataclass
class Job:
    """What the tasks of one evaluation share.

    Parameters
    ----------
    recorder : Recorder
        Makes the records.
    methods : dict of str to Method
        By the label that names their rows.
    store : Store or Memory
        Where finished records are found, and new ones are put.
    needs : Needs
        A record without one of these is unfinished.
    masks : Store or Memory, optional
        Likewise, of the masks of the samples. Default: the one beside ``store``.
    """

    recorder: Recorder
    methods: dict[str, Method]
    store: Store | Memory
    needs: Needs
    masks: Store | Memory | None = None

    def __post_init__(self) -> None:
        if self.masks is None:
            self.masks = masks_beside(self.store)

    def run(self, sample: Sample, bar: tqdm) -> list[Record]:
        """Records of all methods on ``sample``, counted by ``bar``; each is stored as soon as it is finished.

        With its own columns each record holds those of the sample's masks, which are stored apart.
        """
        shared = self.masks_of(sample) if self.needs.n_masks else {}
        records = []
        for label, method in self.methods.items():
            bar.set_postfix_str(f"{label} on {sample.id}", refresh=False)
            records.append(self.resume(label, method, sample, self.needs, shared))
            bar.update()
        return records

    def masks_of(self, sample: Sample) -> Record:
        """Columns of the masks of ``sample``, stored or new, and their key."""
        with naming("sentence ablations", sample):
            key = self.recorder.masks_key(sample, self.needs.n_masks)
            found = self.masks.get(key)
            if found is None:
                begun = time.process_time()
                found = self.recorder.masks_record(sample, self.needs.n_masks)
                found["cpu_seconds"] = time.process_time() - begun
                self.keep_masks({key: found})
        return only_masks(found) | {"masks_key": key}

    def resume(self, label: str, method: Method, sample: Sample, needs: Needs, shared: Record | None = None) -> Record:
        """The stored record, or a new one, or the stored one with the parts it lacked; new parts are stored."""
        key = self.recorder.key(method, sample)
        stored = record = self.store.get(key)
        begun = time.process_time()
        with naming(label, sample):
            if record is None:
                record = self.recorder.attribution(method, sample)
            if needs.curve and not has_curve(record):
                record = record | self.recorder.curve(sample, record["scores"])
            if needs.top and not self._has_top(record, sample):
                record = record | self.recorder.top(sample, record)
        # The key knows nothing of names: a renamed method or cell finds its record and shows under the new name.
        # Facts are the sample's own: a record stored before they were kept has them all the same.
        record = record | (shared or {}) | labels(sample) | facts(sample) | {"method": label, "key": key}
        if stored is None or _parts(stored) != _parts(record):
            # What was stored before costs were kept has none: the sum is then of its new parts alone.
            record["cpu_seconds"] = ((stored or {}).get("cpu_seconds") or 0.0) + time.process_time() - begun
        self.keep(record, stored)
        return record

    def keep(self, record: Record, stored: Record | None) -> None:
        """Store ``record`` without the columns of its masks, where it holds other parts than ``stored`` does.

        What another process has added meanwhile stays.
        """
        if stored is None or _parts(stored) != _parts(record):
            own, latest = without_masks(record), self.store.get(record["key"]) or {}
            added = {name: value for name, value in latest.items() if own.get(name) is None}
            self.store.put(record["key"], own | added)

    def keep_masks(self, masks: dict[str, Record]) -> None:
        """Store records of masks that are not there yet."""
        for key, record in masks.items():
            if key not in self.masks:
                self.masks.put(key, record)

    def stored(self, sample: Sample) -> dict[str, Record]:
        """Stored records of ``sample`` by key, without its masks."""
        keys = [self.recorder.key(method, sample) for method in self.methods.values()]
        return {key: record for key in keys if (record := self.store.get(key)) is not None}

    def stored_masks(self, sample: Sample) -> dict[str, Record]:
        """The stored record of the masks of ``sample``, where there is one and it is needed, by its key."""
        if not self.needs.n_masks:
            return {}
        key = self.recorder.masks_key(sample, self.needs.n_masks)
        found = self.masks.get(key)
        return {} if found is None else {key: found}

    def unfinished(self, sample: Sample) -> dict[str, Method]:
        """Methods whose record on ``sample`` is missing, or lacks what is needed."""
        masks = self.stored_masks(sample)
        finished = {key for key, record in self.stored(sample).items() if self._is_finished(record, sample, masks)}
        return {k: m for k, m in self.methods.items() if self.recorder.key(m, sample) not in finished}

    def _is_finished(self, record: Record, sample: Sample, masks: dict[str, Record]) -> bool:
        return (
            (has_curve(record) or not self.needs.curve)
            and (self._has_top(record, sample) if self.needs.top else True)
            and (record.get("masks_key") in masks or not self.needs.n_masks)
        )

    def _has_top(self, record: Record, sample: Sample) -> bool:
        """Whether the record holds its top-k likelihoods, on the sentences that the sample has today."""
        return has_top(record) and [list(span) for span in record["top_sources"]] == sources_of_input(sample)


def _parts(record: Record) -> list:
    """What tells a record from one of the same key that holds more."""
    return [has_curve(record), has_top(record) and record["top_sources"], record.get("masks_key")]


# Runs the job on each of the samples, moves the bar by one for each record, and returns the records of each sample.
Runner = Callable[[Job, Sequence[Sample], tqdm], list[list[Record]]]


def choose_scorer(job: Job, samples: Sequence[Sample]) -> Scorer:
    """The scorer for all masked contexts that ``job`` lacks, in the arithmetic that the precision of its own allows.

    Where an arithmetic was chosen for results of this model that are stored already, a resumed evaluation goes on in
    it. Else the first missing curve decides, by `choose_dtype`. A sample that cannot decide is passed over; its own
    curves are computed as the others are.
    """
    scorer = job.recorder.scorer
    if not (job.needs and scorer.is_open):
        return scorer
    for sample in samples:
        if unfinished := job.unfinished(sample):
            first = next(iter(unfinished.items()))  # a sample can decide with any method or with none
            scorer = _as_stored(job) or _compared(job, *first, sample)
            if not scorer.is_open:
                break
    return scorer


def _as_stored(job: Job) -> Scorer | None:
    """Scorer in the arithmetic that was chosen for most stored results of this model; None where it never was."""
    if isinstance(job.store, Memory):
        return None
    for store, part in ((job.store, "curve"), (job.store, "top"), (job.masks, "masks")):
        records = store.records().reindex(columns=["model_key", f"{part}_dtype", f"{part}_note"])
        compared = records[f"{part}_note"].astype(str).str.contains(COMPARED, regex=False)
        chosen = records[compared & (records["model_key"] == job.recorder.model_key)]
        if not chosen.empty:
            dtype, note = chosen.groupby([f"{part}_dtype", f"{part}_note"]).size().idxmax()
            return replace(job.recorder.scorer, dtype=dtype, note=note)
    return None


def _compared(job: Job, label: str, method: Method, sample: Sample) -> Scorer:
    """Scorer that the curve of one pair decides for."""
    record = job.resume(label, method, sample, Needs())
    with naming(label, sample):
        return choose_dtype(job.recorder.scorer, sample, record["scores"], job.recorder.steps)


@contextmanager
def naming(label: str, sample: Sample) -> Iterator[None]:
    """Name method and sample in a note on any error."""
    try:
        yield
    except Exception as error:
        error.add_note(f"while evaluating {label} on sample {sample.id}")
        raise
