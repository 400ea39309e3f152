"""``flashtrace``, or ``python -m flashtrace_lib``: the library's commands, and the book's in a checkout."""

import os
import sys
from importlib import import_module

OWN = {
    "trace": "flashtrace_lib.cli", "evaluate": "flashtrace_lib.evaluation.cli", "fetch": "flashtrace_lib.model.qwen",
    "bench": "flashtrace_lib.bench.measure",
}  # fmt: skip
BOOK = ("book", "claims", "audit")
USAGE = """usage: flashtrace COMMAND [options]

  trace     explain which words of a prompt a model's answer is attributed to
  evaluate  methods on a task's samples, answered by a model, as a table
  fetch     get a model that is an extra, before it is needed
  bench     time and memory of attribution beside a forward pass
  book      regenerate the book's figures and tables from stored results
  claims    judge the paper's claims by them
  audit     compute stored rows, chosen at random, again

COMMAND --help lists its options. book, claims and audit need a checkout of the book."""


def main(argv: list[str] | None = None) -> int:
    """Run a command; 2 where something is wrong with what was asked, 130 where it was interrupted."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if argv else 2
    try:
        return _run(argv)
    except KeyboardInterrupt:
        print("stopped; what was finished is kept where the command stores it: run it again to go on", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read the output has gone, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(argv: list[str]) -> int:
    from .files import CannotWrite, root
    from .names import did_you_mean

    try:
        if argv[0] in OWN:
            return import_module(OWN[argv[0]]).main(argv[1:])
        if argv[0] not in BOOK:
            meant = did_you_mean(argv[0], [*OWN, *BOOK])
            raise ValueError(f"{argv[0]} is no command: flashtrace --help lists them.{meant}")
        sys.path.append(str(root() / "notebooks"))  # no installed package carries the book
        from flashtrace_book import cli  # the one import upwards, on demand
    except (ValueError, CannotWrite) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return cli.main(argv)


if __name__ == "__main__":
    sys.exit(main())
