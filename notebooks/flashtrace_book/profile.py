"""Profiles: which models, methods, samples and sizes the book's results are made of.

``profiles/book.yaml`` is what is committed; ``smoke`` runs everything small, for the tests; ``paper`` names the paper's
models and sizes. A path of a YAML file of one's own works as well.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

FOLDER, T = Path(__file__).with_name("profiles"), TypeVar("T")


@dataclass(frozen=True)
class Model:
    """A model as ``load_model`` takes it.

    Parameters
    ----------
    load : str
        Name, hub id or folder.
    dtype : str
    device_map : str, optional
    held_out : bool
        The model was trained here on generated problems: it gets those that the training left out.
    """

    load: str
    dtype: str = "float32"
    device_map: str | None = None
    held_out: bool = False


@dataclass(frozen=True)
class Profile:
    """What a run of the book is made of.

    Parameters
    ----------
    name, description : str
    models : dict of str to Model
        By the name that tables give them.
    results : dict of str to dict
        Sections, one for each file of results, as their experiments read them (`experiments`).
    methods : dict of str to dict
        Labels beside ``flashtrace_lib.METHODS``: ``{method: its name, option: value, …}``.
    seed, steps : int
        Seed of every draw; groups of a deletion curve.
    data_dir : str, optional
        Folder of real records, where ``FLASHTRACE_DATA_DIR`` names none.
    """

    name: str
    description: str
    models: dict[str, Model]
    results: dict[str, dict[str, Any]]
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)
    seed: int = 0
    steps: int = 20
    data_dir: str | None = None


def profile_names() -> list[str]:
    """Names of the profiles that come with the book."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_profile(name: str | Path) -> Profile:
    """A profile by its name, or from the path of a YAML file.

    Raises
    ------
    ValueError
        If there is no such profile, or its file has an unknown or a missing key.
    """
    path = FOLDER / f"{name}.yaml" if str(name) in profile_names() else Path(name).expanduser()
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        raise ValueError(f"no profile {str(name)!r}: choose one of {', '.join(profile_names())}, or name a .yaml file")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        profile = read(Profile, data, "profile")
        models = {key: read(Model, value, f"models.{key}") for key, value in profile.models.items()}
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"profile {path.name}: {error}") from None
    return Profile(**{**data, "models": models})


def read(kind: type[T], data: Any, where: str) -> T:
    """Make settings of a dataclass from a section; lists become tuples.

    Raises
    ------
    ValueError
        If a key is unknown or missing; the message names the section.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{where} must hold `key: value` lines, got {type(data).__name__}")
    known = {f.name: f for f in fields(kind)}
    if unknown := [str(key) for key in data if key not in known]:
        raise ValueError(f"{where} has the unknown key {', '.join(unknown)}: known are {', '.join(known)}")
    required = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
    if missing := [name for name in required if name not in data]:
        raise ValueError(f"{where} lacks {', '.join(missing)}: add it")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in data.items()})
