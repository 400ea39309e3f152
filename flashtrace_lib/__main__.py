"""``python -m flashtrace_lib``: ``trace``, ``fetch`` and ``bench`` are the library's; any other word is the book's."""

import os
import sys
from importlib import import_module

from .files import CannotWrite

OWN = {
    "trace": "flashtrace_lib.cli",
    "fetch": "flashtrace_lib.model.fetch",
    "bench": "flashtrace_lib.bench.measure",
}


def main(argv: list[str]) -> int:
    """Run a command; 2 where the book's are asked for and it is not installed, 130 where it was interrupted."""
    try:
        return _run(argv)
    except KeyboardInterrupt:
        print("stopped; what was finished is kept where the command stores it: run it again to go on", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read the output has gone, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(argv: list[str]) -> int:
    if argv and argv[0] in OWN:
        try:
            return import_module(OWN[argv[0]]).main(argv[1:])
        except (ValueError, CannotWrite) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    try:
        from flashtrace_book import cli  # the one import upwards, on demand
    except ModuleNotFoundError as error:
        if error.name != "flashtrace_book":
            raise
        print("error: this command is the book's: run it in a checkout, after `make env`", file=sys.stderr)
        return 2
    return cli.main(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
