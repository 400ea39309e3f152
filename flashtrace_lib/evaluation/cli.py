"""``flashtrace evaluate``: methods on a task's samples, answered by a model, as a table."""

import argparse
from pathlib import Path


def main(argv: list[str] | None = None) -> int:
    """Evaluate; ValueError where task, method or metric is unknown, or no answer is right."""
    from ..load import load_model
    from ..tasks.datasets import task_examples
    from ..tasks.registry import TASKS
    from ..tasks.responses import NOTHING, collect
    from ..tasks.ruler import ruler_examples
    from . import evaluate, summarise

    asked = _parser().parse_args(argv)
    model, tokenizer = load_model(asked.model, device_map=asked.device)
    if asked.task in TASKS:
        where = {"source": "folder" if asked.data else "hub", "folder": asked.data}
        examples = task_examples(asked.task, asked.tries, **where)
    else:
        examples = ruler_examples(asked.task, asked.length, tokenizer, asked.tries)
    found = collect(examples, model, tokenizer, asked.samples, fallback=NOTHING, give_up=False)
    if not found.samples:
        raise ValueError(f"none of {len(examples)} answers is right: raise --tries, or try another --model")
    names, metrics = asked.methods.split(","), asked.metrics.split(",")
    frame = evaluate(names, found.samples, model, metrics=metrics, store=asked.store)
    print(f"{asked.task}, {asked.model}: {found.counts}", summarise(frame).to_string(index=False), sep="\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="flashtrace evaluate", description=__doc__)
    add = parser.add_argument
    add("task", help="a RULER cell, as mq_q4 or h2_c3, or a data set: math500, gsm8k, morehopqa, hotpotqa, exercism")
    add("--model", default="embedded", help="as in trace (default: embedded)")
    add(
        "--methods",
        default="flashtrace,flashtrace_causal,ifr,string_match,random",
        metavar="A,B",
        help="names of METHODS",
    )
    add(
        "--metrics",
        default="recovery,r_precision_haystack,auroc_haystack",
        metavar="A,B",
        help="also lds, rise, mas, ...",
    )
    add("--samples", type=int, default=4, help="right answers wanted (default: 4)")
    add("--tries", type=int, default=12, help="problems tried for them (default: 12)")
    add("--length", type=int, default=512, help="tokens of a RULER prompt (default: 512)")
    add("--data", type=Path, metavar="FOLDER", help="where a data set lies; without it the hub")
    add("--store", type=Path, metavar="FILE", help="keep the records there, and go on from them")
    add("--device", metavar="MAP", help="cuda, auto, ... (default: the CPU)")
    return parser
