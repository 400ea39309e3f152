"""``python -m flashtrace_lib trace``: attribute a model's answer to a text of yours, from the shell."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from . import batch
from .arguments import check_folder, check_writable, make_method, read_prompt, read_text
from .attribution import Method
from .batch.records import PASSAGES, read_records
from .load import DTYPES, load_model
from .methods import METHODS
from .text.chat_template import STEP_BY_STEP
from .text.checks import check_passages
from .text.locate import parse_locator
from .trace import Trace, trace
from .viewer.message_shares import parts
from .viewer.tokens import visible

_PASSAGE = "its words, re:PATTERN, tokens:START:STOP, text:WORDS (taken as they are), or auto (default)"


def main(argv: list[str] | None = None) -> int:
    """Trace one prompt, or the records of a file; 1 where some records of a file failed.

    Raises
    ------
    ValueError
        If something is wrong with the files, the model or the passages; the message says what to do.
    """
    arguments = _parser().parse_args(argv)  # everything that does not need the model is checked before it loads
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a letter still gets its table
    method = make_method(arguments.method, arguments.hops, arguments.best)
    return (_trace_one if arguments.batch is None else _trace_batch)(arguments, method)


def _trace_one(arguments: argparse.Namespace, method: Method) -> int:
    """Print the top tokens of one trace, and write the files that the arguments name."""
    if arguments.out is not None or arguments.no_pages:
        raise ValueError("--out and --no-pages belong to --batch; --html and --json write the files of one prompt")
    prompt = read_prompt(arguments.prompt)
    response = None if arguments.response is None else read_text(arguments.response, "response")
    check_writable(
        {"--html": arguments.html, "--json": arguments.json},
        read={"--prompt": arguments.prompt, "--response": arguments.response},
    )
    spans = {name: parse_locator(getattr(arguments, name)) for name in PASSAGES}
    check_passages(prompt, response, **spans)
    begun = dict(STEP_BY_STEP) if arguments.step_by_step else {}
    if arguments.output == "auto" and begun:
        spans["output"] = begun["output"]
    how = spans | {name: begun[name] for name in ("request", "answer_prefix") if begun} | _shared(arguments)
    result = trace(*_load(arguments), prompt, response, method=method, **how)
    print(report(result, arguments.top))
    for kind, path, write in (("JSON", arguments.json, result.to_json), ("page", arguments.html, result.to_html)):
        if path is None:
            continue
        try:
            print(f"{kind}: {write(path)}")
        except OSError as error:
            raise ValueError(f"cannot write {path}: {error.strerror}") from error
    return 0


def _trace_batch(arguments: argparse.Namespace, method: Method) -> int:
    """Trace every record of a file into a folder; 1 where some of them failed."""
    single = [f"--{name}" for name in ("response", "html", "json") if getattr(arguments, name) is not None]
    single += ["--step-by-step"] if arguments.step_by_step else []
    if single:
        raise ValueError(f"{', '.join(single)}: for one prompt, not for --batch, whose records and --out say it")
    if arguments.out is None:
        raise ValueError("--batch needs --out FOLDER, into which traces, pages and an index go")
    passages = {name: getattr(arguments, name) for name in PASSAGES}
    for text in passages.values():
        parse_locator(text)
    records = read_records(arguments.batch, passages)
    batch.check_out(arguments.out)
    check_folder(arguments.out)
    settings = batch.Settings(method, **_shared(arguments))
    pages = not arguments.no_pages
    entries = batch.run(lambda: _load(arguments), records, arguments.out, settings, pages=pages)
    failed = [entry for entry in entries if entry.error is not None]
    for entry in failed:
        print(f"{arguments.batch} line {entry.line} ({visible(entry.id)}): {visible(entry.error)}", file=sys.stderr)
    made = sum(entry.made for entry in entries)
    found = len(entries) - made - len(failed)
    print(f"{len(entries)} records: {made} traced, {found} done before, {len(failed)} failed")
    print(f"index: {arguments.out / batch.INDEX}")
    return 1 if failed else 0


def _load(arguments: argparse.Namespace) -> tuple[Any, Any]:
    return load_model(arguments.model, dtype=arguments.dtype, device_map=arguments.device)


def _shared(arguments: argparse.Namespace) -> dict[str, Any]:
    """Options that one prompt and a batch have in common."""
    return {
        "max_new_tokens": arguments.max_new_tokens,
        "system": arguments.system,
        "template": not arguments.no_template,
    }


class _Parser(argparse.ArgumentParser):
    """Raises errors in one line, as the other errors of this command."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; {self.prog} --help lists the options")


def _count(text: str) -> int:
    """A whole number of at least 1."""
    if not re.fullmatch(r"\+?0*[1-9]\d*", text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m flashtrace_lib trace",
        description="Explain which words of a prompt a model's answer is attributed to.",
    )
    parser.add_argument(
        "--model", default="embedded", help="embedded, embedded-base, qwen, a hub id or a folder (default: embedded)"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--prompt",
        metavar="FILE",
        help="a text, or a .json file with a list of messages (role, content); - for standard input. A transcript may "
        "end with the assistant's message, which is explained then",
    )
    what.add_argument(
        "--batch",
        metavar="FILE",
        help='many prompts: a record on each line, {"prompt": …}, which may have id, response, input, reasoning and '
        "output; what is done is not done again",
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where --batch writes traces, pages and an index")
    parser.add_argument("--no-pages", action="store_true", help="--batch writes no page for each record")
    parser.add_argument("--response", metavar="FILE", help="the answer to explain (default: the model writes it)")
    parser.add_argument(
        "--input", default="auto", metavar="PASSAGE", help="the part of the prompt to explain from (default: all of it)"
    )
    parser.add_argument("--output", default="auto", metavar="PASSAGE", help=f"what to explain: {_PASSAGE}")
    parser.add_argument(
        "--reasoning", default="auto", metavar="PASSAGE", help="what the model thought, in the same way; or none"
    )
    parser.add_argument(
        "--step-by-step",
        action="store_true",
        help="begin the answer with a list of facts, for a model that answers at once, such as qwen",
    )
    parser.add_argument("--hops", type=int, metavar="K", help="hops back through the reasoning (default: 1)")
    parser.add_argument(
        "--method", default="flashtrace", choices=list(METHODS), metavar="NAME", help=f"{', '.join(METHODS)}"
    )
    parser.add_argument(
        "--best", action="store_true", help="FlashTrace in the setting that found most evidence (`FlashTrace.best`)"
    )
    parser.add_argument("--top", type=_count, metavar="N", default=15, help="tokens in the table (default: 15)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page to click through")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number")
    parser.add_argument("--system", metavar="TEXT", help="system message")
    parser.add_argument("--no-template", action="store_true", help="no chat template: the model goes on with the text")
    parser.add_argument(
        "--max-new-tokens", type=_count, default=512, metavar="N", help="longest answer to write (default: 512)"
    )
    parser.add_argument("--dtype", default="float32", choices=DTYPES, help="of the weights (default: float32)")
    parser.add_argument("--device", metavar="MAP", help="cuda, auto, … (default: the CPU)")
    return parser


def report(result: Trace, top: int = 15) -> str:
    """The answer, the top tokens, the scores by message, and the notes on them, as plain text."""
    answer = " ".join(visible(result.answer).replace("⏎\n", " ").split())
    n = len(result.targets)
    passes = f"{n} sentence{'s' * (n > 1)} explained as well" if n else "the whole answer only"
    lines = [
        f"{_named(result)} · {result.model_name} · {len(result.sample)} tokens · {passes}",
        f"answer: {answer if len(answer) <= 200 else answer[:199] + '…'}",
        "",
        *_top_lines(result, top),
        "",
        *_share_lines(result),
    ]
    if len(result.attribution.hops) > 1:
        lines.append("hop 1 explains the answer (hop 0 of the formulas), hop 2 the reasoning that it came from")
    if result.attribution.flow and result.sample.segments.has_reasoning:
        flow = ", ".join(f"{rho:.2f}" for rho in result.attribution.flow)
        lines.append(f"share of each hop's mass on the reasoning: {flow}")
    lines += [f"note: {note}" for note in result.cautions()]
    return "\n".join(lines)


def _named(result: Trace) -> str:
    """The method, with the options that are not its own."""
    name, options = result.attribution.method, result.attribution.metadata.get("options", {})
    own = METHODS[name]().options() if name in METHODS else {}
    changed = ", ".join(f"{key}={value}" for key, value in options.items() if key in own and value != own[key])
    return f"{name} ({changed})" if changed else name


def _top_lines(result: Trace, top: int) -> list[str]:
    """One line per token; the words around it come last, so that no letter can shift a column."""
    frame = result.top(top)
    total = float(np.abs(result.attribution.scores.numpy()).sum()) or 1.0
    largest = float(frame["score"].abs().max()) or 1.0
    spans = [part.span for part in parts(result.sample)]
    lines = ["rank   score      share  token at             text"]
    for rank, row in enumerate(frame.itertuples(), start=1):
        bar = "█" * round(10 * max(0.0, row.score) / largest)
        # Words of the same message alone: the template's would push them aside.
        start, stop = next(span for span in spans if span[0] <= row.position < span[1])
        text = _in_context(result.sample.tokens[start:stop], row.position - start)
        lines.append(f"{rank:4}  {row.score:9.3g}  {row.score / total:6.1%}  {row.position:8}  {bar:10}  {text}")
    return lines


def _in_context(tokens: list[str], i: int, width: int = 24) -> str:
    """A token in brackets between the letters around it: a full stop alone would say nothing."""
    before, after = "".join(tokens[max(0, i - width) : i]), "".join(tokens[i + 1 : i + 1 + width])
    token = tokens[i].strip(" ") or tokens[i]
    space = " " if token != tokens[i] and tokens[i].startswith(" ") else ""
    left, middle, right = (_on_one_line(text) for text in (before[-width:] + space, token, after[:width]))
    return f"{left}[{middle or '·'}]{right}"


def _on_one_line(text: str) -> str:
    return visible(text).replace("⏎\n", "⏎") if text else ""


def _share_lines(result: Trace) -> list[str]:
    """`Trace.shares` as a table in per cent; for a conversation by message and by role."""
    frames = [result.shares()]
    if len(result.sample.metadata.get("messages", [])) > 1:
        frames.append(result.shares("role"))
    lines = []
    for frame in frames:
        first, *others = frame.columns
        lines.append(f"{first:20}" + "".join(f"{name:>10}" for name in others))
        for part, n_tokens, *shares in frame.itertuples(index=False):
            lines.append(f"{visible(str(part)):20}{n_tokens:10}" + "".join(map(_percent, shares)))
    return lines


def _percent(share: float) -> str:
    return f"{'–':>10}" if np.isnan(share) else f"{share:10.1%}"
