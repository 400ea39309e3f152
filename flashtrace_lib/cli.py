"""``flashtrace trace``: attribute a model's answer to a text of yours, from the shell."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .files import check_writable
from .names import did_you_mean

if TYPE_CHECKING:
    from .attribution import Method

PASSAGES = ("input", "reasoning", "output")
# Each hop costs about a forward pass and a column of every table, and passes on only the share of the mass that still
# lies on the reasoning: after a dozen hops nothing is left to pass on that a table could show.
MAX_HOPS = 16


def main(argv: list[str] | None = None) -> int:
    """Trace one prompt: print the top tokens, and write the files that the arguments name.

    Raises
    ------
    ValueError
        If something is wrong with the files, the model or the passages; the message says what to do.
    """
    arguments = _parser().parse_args(argv)  # what does not need the model is checked before it loads
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a letter still gets its table
    from .load import load_model
    from .report import report
    from .text.chat_template import STEP_BY_STEP, checked_messages, conversation_and_response
    from .trace import trace

    options = {**(STEP_BY_STEP if arguments.step_by_step else {}), **_options(arguments)}
    if arguments.prompt == arguments.response == "-":
        raise ValueError("--prompt - and --response - both read standard input: give one of them as a file")
    prompt, tools = read_prompt(arguments.prompt)
    response = None if arguments.response is None else read_text(arguments.response, "response")
    checked_messages(conversation_and_response(prompt, response)[0], whole=True)
    read = {"--prompt": arguments.prompt, "--response": arguments.response}
    check_writable({"--html": arguments.html, "--json": arguments.json}, read)
    others = [make_method(name, None) for name in arguments.compare or ()]
    loaded = load_model(arguments.model, dtype=arguments.dtype, device_map=arguments.device)
    options |= {"contrast": arguments.contrast, "estimated": arguments.estimate, **tools}
    result = trace(*loaded, prompt, response, **options)
    try:
        if arguments.verify:
            result.verify()
        print(report(result, arguments.top))
        if others:
            print(f"\n{result.compare(*others).round(3).to_string(index=False)}")
    finally:  # what was traced is kept, whatever a comparison says
        for kind, path, write in (("JSON", arguments.json, result.to_json), ("page", arguments.html, result.to_html)):
            if path is not None:
                print(f"{kind}: {write(path)}")
    return 0


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of `trace`."""
    from .text.locate import parse_locator

    named = {name: getattr(arguments, name) for name in PASSAGES if getattr(arguments, name) != "auto"}
    places = {name: parse_locator(text) for name, text in named.items()}
    if arguments.occurrence is not None:
        if not isinstance(places.get("output"), (str, re.Pattern)):
            raise ValueError("--occurrence counts the places of the words or the pattern of --output: give these too")
        places["output"] = (places["output"], arguments.occurrence)
    method = arguments.method or ("flashtrace" if arguments.contrast else None)
    return {
        "method": make_method(method, arguments.hops, arguments.best),
        **{name: getattr(arguments, name) for name in ("max_new_tokens", "system", "template")},
        **places,
    }


def make_method(name: str | None, hops: int | None, best: bool = False) -> Method:
    """Method of that name; ValueError where there is none, or it has no ``hops`` or no better setting."""
    from .methods import FlashTrace, chosen_method

    if hops is not None and hops > MAX_HOPS:
        raise ValueError(f"--hops: {hops} are too many, {MAX_HOPS} at most: each costs a forward pass; use 1 to 3")
    if best and name not in (None, FlashTrace.name):
        raise ValueError(f"--best: {name} has no other setting; leave it out, or choose flashtrace")
    return FlashTrace.best(**({} if hops is None else {"hops": hops})) if best else chosen_method(name, hops)


def read_text(name: str, what: str) -> str:
    """Content of a UTF-8 file, or of standard input for ``-``; ValueError where it cannot be read or is empty.

    Nothing changes but that a byte order mark at its start and line ends at its end are left out.
    """
    try:
        text = (sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} file {name} is no UTF-8 text: save it as UTF-8") from error
    except OSError as error:
        raise ValueError(f"cannot read the {what} file {name}: {error.strerror}") from error
    if not text.strip():
        raise ValueError(f"the {what} file {name} is empty")
    return text.rstrip("\r\n")  # editors add it, writers do not mean it


def read_prompt(name: str) -> tuple[str | list[dict[str, Any]], dict[str, Any]]:
    """A text, or the messages of a file that ends in .json (a list, or an object that has them as ``messages``).

    Beside it the options of `trace` that put the ``tools`` of such an object into the chat template.
    """
    if name.lower().endswith(".jsonl"):
        raise ValueError(f"{name} holds many records: trace one at a time (docs/tracing.md has a loop)")
    text = read_text(name, "prompt")
    if not name.lower().endswith(".json"):
        return text, {}
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{name} is no JSON: {error}; give a plain text another suffix") from error
    messages, tools = (data.get("messages"), data.get("tools")) if isinstance(data, dict) else (data, None)
    if not isinstance(messages, list) or not messages:
        raise ValueError(f'{name} holds no list of messages: it must read [{{"role": "user", "content": "…"}}, …]')
    return messages, {"template_kwargs": {"tools": tools}} if tools else {}


class _Parser(argparse.ArgumentParser):
    """Raises errors in one line, as the other errors of this command."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"--[\w-]+", message.partition("unrecognized arguments:")[2])
        meant = did_you_mean(wrong[0], self._option_string_actions) if wrong else ""
        raise ValueError(f"{message}; {self.prog} --help lists the options{meant and '.' + meant}")


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not re.fullmatch(r"\+?0*[1-9]\d*", text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="flashtrace trace", description="Explain which words of a prompt an answer is attributed to.")
    add = parser.add_argument
    add("--model", default="embedded", help="embedded (default), embedded-base, qwen, a hub id, a folder, a .gguf file")
    add("--prompt", metavar="FILE", required=True, help="a text, or a .json list of messages; - for standard input")
    add("--response", metavar="FILE", help="the answer to explain (default: a transcript's last message, else written)")
    add("--input", default="auto", metavar="PASSAGE", help="the part of the prompt to explain from (default: all)")
    words = "its words, re:PATTERN, tokens:START:STOP, text:WORDS (taken as they are), or auto (default)"
    add("--output", default="auto", metavar="PASSAGE", help=f"what to explain: {words}")
    add("--occurrence", type=count, metavar="N", help="the Nth place of --output's words (default: the last)")
    add("--reasoning", default="auto", metavar="PASSAGE", help="what the model thought, in the same way; or none")
    add("--step-by-step", action="store_true", help="begin a list of facts for a model that answers at once, as qwen")
    add("--hops", type=int, metavar="K", help="hops back through the reasoning; with it the paper's FlashTrace")
    add("--method", metavar="NAME", help="flashtrace (the paper's), ifr, …; default: the setting most often right")
    add("--best", action="store_true", help="FlashTrace in the setting that found most evidence (`FlashTrace.best`)")
    add("--contrast", metavar="WORDS", help="another answer in the output's place: explain why this one and not that")
    add("--compare", action="append", metavar="NAME", help="another method's shares, on the page too; repeatable")
    add("--verify", action="store_true", help="remove the sentences that matter most, and see if the answer falls")
    add("--estimate", action="store_true", help="say first what seconds and memory the attribution will take")
    add("--top", type=count, metavar="N", default=15, help="tokens in the table (default: 15)")
    add("--html", type=Path, metavar="FILE", help="write a page to click through")
    add("--json", type=Path, metavar="FILE", help="write every number")
    add("--system", metavar="TEXT", help="system message")
    add("--no-template", action="store_false", dest="template", help="no chat template: the text is continued")
    add("--max-new-tokens", type=count, default=512, metavar="N", help="longest answer to write (default: 512)")
    add("--dtype", default="float32", help="of the weights: float32 (default), bfloat16 or float16")
    add("--device", metavar="MAP", help="cuda, auto, … (default: the CPU)")
    return parser
