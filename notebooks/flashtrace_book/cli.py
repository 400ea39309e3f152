"""The commands of the book: ``book``, ``claims``, ``audit`` (`flashtrace_lib.__main__` has the library's)."""

import argparse
import sys
from typing import Any

import yaml

from flashtrace_lib.files import CannotWrite

from . import paths


def main(argv: list[str] | None = None) -> int:
    """Run one command; exit code 1 where a chapter failed or a stored row differs, 2 for bad input or a full disk."""
    arguments = _parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except (ValueError, CannotWrite) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="flashtrace", description="The FlashTrace book.")
    commands = parser.add_subparsers(dest="command", required=True)

    book = commands.add_parser("book", help="regenerate figures and tables from stored results")
    book.add_argument("names", nargs="*", metavar="CHAPTER", help="name or number, such as 05; default: all")
    book.add_argument("--profile", default=paths.BOOK, help="book, smoke, paper or a .yaml file (default: book)")
    book.add_argument("--write", action="store_true", help="refresh notebooks/*.ipynb, with outputs, from notebooks/py")
    book.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the chapters (YAML)"
    )
    book.set_defaults(run=_book)

    claims = commands.add_parser("claims", help="judge the paper's claims by the numbers that the chapters noted")
    claims.set_defaults(run=_claims)

    audit = commands.add_parser("audit", help="compute stored rows, chosen at random, again from their samples")
    audit.add_argument("names", nargs="*", metavar="RESULTS", help="files of data/results; default: all with methods")
    audit.add_argument("-k", type=int, default=1, help="rows of every file (default: 1)")
    audit.add_argument("--seed", type=int, default=0, help="chooses the rows (default: 0)")
    audit.set_defaults(run=_audit)
    return parser


def _book(arguments: argparse.Namespace) -> int:
    if arguments.write:
        from .notebooks import refresh_notebooks

        broken = refresh_notebooks(arguments.names or None)
    else:
        from .runner import failed, run_book  # here, because papermill takes a second to import

        parameters = dict(_assignment(text) for text in arguments.set)
        broken = failed(run_book(arguments.profile, arguments.names or None, parameters=parameters))
    if broken:
        print(f"failed: {', '.join(broken)}", file=sys.stderr)
    return int(bool(broken))


def _claims(arguments: argparse.Namespace) -> int:
    from . import claims_page

    counts, written = claims_page.write(paths.figures_dir(paths.BOOK))
    print(counts.to_string(index=False))
    print("written:", ", ".join(str(path) for path in written))
    return 0


def _audit(arguments: argparse.Namespace) -> int:
    from .audit import audit, report

    checks = audit(arguments.names or None, arguments.k, arguments.seed)
    print(report(checks))
    done = [check.agrees for check in checks if check.agrees is not None]
    return int(not done or not all(done))  # where no row could be computed, nothing has been audited


def _assignment(text: str) -> tuple[str, Any]:
    """Split ``NAME=VALUE`` and read the value as YAML, so that numbers are numbers."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ValueError(f"--set {text!r} is not NAME=VALUE")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ValueError(f"--set {text!r}: the value is no YAML ({str(error).splitlines()[0]})") from None
