"""Profiles: one YAML file each, which names the model, the methods, the samples and their lengths.

``smoke`` and ``laptop`` need no network. A profile of your own is a file of the same form, named by its path.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..settings import Settings, check_folder_name, file_names, load
from .experiments import (
    AblationsProfile,
    AnatomyProfile,
    BetterProfile,
    EfficiencyProfile,
    GeneralisationProfile,
    OpenQuestionsProfile,
    PilotProfile,
)
from .tasks import EvaluationProfile, HotpotProfile, ReasoningProfile, RulerProfile

__all__ = [
    "AblationsProfile",
    "BetterProfile",
    "EfficiencyProfile",
    "EvaluationProfile",
    "GeneralisationProfile",
    "HotpotProfile",
    "OpenQuestionsProfile",
    "PilotProfile",
    "Profile",
    "ReasoningProfile",
    "RulerProfile",
    "load_profile",
    "profile_names",
]

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Profile(Settings):
    """Everything that shapes a run of the book.

    Parameters
    ----------
    name : str
        Folder name under ``figures/`` and ``data/results/``: lower-case letters, digits, ``-`` and ``_``.
    description : str
        One line for the reader.
    model : str
        As ``load_model`` takes it: ``"embedded-base"``, a hub id, a path.
    methods : tuple of str
        Names of the attribution methods to compare.
    method_options : dict of str to dict
        Options by method, such as ``{reagent: {runs: 1}}``. Other options have the methods' own defaults, except
        ``hops``, which is the profile's.
    ruler, evaluation, pilot, reasoning, hotpotqa, efficiency, ablations, generalisation, open_questions
        And ``better_flashtrace``, ``rise_anatomy``: sections, each with a class of its own.
    training : str
        Training configuration that the notebook of the embedded reasoner runs from scratch.
    dtype : {"float32", "bfloat16", "float16"}
        Arithmetic of the model's forward pass.
    device_map : str, optional
        Devices that hold the model, as in transformers: ``"cuda"``, ``"auto"``. Default: the CPU.
    seed : int
        Seed of every random choice.
    hops : int
        Recursive hops K of FlashTrace (section 4.3).
    steps : int
        Steps of the deletion curve (appendix F).
    notebooks : tuple of str, optional
        Notebooks that ``book`` runs with this profile, by name or number. Default: all.
    data_dir : str, optional
        Folder of real records, relative to the checkout; ``FLASHTRACE_DATA_DIR`` overrides it.
    """

    name: str
    description: str
    model: str
    methods: tuple[str, ...]
    ruler: RulerProfile
    evaluation: EvaluationProfile = field(default_factory=EvaluationProfile)
    pilot: PilotProfile = field(default_factory=PilotProfile)
    reasoning: ReasoningProfile = field(default_factory=ReasoningProfile)
    hotpotqa: HotpotProfile = field(default_factory=HotpotProfile)
    efficiency: EfficiencyProfile = field(default_factory=EfficiencyProfile)
    ablations: AblationsProfile = field(default_factory=AblationsProfile)
    generalisation: GeneralisationProfile = field(default_factory=GeneralisationProfile)
    open_questions: OpenQuestionsProfile = field(default_factory=OpenQuestionsProfile)
    better_flashtrace: BetterProfile = field(default_factory=BetterProfile)
    rise_anatomy: AnatomyProfile = field(default_factory=AnatomyProfile)
    method_options: dict[str, dict[str, Any]] = field(default_factory=dict)
    training: str = "smoke"
    dtype: str = field(default="float32", metadata={"choices": ("float32", "bfloat16", "float16")})
    device_map: str | None = None
    seed: int = field(default=0, metadata={"least": 0})
    hops: int = field(default=1, metadata={"least": 0})
    steps: int = 20
    notebooks: tuple[str, ...] | None = None
    data_dir: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_folder_name(self.name)
        for name in ("cells", "step_by_step"):
            named = getattr(self.generalisation, name) or ()
            if unknown := [cell for cell in named if cell not in self.ruler.cells]:
                raise ValueError(
                    f"generalisation.{name} {', '.join(unknown)}: not among ruler.cells, whose problems it takes"
                )

    def to_dict(self) -> dict[str, Any]:
        """The profile as plain data that JSON can hold."""
        return asdict(self)


def profile_names() -> list[str]:
    """Names of the profiles that come with the book."""
    return file_names(_FOLDER)


def load_profile(name_or_path: str | Path) -> Profile:
    """Read and check a profile: `settings.load` of a name of `profile_names`, or of a file of your own.

    Raises
    ------
    ValueError
        Also if a file of your own has the name of a profile of the book, whose results it would replace.
    """
    profile, names = load(Profile, _FOLDER, name_or_path, "profile"), profile_names()
    own = str(name_or_path) not in names and Path(name_or_path).expanduser().resolve().parent != _FOLDER.resolve()
    if own and profile.name in names:
        raise ValueError(
            f"profile {Path(name_or_path).name}: the name {profile.name!r} is that of a profile of the book, and names "
            "the folders of its results: give yours another"
        )
    return profile
