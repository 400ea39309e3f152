"""The command line: ``python -m flashtrace_lib book | notebooks | audit | claims | trace | bench | …``."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from importlib import import_module
from typing import Any

import yaml

from flashtrace_lib._version import __version__
from flashtrace_lib.files import CannotWrite

from .profiles import profile_names

# Commands that another module's `main` parses and runs; each is imported on demand, since it takes a second.
FORWARDED = {
    "trace": "flashtrace_lib.cli",
    "fetch": "flashtrace_lib.model.fetch",
    "bench": "flashtrace_lib.bench.measure",
    "efficiency": "flashtrace_book.efficiency.sweep",
    "estimate": "flashtrace_book.efficiency.estimate",
}


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; exit code 1 where a notebook failed or an audit disagrees, 2 for bad input or a full disk."""
    parser = _parser()
    arguments, rest = parser.parse_known_args(argv)
    if rest and arguments.command not in FORWARDED:
        parser.error(f"unrecognised arguments: {' '.join(rest)}")
    try:
        if arguments.command in FORWARDED:
            return import_module(FORWARDED[arguments.command]).main(rest) or 0
        return arguments.run(arguments)
    except (ValueError, CannotWrite) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m flashtrace_lib", description="The FlashTrace book.")
    parser.add_argument("--version", action="version", version=f"flashtrace_lib {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)

    book = commands.add_parser("book", help="run the notebooks and write figures, tables and the manifest")
    book.add_argument("names", nargs="*", metavar="NOTEBOOK", help="name or number, such as 05; default: all")
    book.add_argument(
        "--profile", default="laptop", help=f"{', '.join(profile_names())} or a .yaml file (default: laptop)"
    )
    book.add_argument("--fresh", action="store_true", help="use no stored result; replace them when all has succeeded")
    book.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a further parameter of the notebooks (YAML)"
    )
    book.set_defaults(run=_book)

    notebooks = commands.add_parser("notebooks", help="regenerate notebooks/*.ipynb, with outputs, from notebooks/py")
    notebooks.add_argument("names", nargs="*", metavar="NOTEBOOK", help="name or number, such as 05; default: all")
    notebooks.set_defaults(run=_notebooks)

    commands.add_parser("trace", add_help=False, help="explain what a model's answer to your text is attributed to")

    commands.add_parser("fetch", add_help=False, help="get a model that is an extra, such as qwen")

    audit = commands.add_parser("audit", help="check figures against the manifest, and compute stored results again")
    audit.add_argument("--profile", default="laptop", help="name or .yaml file (default: laptop)")
    audit.add_argument("-k", type=int, default=1, help="rows of every stored table; 0: files alone (default: 1)")
    audit.add_argument("--seed", type=int, default=0, help="chooses the rows (default: 0)")
    audit.set_defaults(run=_audit)

    stale = commands.add_parser("stale", help="list stored records that no notebook of a profile uses")
    stale.add_argument("--profile", default="laptop", help="name or .yaml file (default: laptop)")
    stale.add_argument("--remove", action="store_true", help="and remove them")
    stale.set_defaults(run=_stale)

    claims = commands.add_parser("claims", help="judge the paper's claims by the stored results; writes the page")
    claims.set_defaults(run=_claims)

    commands.add_parser("bench", add_help=False, help="measure time and memory against a forward pass")
    commands.add_parser("efficiency", add_help=False, help="measure time and memory of every method by length")
    commands.add_parser("estimate", add_help=False, help="passes and hours that a profile would take")
    return parser


def _book(arguments: argparse.Namespace) -> int:
    from .runner import run_book  # here, because papermill takes a second to import

    parameters = dict(_assignment(text) for text in arguments.set)
    result = run_book(arguments.profile, arguments.names or None, arguments.fresh, parameters=parameters)
    width = max(len(outcome.name) for outcome in result.outcomes)
    for outcome in result.outcomes:
        state = "ok" if outcome.error is None else f"FAILED: {outcome.error}"
        print(f"{outcome.name:{width}}  {outcome.seconds:8.1f} s  {state}")
    print(f"manifest: {result.manifest}")
    if result.outdated:
        names = " ".join(result.outdated)
        print(f"tables changed that stored notebooks show: python -m flashtrace_lib notebooks {names}")
    return result.exit_code


def _notebooks(arguments: argparse.Namespace) -> int:
    from .notebooks import refresh_notebooks

    failed = refresh_notebooks(arguments.names or None)
    if failed:
        print(f"failed, and left as they were: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def _audit(arguments: argparse.Namespace) -> int:
    from flashtrace_lib.load import load_model

    from . import audit  # here, because it imports every part of the book
    from .paths import model_path
    from .profiles import load_profile

    if arguments.k < 0:
        raise ValueError(f"-k is {arguments.k}: give the number of rows of every table, 0 for the files alone")
    profile = load_profile(arguments.profile)
    checks = [*audit.audit_files(profile), *audit.audit_notebooks()]
    if arguments.k > 0:
        name = model_path(profile.model)
        model, tokenizer = load_model(name, dtype=profile.dtype, device_map=profile.device_map)
        log = partial(print, file=sys.stderr, flush=True)
        checks += audit.audit_profile(profile, model, tokenizer, arguments.k, arguments.seed, log=log)
    print(audit.report(checks))
    return int(not all(check.agrees for check in checks))


def _stale(arguments: argparse.Namespace) -> int:
    from . import stale
    from .profiles import load_profile

    profile = load_profile(arguments.profile)
    unused = stale.remove(profile) if arguments.remove else stale.unused(profile)
    for name, keys in unused.items():
        print(f"{name}: {len(keys)} records that no notebook uses{', removed' if arguments.remove else ''}")
    print("nothing stale" if not unused else f"{sum(map(len, unused.values()))} records in all")
    return int(bool(unused) and not arguments.remove)


def _claims(arguments: argparse.Namespace) -> int:
    from . import paths
    from .claims import badges, judge, readme

    profiles = judge.profiles_with_tables()
    if not profiles:  # README would lose its verdicts
        raise ValueError(
            f"no figures of any profile in {paths.figures_root()}: unset FLASHTRACE_FIGURES_DIR, or run a profile"
        )
    for name in profiles:
        if not paths.results_dir(name).is_dir():
            raise ValueError(
                f"there are figures of profile {name} and no results in {paths.results_dir(name)}: unset "
                "FLASHTRACE_RESULTS_DIR, or run the profile"
            )
    judged = judge.judge_all()
    written = [*judge.write(judged), *badges.write(judged), readme.write_readme(judged)]
    print(judge.count_table(judged).to_string(index=False))
    print("written:", ", ".join(map(str, written)))
    return 0


def _assignment(text: str) -> tuple[str, Any]:
    """Split ``NAME=VALUE`` and read the value as YAML, so that numbers are numbers."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ValueError(f"--set {text!r} is not NAME=VALUE")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ValueError(f"--set {text!r}: the value is no YAML ({str(error).splitlines()[0]})") from None
