"""``flashtrace evaluate``: methods on a task's samples, answered by a model, as a table."""

import argparse
from os import environ
from pathlib import Path

from ..cli import count
from ..files import check_writable
from ..names import did_you_mean


def main(argv: list[str] | None = None) -> int:
    """Evaluate; ValueError where task, method or metric is unknown, or no answer is right."""
    from ..load import load_model
    from ..methods import chosen_method
    from ..tasks.datasets import task_examples
    from ..tasks.registry import TASKS
    from ..tasks.responses import NOTHING, collect
    from ..tasks.ruler import CELLS, ruler_examples
    from . import evaluate, summarise
    from .results_table import check_metrics

    asked = _parser().parse_args(argv)
    check_writable({"--store": asked.store}, {})
    methods, metrics = ([name.strip() for name in names.split(",")] for names in (asked.methods, asked.metrics))
    methods, known = list(map(chosen_method, methods)), [*TASKS, *CELLS]
    check_metrics(metrics)
    if asked.task not in known:
        raise ValueError(f"unknown task {asked.task!r}: choose of {', '.join(known)}.{did_you_mean(asked.task, known)}")
    model, tokenizer = load_model(asked.model, device_map=asked.device)
    if asked.task in TASKS:
        where = {"source": "folder" if asked.data else "hub", "folder": asked.data}
        examples = task_examples(asked.task, asked.tries, **where)
    else:
        examples = ruler_examples(tokenizer, asked.task, asked.length, asked.tries)
    how = {"fallback": NOTHING, "give_up": False, "max_new_tokens": asked.max_new_tokens}
    found = collect(model, tokenizer, examples, asked.samples, **how)
    print(f"{asked.task}, {asked.model}: {found.counts}")
    frame = evaluate(model, methods, found.samples, metrics=metrics, store=asked.store)
    if frame.empty:
        raise ValueError("nothing to show: no answer was right, or the task marks no evidence (--metrics rise,mas)")
    print(summarise(frame).to_string(index=False))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="flashtrace evaluate", description=__doc__)
    add = parser.add_argument
    add("task", help="a RULER cell, as mq_q4 or h2_c3, or a data set: math500, gsm8k, morehopqa, hotpotqa, exercism")
    add("--model", default="embedded", help="as in trace (default: embedded)")
    add("--methods", default="flashtrace,flashtrace_causal,ifr,string_match", metavar="A,B", help="of METHODS")
    default = "recovery,r_precision_haystack,auroc_haystack"
    add("--metrics", default=default, metavar="A,B", help="also lds, rise, mas, ...")
    add("--samples", type=count, default=4, help="right answers wanted (default: 4)")
    add("--tries", type=count, default=12, help="problems tried for them (default: 12)")
    add("--max-new-tokens", type=count, default=512, help="longest answer (default: 512)")
    add("--length", type=count, default=512, help="tokens of a RULER prompt (default: 512)")
    where = "where a data set lies (default: FLASHTRACE_DATA_DIR, else the hub)"
    add("--data", type=Path, default=environ.get("FLASHTRACE_DATA_DIR"), metavar="FOLDER", help=where)
    add("--store", type=Path, metavar="FILE", help="keep the records there, and go on from them")
    add("--device", metavar="MAP", help="cuda, auto, ... (default: the CPU)")
    return parser
