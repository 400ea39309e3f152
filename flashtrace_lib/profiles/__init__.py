"""Profiles: one YAML file each, that says which model, how many samples, how long, how deep.

``smoke`` and ``laptop`` need no network. A profile of your own is a file of the same form, named by its path.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).parent
_DTYPES = ("float32", "bfloat16", "float16")
_HAYSTACKS = ("essay", "essay-prefix", "noise")


@dataclass(frozen=True)
class RulerProfile:
    """Settings of the RULER cells (paper, section 5 and appendix E.1).

    Parameters
    ----------
    cells : tuple of str
        Table cells, for example ``"mq_q2"``, ``"h4_c1"``.
    length : int
        Length of the whole prompt, tokens.
    lengths : dict of str to int
        Cells with a length of their own, tokens.
    haystack : {"essay", "essay-prefix", "noise"}, optional
        What the needles and assignments are hidden in. Default: as the benchmark, essays for needles, noise for
        assignments.
    samples : int
        Samples with a correct response wanted in each cell.
    max_tries : int
        Examples tried in each cell to find them.
    max_new_tokens : int
        Longest response, tokens.
    one_shot : bool or "auto"
        Whether variable tracking starts with a worked example, as the benchmark's does; ``"auto"``: where it leaves
        room for a haystack.
    """

    cells: tuple[str, ...]
    length: int
    samples: int
    max_tries: int
    max_new_tokens: int
    haystack: str | None = None
    one_shot: bool | str = "auto"
    lengths: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", _names(self.cells, "ruler.cells"))
        for name in ("length", "samples", "max_tries", "max_new_tokens"):
            _check_count(getattr(self, name), f"ruler.{name}", least=1)
        if self.max_tries < self.samples:
            raise ValueError(f"ruler.max_tries {self.max_tries} is less than ruler.samples {self.samples}: raise it")
        if self.haystack is not None:
            _check_choice(self.haystack, "ruler.haystack", _HAYSTACKS)
        _check_choice(self.one_shot, "ruler.one_shot", (True, False, "auto"))
        _check_type(self.lengths, "ruler.lengths", dict)
        for cell, length in self.lengths.items():
            _check_choice(cell, "a cell of ruler.lengths", self.cells)
            _check_count(length, f"ruler.lengths.{cell}", least=1)

    def length_of(self, cell: str) -> int:
        """Prompt length of ``cell``, tokens."""
        return self.lengths.get(cell, self.length)


@dataclass(frozen=True)
class PilotProfile:
    """Settings of the pilot study (paper, section 3.2 and appendix I): one chain of assignments in noise.

    Parameters
    ----------
    model : str
        A model that reasons; what ``load_model`` takes.
    hops : tuple of int
        Assignments to follow; the reasoning grows with them.
    samples : int
        Samples with a correct response wanted for each number of hops.
    compare_hops : int
        Assignments of the problems that are answered with and without reasoning.
    compare_samples : int
        Of these, samples that are answered correctly in both ways.
    compare_length : int
        Length of their prompts, tokens: short, since perturbation takes a pass for every sentence.
    methods : tuple of str
        Methods whose recovery is compared.
    length : int
        Length of the prompts of growing reasoning, tokens.
    max_new_tokens : int
        Longest response, tokens.
    cost_input : int
        Input of the cost measurement, tokens.
    cost_reasoning : tuple of int
        Its lengths of the reasoning, tokens, ascending.
    cost_limit : int
        The first length that takes a method longer than this, s, is its last, three at least; longer ones are
        extrapolated.
    """

    model: str = "embedded"
    hops: tuple[int, ...] = (1, 2, 4, 6, 8, 10)
    samples: int = 4
    compare_hops: int = 2
    compare_samples: int = 20
    compare_length: int = 256
    methods: tuple[str, ...] = ("perturbation", "ifr", "attnlrp", "flashtrace")
    length: int = 512
    max_new_tokens: int = 384
    cost_input: int = 256
    cost_reasoning: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)
    cost_limit: int = 60

    def __post_init__(self) -> None:
        object.__setattr__(self, "methods", _names(self.methods, "pilot.methods"))
        _check_type(self.model, "pilot.model", str)
        counts = "samples compare_hops compare_samples compare_length length max_new_tokens cost_input cost_limit"
        for name in counts.split():
            _check_count(getattr(self, name), f"pilot.{name}", least=1)
        for name in ("hops", "cost_reasoning"):
            numbers = getattr(self, name)
            if not isinstance(numbers, list | tuple) or not numbers:
                raise ValueError(f"pilot.{name} must be a list of one or more whole numbers, got {numbers!r}")
            for number in numbers:
                _check_count(number, f"a number of pilot.{name}", least=1)
            if list(numbers) != sorted(set(numbers)):
                raise ValueError(f"pilot.{name} must ascend, got {list(numbers)}")
            object.__setattr__(self, name, tuple(numbers))


@dataclass(frozen=True)
class Profile:
    """Everything that shapes a run of the book.

    Parameters
    ----------
    name : str
        Folder name under ``figures/`` and ``data/results/``: lower-case letters, digits, ``-`` and ``_``.
    description : str
        One line for the reader.
    model : str
        What ``load_model`` takes: ``"embedded-base"``, a hub id, a path.
    methods : tuple of str
        Names of the attribution methods to compare.
    method_options : dict of str to dict
        Options of methods, by name, such as ``{reagent: {runs: 1}}``. Without it methods have their own, but for
        the profile's ``hops`` and, where units of the input are changed, sentences (appendix D.2).
    ruler : RulerProfile
        Settings of the RULER cells.
    pilot : PilotProfile
        Settings of the pilot study.
    training : str
        Training configuration that the notebook of the embedded reasoner runs from nothing.
    dtype : {"float32", "bfloat16", "float16"}
        Arithmetic of the model's forward pass.
    seed : int
        Seed of everything drawn.
    hops : int
        Recursive hops K of FlashTrace (section 4.3).
    steps : int
        Steps of the deletion curve (appendix F).
    data_dir : str, optional
        Folder of real records, relative to the checkout; ``FLASHTRACE_DATA_DIR`` overrides it.
    """

    name: str
    description: str
    model: str
    methods: tuple[str, ...]
    ruler: RulerProfile
    pilot: PilotProfile = field(default_factory=PilotProfile)
    method_options: dict[str, dict[str, Any]] = field(default_factory=dict)
    training: str = "smoke"
    dtype: str = "float32"
    seed: int = 0
    hops: int = 1
    steps: int = 20
    data_dir: str | None = None

    def __post_init__(self) -> None:
        for name in ("name", "description", "model", "training"):
            _check_type(getattr(self, name), name, str)
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", self.name):
            raise ValueError(f"name {self.name!r} cannot name a folder: use lower-case letters, digits, '-' and '_'")
        object.__setattr__(self, "methods", _names(self.methods, "methods"))
        _check_choice(self.dtype, "dtype", _DTYPES)
        _check_count(self.seed, "seed", least=0)
        _check_count(self.hops, "hops", least=0)
        _check_count(self.steps, "steps", least=1)
        _check_type(self.method_options, "method_options", dict)
        for name, options in self.method_options.items():
            _check_type(options, f"method_options.{name}", dict)
        if self.data_dir is not None:
            _check_type(self.data_dir, "data_dir", str)

    def to_dict(self) -> dict[str, Any]:
        """The profile as plain, JSON-ready data."""
        return asdict(self)


_SECTIONS = {"ruler": RulerProfile, "pilot": PilotProfile}


def profile_names() -> list[str]:
    """Names of the profiles that come with the library."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def load_profile(name_or_path: str | Path) -> Profile:
    """Read and check a profile.

    Parameters
    ----------
    name_or_path : str or Path
        The name of a profile of the library, or the path of a YAML file (it ends in ``.yaml`` or ``.yml``).

    Returns
    -------
    Profile

    Raises
    ------
    ValueError
        If there is no such profile, a key is unknown or missing, or a value does not fit.
    """
    path = _profile_path(str(name_or_path))
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("the file must hold `key: value` lines")
        _check_keys(data, Profile, "")
        return Profile(**data | {name: _section(data, name, kind) for name, kind in _SECTIONS.items() if name in data})
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"profile {path.name}: {error}") from None


def _section(data: dict[str, Any], name: str, kind: type) -> Any:
    """The settings under one key of the file."""
    _check_type(data[name], name, dict)
    _check_keys(data[name], kind, f"{name}.")
    return kind(**data[name])


def _profile_path(name: str) -> Path:
    is_path = name.endswith((".yaml", ".yml"))
    path = Path(name).expanduser() if is_path else _FOLDER / f"{name}.yaml"
    if (is_path and path.is_file()) or name in profile_names():
        return path
    raise ValueError(
        f"no profile {name!r}: known are {', '.join(profile_names())}; a profile of your own is named by the path "
        "of its .yaml file"
    )


def _check_keys(data: dict[str, Any], kind: type, prefix: str) -> None:
    known = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(kind)}
    unknown = [f"{prefix}{key}" for key in data if key not in known]
    if unknown:
        raise ValueError(f"unknown key {', '.join(unknown)}: known are {', '.join(prefix + key for key in known)}")
    missing = [f"{prefix}{key}" for key, required in known.items() if required and key not in data]
    if missing:
        raise ValueError(f"missing key {', '.join(missing)}: add it")


def _names(value: Any, name: str) -> tuple[str, ...]:
    """A list of distinct strings as a tuple."""
    if not isinstance(value, list | tuple) or not value or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{name} must be a list of one or more names, got {value!r}")
    if len(set(value)) < len(value):
        raise ValueError(f"{name} names something twice: {', '.join(value)}")
    return tuple(value)


def _check_type(value: Any, name: str, kind: type) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be a {kind.__name__}, got {value!r}")


def _check_count(value: Any, name: str, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _check_choice(value: Any, name: str, choices: tuple) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(str(choice) for choice in choices)}, got {value!r}")
