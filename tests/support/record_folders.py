"""A folder of records, as somebody who has downloaded the data sets would have it."""

import json

from flashtrace_lib.tasks.synthetic import FILES, synthetic_records


def write_records(folder, n):
    """Write ``n`` synthetic records of every kind, laid out as the data directory of real records is."""
    for kind, name in FILES.items():
        records = synthetic_records(kind, n)
        lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lines if name.endswith(".jsonl") else json.dumps(records, ensure_ascii=False), encoding="utf-8")
