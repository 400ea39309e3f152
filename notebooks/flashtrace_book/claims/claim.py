"""The claims of the paper, read from ``claims.yaml``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from . import efficiency_numbers, numbers, table_numbers
from .evidence import COLUMNS, Evidence
from .printed_numbers import PRINTED
from .robustness import robustness
from .rules import RULES, Finding, Rule

MEASURED = table_numbers.MEASURED | numbers.MEASURED | efficiency_numbers.MEASURED

_REQUIRED = ("key", "text", "where", "paper", "notebook", "rule")
_FUNCTIONS = ("rule", "measured", "printed", "checks")
_LISTS = ("samples",)
_OPTIONAL = ("measured", "printed", "checks", "samples", "note")


@dataclass(frozen=True)
class Claim:
    """One checkable claim of the paper.

    Parameters
    ----------
    key : str
        Its name in files.
    text : str
        The claim in one line.
    where : str
        The sections, tables and figures of the paper that make it.
    paper : str
        The paper's numbers, as text.
    notebook : str
        The notebook that measures it.
    rule : Rule
        The rule that turns the findings into a verdict.
    measured : callable, optional
        Evidence of a profile -> findings. Raises `rules.Missing` if a result does not exist yet.
    printed : callable, optional
        Nothing -> findings, for a claim that is judged by the paper's own publications, without a profile.
    checks : callable, optional
        Evidence of a profile -> `robustness.robustness` of the comparison that the claim makes.
    samples : tuple of str
        Tables of the samples behind the numbers, see `responses.marked`.
    note : str
        Remark that is printed beside the numbers.
    """

    key: str
    text: str
    where: str
    paper: str
    notebook: str
    rule: Rule
    measured: Callable[[Evidence], list[Finding]] | None = None
    printed: Callable[[], list[Finding]] | None = None
    checks: Callable[[Evidence], dict[str, Any]] | None = None
    samples: tuple[str, ...] = ()
    note: str = ""

    @property
    def of_the_paper(self) -> bool:
        """Whether it is judged by the paper's own publications."""
        return self.printed is not None

    def findings(self, evidence: Evidence) -> list[Finding]:
        """The numbers that decide; none for a claim that cannot be tested."""
        if self.printed is not None:
            return self.printed()
        return [] if self.measured is None else self.measured(evidence)


def read_claims(path: Path) -> tuple[Claim, ...]:
    """Read a list of claims.

    Parameters
    ----------
    path : Path
        A YAML file; its fields are those of `Claim`, and are explained at the top of ``claims.yaml``.

    Returns
    -------
    tuple of Claim

    Raises
    ------
    ValueError
        If a claim has a mistake: a field is missing, unknown or no text, a key stands twice, or a function is unknown
        or does not take its options. The message names file and line.
    """
    claims: dict[str, Claim] = {}
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader)
        if not isinstance(root, yaml.SequenceNode):
            raise ValueError(f"{path}: the file must hold a list of claims")
        for node in root.value:
            claim = _claim(node)
            if claim.key in claims:
                raise _mistake(node, f"there is a claim {claim.key!r} above")
            claims[claim.key] = claim
    except yaml.MarkedYAMLError as error:
        raise ValueError(f"{path}, line {error.problem_mark.line + 1}: {error.problem}") from None
    return tuple(claims.values())


def _claim(node: yaml.Node) -> Claim:
    fields = _fields(node)
    texts = {name: _text(name, value) for name, value in fields.items() if name not in _FUNCTIONS + _LISTS}
    samples = _samples(fields["samples"]) if "samples" in fields else ()
    rule_of = _function(fields["rule"], RULES, "rule")
    try:
        rule = rule_of()
    except (TypeError, ValueError) as error:  # an option of the wrong type
        raise _mistake(fields["rule"], f"rule {rule_of.func.__name__}: {error}") from None
    if ("measured" in fields) + ("printed" in fields) != rule.testable:
        raise _mistake(node, "a claim is either measured or printed, and neither if its rule is untestable")
    measured = _function(fields["measured"], MEASURED, "measured", Evidence) if "measured" in fields else None
    printed = _function(fields["printed"], PRINTED, "printed") if "printed" in fields else None
    checks = _checks(fields["checks"]) if "checks" in fields else None
    return Claim(**texts, rule=rule, measured=measured, printed=printed, checks=checks, samples=samples)


def _fields(node: yaml.Node) -> dict[str, yaml.Node]:
    """Name -> value of the fields of a claim."""
    if not isinstance(node, yaml.MappingNode):
        raise _mistake(node, "a claim must be given as `field: value` lines")
    fields: dict[str, yaml.Node] = {}
    for name, value in node.value:
        if name.value not in _REQUIRED + _OPTIONAL:
            raise _mistake(name, f"unknown field {name.value!r}: known are {', '.join(_REQUIRED + _OPTIONAL)}")
        if name.value in fields:
            raise _mistake(name, f"the claim has the field {name.value!r} twice")
        fields[name.value] = value
    missing = [name for name in _REQUIRED if name not in fields]
    if missing:
        raise _mistake(node, f"the claim lacks the field {', '.join(missing)}")
    return fields


def _text(name: str, node: yaml.Node) -> str:
    if node.tag != "tag:yaml.org,2002:str":
        raise _mistake(node, f"{name} must be text; put a number in quotes")
    return node.value


def _samples(node: yaml.Node) -> tuple[str, ...]:
    if not isinstance(node, yaml.SequenceNode):
        raise _mistake(node, "samples must be a list of tables")
    names = [_text("samples", value) for value in node.value]
    for name, value in zip(names, node.value, strict=True):
        if name.partition("/")[0] not in COLUMNS:
            raise _mistake(value, f"samples: no table {name.partition('/')[0]!r} is read for a claim")
    return tuple(names)


def _function(node: yaml.Node, functions: Mapping[str, Callable], field: str, *first: object) -> partial:
    """The function that a field names, with its options; ``first`` are the arguments that it is called with later."""
    call = yaml.constructor.SafeConstructor().construct_document(node)
    name, options = next(iter(call.items())) if isinstance(call, dict) and len(call) == 1 else (call, {})
    if not isinstance(name, str) or not isinstance(options, dict):
        raise _mistake(node, f"{field} must be given as a name, or as {{name: {{option: value}}}}")
    if name not in functions:
        raise _mistake(node, f"{field} has no function {name!r}: known are {', '.join(functions)}")
    try:
        inspect.signature(functions[name]).bind(*first, **options)
    except TypeError as error:
        raise _mistake(node, f"{field} {name}: {error}") from None
    return partial(functions[name], **options)


def _checks(node: yaml.Node) -> partial:
    """`robustness.robustness` with the options that the field ``checks`` gives."""
    options = yaml.constructor.SafeConstructor().construct_document(node)
    try:
        inspect.signature(robustness).bind(Evidence, **options)
    except TypeError as error:
        raise _mistake(node, f"checks: {error}") from None
    return partial(robustness, **options)


def _mistake(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    """An error at the place of a node, of the kind that YAML's own errors have."""
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


CLAIMS = read_claims(Path(__file__).with_name("claims.yaml"))
