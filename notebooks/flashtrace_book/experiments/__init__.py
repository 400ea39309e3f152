"""What makes the results that chapters read: one function a kind, run where a file of results is missing."""

from importlib import import_module
from pathlib import Path

from ..profile import Profile

# Part of a section of a profile's ``results`` -> where it is made. A function takes (profile, name, settings) and
# returns rows (`results`).
MAKERS = {
    "groups": "groups.make", "pilot": "pilot.make", "efficiency": "sweeps.make", "kinds": "failures.make",
    "rollout_cost": "timing.make", "hybrids": "hybrids.make", "grid": "grid.make", "hints": "hints.make",
    "needles": "needles.make", "verified": "trust.make", "method_cost": "grid.make_costs",
}  # fmt: skip


def compute(profile: Profile, name: str, path: Path) -> None:
    """Make the results called ``name`` and write them to ``path``.

    What is finished is kept in a working store (`paths.working_store`), so that an interrupted run goes on.

    Raises
    ------
    ValueError
        If the profile has no such section.
    """
    from ..results import write_rows

    if name not in profile.results:
        raise ValueError(
            f"{path} is missing, and profile {profile.name} has no section results.{name}: it has "
            f"{', '.join(profile.results)}"
        )
    rows = []
    for part, settings in profile.results[name].items():
        if part not in MAKERS:
            raise ValueError(f"results.{name} has the unknown part {part!r}: known are {', '.join(MAKERS)}")
        module, function = MAKERS[part].split(".")
        rows += getattr(import_module(f".{module}", __name__), function)(profile, name, settings)
    write_rows(rows, path)
