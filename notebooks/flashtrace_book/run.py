"""The run of a chapter: its profile, its stored results, and the files of its figures, tables and claims.

A file is written atomically and without time stamps. Tables keep six digits, and figures are drawn from what the table
keeps, so that two machines with equal results write equal bytes.
"""

import io
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from PIL import Image

from flashtrace_lib import files
from flashtrace_lib.load import load_model

from . import claims, paths
from .figures.tables import Shown, flat, latex, markdown
from .profile import Profile, load_profile
from .results import Results

_DPI, _STAMP_ID = 150, "flashtrace-stamp"
LIVE_TOLERANCE = 1e-3  # of numbers that a model computes while a chapter runs, relative to the largest
READABLE = {  # names of models as a reader knows them
    "reasoner": "SmolLM2-135M + adapter",
    "base": "SmolLM2-135M",
    "qwen": "Qwen2.5-Coder-0.5B",
}


def readable(model: str) -> str:
    """A model's name for figures and tables."""
    return READABLE.get(model, model)


class Saved(tuple):
    """Files just written; shown by their names, and a picture as it was saved."""

    def __repr__(self) -> str:
        return ", ".join(path.name for path in self)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]] | None:
        """The picture at half its pixels; None where there is none."""
        if not self or self[0].suffix != ".png":
            return None
        width, height = Image.open(self[0]).size
        return self[0].read_bytes(), {"width": width // 2, "height": height // 2}


@dataclass
class Run:
    """One chapter's run; made by `start`.

    Parameters
    ----------
    profile : Profile
    opened : dict of str to Results
        Results that were read.
    """

    profile: Profile
    opened: dict[str, Results] = field(default_factory=dict)

    def results(self, name: str) -> Results:
        """Stored results called ``name``; where they are missing, the profile's models make them first."""
        if name not in self.opened:
            path = paths.results_file(self.profile.name, name)
            if not path.is_file():
                from .experiments import compute  # here, since a chapter whose numbers are stored needs none of it

                compute(self.profile, name, path)
            self.opened[name] = Results.read(path)
        return self.opened[name]

    def load_model(self, model: str = "reasoner") -> tuple[torch.nn.Module, Any]:
        """A model of the profile, by its name there, and its tokenizer."""
        return load_profile_model(self.profile, model)

    def table(
        self, frame: pd.DataFrame, name: str = "", caption: str = "", *, wide: pd.DataFrame | None = None,
        digits: int = 3,
    ) -> Shown:  # fmt: skip
        """Save a table as ``figures/<name>.csv`` and return it as a notebook shows it.

        Parameters
        ----------
        frame : pandas.DataFrame
            The long table of the file.
        name : str
            File name without suffix. Empty: the chapter alone shows the table.
        caption : str
        wide : pandas.DataFrame, optional
            The table for readers. Default: ``frame``.
        digits : int
            Decimals shown.

        Returns
        -------
        Shown
            ``.frame`` is the long table with the digits that the file keeps; figures are drawn from it.
        """
        text = flat(frame).to_csv(index=False, float_format="%.6g", lineterminator="\n")
        kept = pd.read_csv(io.StringIO(text), keep_default_na=False, na_values=[""]) if len(frame.columns) else frame
        shown = Shown(kept, flat(kept if wide is None else wide), caption, name or "table", digits)
        if name:
            files.write_text(self._path(name, "csv"), text)
            if _all_formats():
                files.write_text(self._build(name, "md"), markdown(shown.wide, caption))
                files.write_text(self._build(name, "tex"), latex(shown.wide, name, caption))
        return shown

    def figure(
        self, fig: Figure, name: str, caption: str, *, stamp: str = "", live: pd.DataFrame | None = None
    ) -> Saved:
        """Save a figure as ``figures/<name>.png``.

        Parameters
        ----------
        fig : matplotlib.figure.Figure
        name : str
            File name without suffix.
        caption : str
            What is to be seen: the file's description, and the text that stands in for the picture.
        stamp : str
            Line under the figure: models, arithmetic, n.
        live : pandas.DataFrame, optional
            The numbers behind a figure that a model computes while the chapter runs, saved as ``figures/<name>.csv``.
            Where the stored ones agree to ``LIVE_TOLERANCE``, both files stay as they are: another processor rounds
            otherwise.
        """
        saved = [self._path(name, suffix) for suffix in (("png",) if live is None else ("png", "csv"))]
        if live is not None and self._agrees(name, live):
            return Saved(saved)
        for text in [text for text in fig.texts if text.get_gid() == _STAMP_ID]:
            text.remove()  # a figure saved twice carries one stamp
        if stamp:
            fig.text(1, -0.01, stamp, ha="right", va="top", fontsize=6, color="0.4", gid=_STAMP_ID)
        metadata = {"Title": name, "Description": caption, "Software": None}
        fig.savefig(drawn := io.BytesIO(), dpi=_DPI, bbox_inches="tight", metadata=metadata, format="png")
        if not _same_picture(saved[0], drawn):
            with files.atomic_path(saved[0]) as temporary:
                temporary.write_bytes(drawn.getvalue())
        if live is not None:
            files.write_text(saved[1], live.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
        if _all_formats():
            with files.atomic_path(self._build(name, "pdf")) as temporary:
                dates = {"Creator": None, "Producer": None, "CreationDate": None}
                fig.savefig(temporary, bbox_inches="tight", metadata=dates, format="pdf")
        return Saved(saved)

    def _agrees(self, name: str, live: pd.DataFrame) -> bool:
        """Whether numbers computed now are those that are stored, and the picture is there."""
        path = self._path(name, "csv")
        if not (path.is_file() and self._path(name, "png").is_file()):
            return False
        stored = pd.read_csv(path, keep_default_na=False, na_values=[""])
        if stored.shape != live.shape or list(stored) != list(live):
            return False
        for column in live:
            old, new = stored[column], live[column].reset_index(drop=True)
            if not pd.api.types.is_numeric_dtype(new):
                if not (old.astype(str) == new.astype(str)).all():
                    return False
            elif not np.allclose(old, new, rtol=0, atol=LIVE_TOLERANCE * max(float(new.abs().max()), 1e-12)):
                return False
        return True

    def claim(self, name: str, numbers: pd.DataFrame | Mapping[str, Any], **about: Any) -> Shown:
        """Note the numbers behind a claim of the paper, see `claims.note`; returns them as the chapter shows them."""
        return Shown(claims.note(paths.figures_dir(self.profile.name), name, numbers, **about), None, "", name, 3)

    def _path(self, name: str, suffix: str) -> Path:
        return paths.figures_dir(self.profile.name) / f"{paths.checked(name)}.{suffix}"

    def _build(self, name: str, suffix: str) -> Path:
        return files.build_root() / "figures" / f"{paths.checked(name)}.{suffix}"


def _same_picture(stored: Path, drawn: io.BytesIO) -> bool:
    """Whether a file has the picture and its description, up to one step of a colour: processors round otherwise."""
    try:
        with Image.open(stored) as old, Image.open(drawn) as new:
            told = [(picture.size, picture.mode, picture.info.get("Description")) for picture in (old, new)]
            return told[0] == told[1] and int(np.abs(np.asarray(old, int) - np.asarray(new, int)).max()) <= 1
    except OSError:  # missing, or no picture
        return False


def _all_formats() -> bool:
    """Whether PDF, LaTeX and Markdown are wanted beside PNG and CSV (``make book FORMATS=all``)."""
    return os.environ.get("FLASHTRACE_FORMATS") == "all"


def load_profile_model(profile: Profile, model: str) -> tuple[torch.nn.Module, Any]:
    """A model of a profile and its tokenizer; ValueError where the profile has none of this name."""
    if model not in profile.models:
        raise ValueError(f"profile {profile.name} has no model {model!r}: it has {', '.join(profile.models)}")
    settings = profile.models[model]
    return load_model(paths.model_path(settings.load), dtype=settings.dtype, device_map=settings.device_map)


def start(profile: str | Path) -> Run:
    """Load a profile, seed Python, numpy and torch with its seed, and return the run.

    Raises
    ------
    ValueError
        If the profile is unknown or wrong.
    """
    loaded = load_profile(profile)
    random.seed(loaded.seed)
    np.random.seed(loaded.seed)
    torch.manual_seed(loaded.seed)
    return Run(loaded)
