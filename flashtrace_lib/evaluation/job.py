"""An evaluation as a job of many tasks: a task is one sample with all methods, which share the ends of its curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tqdm import tqdm

from ..attribution import Method
from ..metrics.deletion import COMPARED, Scorer, choose_dtype
from ..sample import Sample
from ..store import Store
from .recorder import Recorder, labels
from .results_table import Record, has_curve


class Memory(dict):
    """Records by key that last as long as the evaluation; takes the place of a store."""

    put = dict.__setitem__


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
    needs_curve : bool
        Whether a record without a deletion curve is unfinished.
    """

    recorder: Recorder
    methods: dict[str, Method]
    store: Store | Memory
    needs_curve: bool

    def run(self, sample: Sample, bar: tqdm) -> list[Record]:
        """Records of all methods on ``sample``, counted by ``bar``; each is stored as soon as it is finished."""
        records = []
        for label, method in self.methods.items():
            bar.set_postfix_str(f"{label} on {sample.id}", refresh=False)
            records.append(self.resume(label, method, sample, self.needs_curve))
            bar.update()
        return records

    def resume(self, label: str, method: Method, sample: Sample, needs_curve: bool) -> Record:
        """The stored record, or a new one, or the stored one with the curve it lacked; new parts are stored."""
        key = self.recorder.key(method, sample)
        stored = record = self.store.get(key)
        with naming(label, sample):
            if record is None:
                record = self.recorder.attribution(method, sample)
            if needs_curve and not has_curve(record):
                record = record | self.recorder.curve(sample, record["scores"])
        # The key knows nothing of names: a renamed method or cell finds its record and shows under the new name.
        record = record | labels(sample) | {"method": label, "key": key}
        self.keep(record, stored)
        return record

    def keep(self, record: Record, stored: Record | None) -> None:
        """Store ``record`` where it holds more than ``stored`` does."""
        if stored is None or has_curve(stored) != has_curve(record):
            self.store.put(record["key"], record)

    def stored(self, sample: Sample) -> dict[str, Record]:
        """Stored records of ``sample`` by key."""
        keys = [self.recorder.key(method, sample) for method in self.methods.values()]
        return {key: record for key in keys if (record := self.store.get(key)) is not None}

    def unfinished(self, sample: Sample) -> dict[str, Method]:
        """Methods whose record on ``sample`` is missing, or lacks its curve."""
        finished = {key for key, record in self.stored(sample).items() if has_curve(record) or not self.needs_curve}
        return {k: m for k, m in self.methods.items() if self.recorder.key(m, sample) not in finished}


# Runs the job on each of the samples, moves the bar by one for each record, and returns the records of each sample.
Runner = Callable[[Job, Sequence[Sample], tqdm], list[list[Record]]]


def choose_scorer(job: Job, samples: Sequence[Sample]) -> Scorer:
    """The scorer for all curves that ``job`` lacks, in the arithmetic that the precision of its own scorer allows.

    Where an arithmetic was chosen for curves of this model that are stored already, a resumed evaluation goes on in it.
    Else the first missing curve decides, by `choose_dtype`. A sample that cannot decide is passed over; its own curves
    are computed as the others are.
    """
    scorer = job.recorder.scorer
    if not (job.needs_curve and scorer.is_open):
        return scorer
    for sample in samples:
        if unfinished := job.unfinished(sample):
            first = next(iter(unfinished.items()))  # a sample can decide with any method or with none
            scorer = _as_stored(job) or _compared(job, *first, sample)
            if not scorer.is_open:
                break
    return scorer


def _as_stored(job: Job) -> Scorer | None:
    """Scorer in the arithmetic that was chosen for most stored curves of this model; None where it never was."""
    if isinstance(job.store, Memory):
        return None
    records = job.store.records().reindex(columns=["model_key", "curve_dtype", "curve_note"])
    compared = records["curve_note"].astype(str).str.contains(COMPARED, regex=False)
    chosen = records[compared & (records["model_key"] == job.recorder.model_key)]
    if chosen.empty:
        return None
    dtype, note = chosen.groupby(["curve_dtype", "curve_note"]).size().idxmax()
    return replace(job.recorder.scorer, dtype=dtype, note=note)


def _compared(job: Job, label: str, method: Method, sample: Sample) -> Scorer:
    """Scorer that the curve of one pair decides for."""
    record = job.resume(label, method, sample, needs_curve=False)
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
