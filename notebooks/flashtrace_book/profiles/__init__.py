"""Profiles: one YAML file each, that says which model, how many samples, how long, how deep.

``smoke`` and ``laptop`` need no network. A profile of your own is a file of the same form, named by its path.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from .checks import check_choice, check_count, check_names, check_type
from .efficiency import EfficiencyProfile
from .generalisation import GeneralisationProfile
from .open_questions import OpenQuestionsProfile
from .sections import AblationsProfile, HotpotProfile, PilotProfile, ReasoningProfile, RulerProfile

__all__ = [
    "AblationsProfile", "EfficiencyProfile", "GeneralisationProfile", "HotpotProfile", "OpenQuestionsProfile",
    "PilotProfile", "Profile", "ReasoningProfile", "RulerProfile", "load_profile", "profile_names",
]  # fmt: skip

_FOLDER = Path(__file__).parent
_DTYPES = ("float32", "bfloat16", "float16")


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
        the profile's ``hops``.
    ruler : RulerProfile
        Settings of the RULER cells.
    pilot : PilotProfile
        Settings of the pilot study.
    reasoning : ReasoningProfile
        Settings of the reasoning tasks.
    hotpotqa : HotpotProfile
        Settings of HotpotQA in long contexts.
    efficiency : EfficiencyProfile
        Settings of the measurements of time and memory.
    ablations : AblationsProfile
        Settings of the ablations.
    generalisation : GeneralisationProfile
        Settings of the comparison of two models.
    open_questions : OpenQuestionsProfile
        Settings of the experiments beyond the paper.
    training : str
        Training configuration that the notebook of the embedded reasoner runs from nothing.
    dtype : {"float32", "bfloat16", "float16"}
        Arithmetic of the model's forward pass.
    device_map : str, optional
        Where the model lies, as in transformers: ``"cuda"``, ``"auto"``. Default: the CPU.
    seed : int
        Seed of everything drawn.
    hops : int
        Recursive hops K of FlashTrace (section 4.3).
    steps : int
        Steps of the deletion curve (appendix F).
    notebooks : tuple of str, optional
        The notebooks that ``book`` runs under it, by name or number. Default: all.
    data_dir : str, optional
        Folder of real records, relative to the checkout; ``FLASHTRACE_DATA_DIR`` overrides it.
    """

    name: str
    description: str
    model: str
    methods: tuple[str, ...]
    ruler: RulerProfile
    pilot: PilotProfile = field(default_factory=PilotProfile)
    reasoning: ReasoningProfile = field(default_factory=ReasoningProfile)
    hotpotqa: HotpotProfile = field(default_factory=HotpotProfile)
    efficiency: EfficiencyProfile = field(default_factory=EfficiencyProfile)
    ablations: AblationsProfile = field(default_factory=AblationsProfile)
    generalisation: GeneralisationProfile = field(default_factory=GeneralisationProfile)
    open_questions: OpenQuestionsProfile = field(default_factory=OpenQuestionsProfile)
    method_options: dict[str, dict[str, Any]] = field(default_factory=dict)
    training: str = "smoke"
    dtype: str = "float32"
    device_map: str | None = None
    seed: int = 0
    hops: int = 1
    steps: int = 20
    notebooks: tuple[str, ...] | None = None
    data_dir: str | None = None

    def __post_init__(self) -> None:
        for name in ("name", "description", "model", "training"):
            check_type(getattr(self, name), name, str)
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", self.name):
            raise ValueError(f"name {self.name!r} cannot name a folder: use lower-case letters, digits, '-' and '_'")
        object.__setattr__(self, "methods", check_names(self.methods, "methods"))
        if self.notebooks is not None:
            object.__setattr__(self, "notebooks", check_names(self.notebooks, "notebooks"))
        unknown = [cell for cell in self.generalisation.cells or () if cell not in self.ruler.cells]
        if unknown:
            raise ValueError(
                f"generalisation.cells {', '.join(unknown)}: not among ruler.cells, whose problems it takes"
            )
        check_choice(self.dtype, "dtype", _DTYPES)
        check_count(self.seed, "seed", least=0)
        check_count(self.hops, "hops", least=0)
        check_count(self.steps, "steps", least=1)
        check_type(self.method_options, "method_options", dict)
        for name, options in self.method_options.items():
            check_type(options, f"method_options.{name}", dict)
        for name in ("data_dir", "device_map"):
            if getattr(self, name) is not None:
                check_type(getattr(self, name), name, str)

    def to_dict(self) -> dict[str, Any]:
        """The profile as plain, JSON-ready data."""
        return asdict(self)


_SECTIONS = {
    "ruler": RulerProfile, "pilot": PilotProfile, "reasoning": ReasoningProfile, "hotpotqa": HotpotProfile,
    "efficiency": EfficiencyProfile, "ablations": AblationsProfile, "generalisation": GeneralisationProfile,
    "open_questions": OpenQuestionsProfile,
}  # fmt: skip


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
    check_type(data[name], name, dict)
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
