"""``python -m flashtrace_lib trace``: attribute a model's answer to a text of yours, from the shell."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryFile
from typing import NoReturn

import numpy as np

from .attribution import Method
from .load import DTYPES, load_model
from .methods import METHODS, FlashTrace
from .text.chat_template import STEP_BY_STEP, Messages, checked_messages, split_transcript
from .text.locate import Locator
from .trace import Trace, trace
from .viewer.message_shares import parts
from .viewer.tokens import visible

_PASSAGE = "its words, re:PATTERN, tokens:START:STOP, text:WORDS (taken as they are), or auto (default)"


def main(argv: list[str] | None = None) -> int:
    """Trace one prompt, print the top tokens, and write the files that the arguments name.

    Raises
    ------
    ValueError
        If something is wrong with the files, the model or the passages; the message says what to do.
    """
    arguments = _parser().parse_args(argv)  # everything that does not need the model is checked before it loads
    prompt = read_prompt(arguments.prompt)
    response = None if arguments.response is None else read_text(arguments.response, "response")
    _check_writable([path for path in (arguments.html, arguments.json) if path is not None])
    method = make_method(arguments.method, arguments.hops, arguments.best)
    drawn_out = dict(STEP_BY_STEP) if arguments.step_by_step else {"output": "auto"}
    if arguments.output != "auto":
        drawn_out["output"] = locator(arguments.output)
    reasoning = locator(arguments.reasoning)
    model, tokenizer = load_model(arguments.model, dtype=arguments.dtype, device_map=arguments.device)
    result = trace(
        model,
        tokenizer,
        prompt,
        response,
        reasoning=reasoning,
        max_new_tokens=arguments.max_new_tokens,
        system=arguments.system,
        template=not arguments.no_template,
        method=method,
        **drawn_out,
    )
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a letter still gets its table
    print(report(result, arguments.top))
    for kind, path, write in (("JSON", arguments.json, result.to_json), ("page", arguments.html, result.to_html)):
        if path is None:
            continue
        try:
            print(f"{kind}: {write(path)}")
        except OSError as error:
            raise ValueError(f"cannot write {path}: {error.strerror}") from error
    return 0


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
        description="Explain which words of a prompt a model's answer rests on.",
    )
    parser.add_argument(
        "--model", default="embedded", help="embedded, embedded-base, qwen, a hub id or a folder (default: embedded)"
    )
    parser.add_argument(
        "--prompt",
        required=True,
        metavar="FILE",
        help="a text, or a .json file with a list of messages (role, content); - for standard input. A transcript may "
        "end with the assistant's message, which is explained then",
    )
    parser.add_argument("--response", metavar="FILE", help="the answer to explain (default: the model writes it)")
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


def _check_writable(files: list[Path]) -> None:
    """ValueError where a file cannot be written, or two results would go into the same one."""
    for path in files:
        if path.is_dir():
            raise ValueError(f"{path} is a folder: give the name of a file in it")
        above = next(folder for folder in path.absolute().parents if folder.exists())
        try:
            TemporaryFile(dir=above).close()  # rights alone say too little: a file system may be read-only
        except OSError as error:
            why = f"{above} is not writable ({error.strerror})" if above.is_dir() else f"{above} is no folder"
            raise ValueError(f"cannot write {path}: {why}") from error
    if len({path.absolute() for path in files}) < len(files):
        raise ValueError(f"--html and --json both name {files[0]}: give two files")


def read_text(name: str, what: str) -> str:
    """Content of a UTF-8 file, or of standard input for ``-``; ValueError where it cannot be read or is empty."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} file {name} is no UTF-8 text: save it as UTF-8") from error
    except OSError as error:
        raise ValueError(f"cannot read the {what} file {name}: {error.strerror}") from error
    if not text.strip():
        raise ValueError(f"the {what} file {name} is empty")
    return text.rstrip("\n")  # editors add it, writers do not mean it


def read_prompt(name: str) -> str | Messages:
    """A text, or the messages of a file that ends in .json (a list, or an object that has them as ``messages``)."""
    text = read_text(name, "prompt")
    if not name.endswith(".json"):
        return text
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{name} is no JSON: {error}; give a plain text another suffix") from error
    messages = data.get("messages") if isinstance(data, dict) else data
    if not isinstance(messages, list) or not messages:
        raise ValueError(f'{name} holds no list of messages: it must read [{{"role": "user", "content": "…"}}, …]')
    try:
        checked_messages(split_transcript(messages)[0], whole=True)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return messages


def locator(text: str) -> Locator:
    """A passage as the command line names it; ValueError where a pattern or a range is malformed."""
    if text == "none":
        return None
    kind, colon, rest = text.partition(":")
    if colon and kind == "text":
        return rest
    if colon and kind == "re":
        try:
            return re.compile(rest)
        except re.error as error:
            raise ValueError(f"{text!r} is no regular expression: {error}") from error
    if colon and kind == "tokens":
        match = re.fullmatch(r"(\d+):(\d+)", rest)
        if not match:
            raise ValueError(f"{text!r} is no token range: write tokens:START:STOP")
        return int(match[1]), int(match[2])
    return text


def make_method(name: str, hops: int | None, best: bool = False) -> Method:
    """Method of that name; ValueError where ``hops`` or ``best`` is given and the method has none."""
    method = METHODS[name]
    if best and name != FlashTrace.name:
        raise ValueError(f"--best: {name} has no other setting; leave it out, or choose flashtrace")
    make = FlashTrace.best if best else method
    if hops is None:
        return make()
    with_hops = [n for n, m in METHODS.items() if "hops" in {field.name for field in fields(m)}]
    if name not in with_hops:
        raise ValueError(f"--hops: {name} has no hops; leave it out, or choose one of {', '.join(with_hops)}")
    return make(hops=hops)


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
