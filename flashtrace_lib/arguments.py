"""What the command line names: read and checked before a model is loaded."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile

from .attribution import Method
from .methods import METHODS, FlashTrace
from .methods.by_name import with_hops
from .text.chat_template import Messages
from .text.checks import check_conversation

# Each hop costs about a forward pass and a column of every table, and passes on only the share of the mass that still
# lies on the reasoning: after a dozen hops nothing is left to pass on that a table could show.
MAX_HOPS = 16


def check_folder(folder: Path) -> None:
    """ValueError where files cannot be written into a folder, or one that is still to be made."""
    _check_writable_near(folder, folder / "file")


def check_writable(written: Mapping[str, Path | None], read: Mapping[str, str | None]) -> None:
    """ValueError where a file cannot be written, would replace one that is read, or is that of another option.

    Parameters
    ----------
    written, read : mapping of str to path or None
        What the options name, such as ``{"--html": Path("trace.html")}``; None and ``-`` name no file.
    """
    taken = {Path(name).resolve(): option for option, name in read.items() if name not in (None, "-")}
    for option, path in written.items():
        if path is None:
            continue
        if path.is_dir():
            raise ValueError(f"{path} is a folder: give the name of a file in it")
        if path.exists() and not path.is_file():
            raise ValueError(f"{option} {path} is no regular file: leave {option} out, or give another name")
        if other := taken.get(path.resolve()):
            raise ValueError(f"{other} and {option} both name {path}: give {option} another file")
        taken[path.resolve()] = option
        _check_writable_near(path, path)


def _check_writable_near(named: Path, path: Path) -> None:
    """ValueError that says what was named where the folder of ``path``, or the one to make it in, takes no file."""
    above = next(folder for folder in path.absolute().parents if folder.exists())
    try:
        TemporaryFile(dir=above).close()  # rights alone say too little: a file system may be read-only
    except OSError as error:
        why = f"{above} is not writable ({error.strerror})" if above.is_dir() else f"{above} is no folder"
        raise ValueError(f"cannot write {named}: {why}") from error


def read_text(name: str, what: str) -> str:
    """Content of a UTF-8 file, or of standard input for ``-``; ValueError where it cannot be read or is empty."""
    if not name:
        raise ValueError(f"the name of the {what} file is empty: give a file, or - for standard input")
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
    if name.endswith(".jsonl"):
        raise ValueError(f"{name} holds many records: --batch {name} --out FOLDER explains every one of them")
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
        check_conversation(messages)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return messages


def make_method(name: str, hops: int | None, best: bool = False) -> Method:
    """Method of that name; ValueError where ``hops`` or ``best`` is given and the method has none."""
    method = METHODS[name]
    if best and name != FlashTrace.name:
        raise ValueError(f"--best: {name} has no other setting; leave it out, or choose flashtrace")
    make = FlashTrace.best if best else method
    if hops is None:
        return make()
    if hops > MAX_HOPS:
        raise ValueError(
            f"--hops: {hops} are too many, {MAX_HOPS} at most: each costs about a forward pass and passes on only the "
            "share of the mass that lies on the reasoning, so that soon nothing is left; 1 to 3 are usual"
        )
    if name not in with_hops():
        raise ValueError(f"--hops: {name} has no hops; leave it out, or choose one of {', '.join(with_hops())}")
    return make(hops=hops)
