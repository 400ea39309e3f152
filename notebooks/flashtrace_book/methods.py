"""The methods of a profile, with the profile's options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from flashtrace_lib.attribution import Method
from flashtrace_lib.methods import METHODS, FlashTrace
from flashtrace_lib.methods.perturbation_base import UnitMethod

from .profiles import Profile
from .run import Run


def profile_methods(run: Run, names: Iterable[str] | None = None, tokenizer: Any = None) -> list[Method]:
    """The methods of the run's profile, or those named, with the profile's options and number of hops.

    Parameters
    ----------
    names : iterable of str, optional
        Keys of ``METHODS``. Default: the profile's.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        The model's, for methods that take one (ReAGent with a masked language model).

    Raises
    ------
    ValueError
        If a method or an option is unknown, or an option does not fit.
    """
    profile = run.profile
    names = list(profile.methods if names is None else names)
    unknown = [name for name in (*names, *profile.method_options) if name not in METHODS]
    if unknown:
        raise ValueError(f"profile {profile.name}: unknown methods {unknown}; known are {sorted(METHODS)}")
    try:
        return [build_method(name, method_options(profile, name), tokenizer) for name in names]
    except ValueError as error:
        raise ValueError(f"profile {profile.name}: {error}") from None


def check_methods(profile: Profile) -> None:
    """Make every method that a section of the profile names, with its options, before anything is run.

    Raises
    ------
    ValueError
        See `profile_methods`.
    """
    run = Run(profile)
    for names in (
        profile.methods, profile.evaluation.few_methods, profile.pilot.methods, profile.reasoning.methods,
        profile.hotpotqa.long_methods, profile.generalisation.methods, tuple(profile.method_options),
    ):  # fmt: skip
        profile_methods(run, names or ())


def method_options(profile: Profile, name: str) -> dict[str, Any]:
    """Options of a method under a profile: its own, and the profile's number of hops."""
    options = dict(profile.method_options.get(name, {}))
    if issubclass(METHODS[name], FlashTrace):
        options = {"hops": profile.hops} | options
    return options


def sweep_options(profile: Profile, name: str) -> dict[str, Any]:
    """`method_options` for a sweep of lengths: units are always sentences, so that a curve measures one algorithm."""
    units = {"units": "sentence"} if issubclass(METHODS[name], UnitMethod) else {}
    return units | method_options(profile, name)


def build_method(name: str, options: Mapping[str, Any], tokenizer: Any = None) -> Method:
    """A method by its name, with options, and with the tokenizer where it takes one.

    Raises
    ------
    ValueError
        If the method has no such option, or a value does not fit.
    """
    known = [f.name for f in fields(METHODS[name]) if f.init]
    if unknown := [option for option in options if option not in known]:
        raise ValueError(f"method {name} has no option {', '.join(unknown)}; it has {', '.join(known)}")
    extra = {"tokenizer": tokenizer} if "tokenizer" in known else {}
    try:
        return METHODS[name](**options, **extra)
    except (TypeError, ValueError) as error:
        raise ValueError(f"method {name}: {error}") from None


def revisions(*methods: type[Method]) -> dict[str, dict[str, int]]:
    """Part of the key of a record that some methods shape: their revisions, where any is above the first."""
    raised = {method.name: method.revision for method in methods if method.revision > 1}
    return {"revisions": raised} if raised else {}
