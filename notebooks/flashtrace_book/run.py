"""The run of a notebook: its profile, its stores, and the files of its figures and tables.

Each figure and table carries its profile, model and n; files are written atomically and without timestamps, so
that two runs with equal results write equal bytes.
"""

from __future__ import annotations

import platform
import random
import re
import struct
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from flashtrace_lib import files
from flashtrace_lib._version import __version__
from flashtrace_lib.evaluation.results_table import ON_CURVE
from flashtrace_lib.fingerprints import model_fingerprint
from flashtrace_lib.load import load_model

from . import paths
from .figures.captions import methods_in, methods_named, sentences, settings_of
from .manifest import record_model
from .markup import flat, latex, markdown
from .profiles import Profile, load_profile

_DPI = 150
_STAMP_ID = "flashtrace-stamp"
_ON_CURVE = re.compile(r"\b(RISE|MAS)\b")  # in a caption
READABLE = {  # names of models as a reader knows them
    "embedded": "SmolLM2-135M + adapter",
    "embedded-base": "SmolLM2-135M",
    "embedded-shallow": "6 layers of SmolLM2-135M + adapter",
    "data/adapter_short": "SmolLM2-135M + short adapter",
    "qwen": "Qwen2.5-Coder-0.5B",
}
_NAME = re.compile(r"[a-z0-9][a-z0-9_]*")


def readable(name: str) -> str:
    """A model's name for figures: as a reader knows it where the book has a name, else as it is given."""
    return READABLE.get(name, name)


class Saved(tuple):
    """Paths of the files just written; shown by their names alone, which no checkout changes."""

    def __repr__(self) -> str:
        return ", ".join(path.name for path in self)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]] | None:
        """The figure as it was saved, so that a notebook shows what the folder holds, at half its pixels."""
        if not self or self[0].suffix != ".png":
            return None
        data = self[0].read_bytes()
        width, height = struct.unpack(">II", data[16:24])  # the PNG header
        return data, {"width": width // 2, "height": height // 2}


@dataclass
class Run:
    """One notebook's run under a profile; made by ``start``.

    Parameters
    ----------
    profile : Profile
    model_name : str
        The model that figures and tables are stamped with. Default: the profile's.
    curves : str
        Arithmetic of the deletion curves, see `note_curves`.
    """

    profile: Profile
    model_name: str = ""
    curves: str = ""

    def __post_init__(self) -> None:
        self.model_name = self.model_name or self.profile.model

    def store(self, name: str) -> Path:
        """Path of the stored results called ``name``: ``data/results/<profile>/<name>``."""
        return paths.results_dir(self.profile.name) / _checked(name)

    def record_model(self, model: torch.nn.Module, name: str | None = None) -> None:
        """Store the facts of a loaded model for the manifest, and stamp later figures and tables with its name.

        Parameters
        ----------
        model : transformers.PreTrainedModel
        name : str, optional
            Default: the name of the profile's model.
        """
        self.model_name = name or self.profile.model
        parameter = next(model.parameters())
        facts = {
            "class": type(model).__name__,
            "dtype": str(parameter.dtype).removeprefix("torch."),
            "device": parameter.device.type,
            "parameters": sum(p.numel() for p in model.parameters()),
            "fingerprint": model_fingerprint(model),
        }
        record_model(self.profile.name, self.model_name, facts)

    def load_model(self) -> tuple[torch.nn.Module, Any]:
        """The profile's model and its tokenizer, noted for the manifest."""
        profile = self.profile
        name = paths.model_path(profile.model)
        model, tokenizer = load_model(name, dtype=profile.dtype, device_map=profile.device_map)
        self.record_model(model)
        return model, tokenizer

    def note_curves(self, frame: pd.DataFrame) -> None:
        """Stamp later figures and tables of RISE or MAS with the arithmetic of a frame of `evaluation.evaluate`."""
        on_curve = frame[frame["metric"].isin(ON_CURVE)]
        self.curves = " and ".join(sorted(on_curve["curve_dtype"].dropna().unique()))

    def stamp(self, n: int | str | None = None, *, on_curve: bool = False) -> str:
        """The line on every figure and table: model, number of samples, arithmetic of the curves, and profile."""
        name, *arithmetic = self.model_name.split(", ")  # such as "embedded, bfloat16"
        parts = [", ".join([readable(name), *arithmetic])]
        if n is not None:
            parts.append(f"n = {n}")
        if on_curve and self.curves:
            parts.append(f"curves in {self.curves}")
        parts.append(f"profile {self.profile.name}")
        return " · ".join(parts)

    def figure(
        self, fig: Figure, name: str, caption: str = "", n: int | str | None = None, *, shows_records: bool = False
    ) -> Saved:
        """Stamp a figure and save it as PNG (150 dpi) and PDF under ``figures/<profile>/``.

        Under the stamp are the settings of the methods that the figure names, where the profile limits them.

        Parameters
        ----------
        fig : matplotlib.figure.Figure
        name : str
            File name without suffix, for example ``"fig2_overview"``.
        caption : str
            Caption in the files' metadata.
        n : int or str, optional
            Number of samples behind the figure.
        shows_records : bool
            Whether the figure shows the text of records. Where these are not the book's own, it is saved under
            ``build/figures/<profile>/`` instead, which is never committed.

        Returns
        -------
        Saved
            Paths of the PNG and the PDF.
        """
        stamp = self.stamp(n, on_curve=_ON_CURVE.search(caption) is not None)
        for text in [text for text in fig.texts if text.get_gid() == _STAMP_ID]:
            text.remove()  # a figure saved twice carries one stamp
        settings = settings_of(self.profile, methods_named(fig))
        lines = "\n".join(part for part in (stamp, settings) if part)
        fig.text(1, -0.01, lines, ha="right", va="top", fontsize=6, color="0.4", gid=_STAMP_ID)
        description = " ".join(part for part in (caption, f"({stamp})" if caption else stamp, settings) if part)
        private = shows_records and self.profile.reasoning.is_real
        return self._save_figure(fig, name, description, private)

    def _save_figure(self, fig: Figure, name: str, description: str, private: bool) -> Saved:
        # No dates, no library versions: they would change the bytes of an unchanged figure.
        metadata = {
            "png": {"Title": name, "Description": description, "Software": None},
            "pdf": {"Title": name, "Subject": description, "Creator": None, "Producer": None, "CreationDate": None},
        }
        saved = []
        for suffix, fields in metadata.items():
            path = self._path(name, suffix)
            if private:
                path = files.build_root() / "figures" / self.profile.name / path.name
            with files.atomic_path(path) as temporary:
                fig.savefig(temporary, dpi=_DPI, bbox_inches="tight", metadata=fields)
            saved.append(path)
        return Saved(saved)

    def table(
        self,
        frame: pd.DataFrame,
        name: str,
        caption: str = "",
        wide: pd.DataFrame | None = None,
        n: int | str | None = None,
    ) -> Saved:
        """Save a table as CSV, Markdown and LaTeX under ``figures/<profile>/``.

        The caption gets the settings of the methods in the table, where the profile limits them.

        Parameters
        ----------
        frame : pandas.DataFrame
            The long table of the CSV; gets the columns ``profile`` and ``model`` where it lacks them.
        name : str
            File name without suffix, for example ``"table1_ruler"``.
        caption : str
        wide : pandas.DataFrame, optional
            The table for readers, in Markdown and LaTeX. Default: ``frame``.
        n : int or str, optional
            Number of samples. Default: the range of the column ``n``, where there is one.

        Returns
        -------
        Saved
            Paths of the three files.
        """
        if n is None and "n" in frame and frame["n"].notna().any():
            low, high = int(frame["n"].min()), int(frame["n"].max())
            n = low if low == high else f"{low}–{high}"
        has_curves = "metric" in frame and bool(frame["metric"].isin(ON_CURVE).any())
        stamp = self.stamp(n, on_curve=has_curves or _ON_CURVE.search(caption) is not None)
        shown = flat(frame if wide is None else wide)
        long = flat(frame)
        caption = sentences(caption, settings_of(self.profile, methods_in(long)))
        for column, value in (("profile", self.profile.name), ("model", self.model_name)):
            if column not in long:
                long = long.assign(**{column: value})
        contents = {
            "csv": long.to_csv(index=False, float_format="%.6g", lineterminator="\n"),
            "md": markdown(shown, caption, stamp),
            "tex": latex(shown, name, caption, stamp),
        }
        for suffix, text in contents.items():
            files.write_text(self._path(name, suffix), text)
        return Saved(self._path(name, suffix) for suffix in contents)

    def versions(self) -> None:
        """Print the versions that matter, to the minor: a patch or a CPU/GPU build does not change the line."""
        lines = {
            "python": platform.python_version(),
            "torch": version("torch"),
            "transformers": version("transformers"),
            "flashtrace_lib": __version__,
        }
        for name, full in lines.items():
            print(f"{name} {'.'.join(full.split('.')[:2])}")
        print(self.stamp())

    def _path(self, name: str, suffix: str) -> Path:
        return paths.figures_dir(self.profile.name) / f"{_checked(name)}.{suffix}"


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


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name a file here: use lower-case letters, digits and '_', without a suffix")
    return name
