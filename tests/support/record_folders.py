"""A folder of records, as somebody who has downloaded the data sets would have it."""

import json

from flashtrace_lib.tasks.datasets import synthetic_records
from flashtrace_lib.tasks.registry import TASKS


def write_records(folder, n):
    """Write ``n`` synthetic records of every kind, laid out as the data directory of real records is."""
    for kind, task in TASKS.items():
        name = task.files[0]
        records = synthetic_records(kind, n)
        lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lines if name.endswith(".jsonl") else json.dumps(records, ensure_ascii=False), encoding="utf-8")
