"""Files that are written whole or not at all, read with an error that names them, and hashed."""

import errno
import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

_MARKER = "flashtrace_lib/__init__.py"  # stands in a checkout beside pyproject.toml, and in no installed copy
_FREE = "free some space"
_ELSEWHERE = (
    "make its folder writable, or name another by FLASHTRACE_RESULTS_DIR, FLASHTRACE_FIGURES_DIR, FLASHTRACE_BUILD_DIR "
    "or FLASHTRACE_CACHE"
)
_REMEDIES = dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), _ELSEWHERE) | {
    errno.ENOSPC: _FREE, errno.EDQUOT: _FREE, errno.EFBIG: "allow larger files (ulimit -f)",
}  # fmt: skip


class CannotWrite(OSError):
    """The system refuses to have a file written; the message names it and says what to do."""

    def __str__(self) -> str:
        return f"cannot write {self.filename}: {self.strerror}"


def check_writable(written: dict[str, Path | None], read: dict[str, str | None]) -> None:
    """ValueError where a file cannot be written, would replace one that is read, or is that of another option."""
    taken = {Path(name).resolve(): option for option, name in read.items() if name not in (None, "-")}
    for option, path in ((option, path) for option, path in written.items() if path is not None):
        if path.exists() and not path.is_file():
            raise ValueError(f"{option} {path} is no regular file: leave {option} out, or give another name")
        if other := taken.get(path.resolve()):
            raise ValueError(f"{other} and {option} both name {path}: give {option} another file")
        taken[path.resolve()] = option
        above = next(folder for folder in path.absolute().parents if folder.exists())
        try:
            TemporaryFile(dir=above).close()  # rights alone say too little: a file system may be read-only
        except OSError as error:
            why = f"{above} is not writable ({error.strerror})" if above.is_dir() else f"{above} is no folder"
            raise ValueError(f"cannot write {path}: {why}") from error


def root() -> Path:
    """The checkout: ``FLASHTRACE_ROOT``, else that of this package, else the one around the working directory.

    Raises
    ------
    ValueError
        If there is none, as when the library is installed without its book.
    """
    named = os.environ.get("FLASHTRACE_ROOT")
    if named:
        if not Path(named).is_dir():
            raise ValueError(f"FLASHTRACE_ROOT is {named}, which is no folder: unset it or name a checkout of the book")
        return Path(named).resolve()
    here = Path.cwd().resolve()
    for folder in (Path(__file__).resolve().parent.parent, here, *here.parents):
        if (folder / "pyproject.toml").is_file() and (folder / _MARKER).is_file():
            return folder
    raise ValueError(
        "this needs the book (notebooks, stored results), which no installed package carries; "
        f"no checkout of the book found around {here}: run inside a clone, or set FLASHTRACE_ROOT to one"
    )


def data_folder(name: str) -> Path:
    """Where the files of ``data/NAME`` stand that the library reads: in an installed wheel, else in the checkout.

    ``FLASHTRACE_ROOT`` goes before both.

    Raises
    ------
    ValueError
        If the package was installed without them and there is no checkout.
    """
    carried = Path(__file__).resolve().parent / "data" / name  # a wheel's copy, made by setup.py; no checkout has one
    if carried.is_dir() and not os.environ.get("FLASHTRACE_ROOT"):
        return carried
    return root() / "data" / name


def build_root() -> Path:
    """Root of what is neither committed nor worth keeping: executed notebooks, HTML, converted models.

    ``FLASHTRACE_BUILD_DIR``, else ``build`` in the checkout, else, for an installed wheel, the user's cache.
    """
    if not os.environ.get("FLASHTRACE_BUILD_DIR"):
        try:
            root()
        except ValueError:
            return cache_root()
    return path_from_environment("FLASHTRACE_BUILD_DIR", "build")


def cache_root() -> Path:
    """Folder of what can be made again and is worth keeping between runs, such as converted weights: the user's.

    ``FLASHTRACE_CACHE``, else ``$XDG_CACHE_HOME/flashtrace``, else ``~/.cache/flashtrace``. It may not exist yet.

    Raises
    ------
    RuntimeError
        If none of them is set and the user has no home folder.
    """
    named = os.environ.get("FLASHTRACE_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    above = os.environ.get("XDG_CACHE_HOME")
    return (Path(above) if above else Path.home() / ".cache") / "flashtrace"


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Where a full disk, a read-only folder or a limit on files stops the block, raise `CannotWrite` in its place."""
    try:
        yield
    except CannotWrite:
        raise
    except OSError as error:
        remedy = _REMEDIES.get(error.errno)
        if remedy is None:
            raise
        why = f"{os.strerror(error.errno)}. What is stored is kept: {remedy}, then run the same again to go on from it"
        raise CannotWrite(error.errno, why, str(path)) from error


@contextmanager
def locked(path: Path | str) -> Iterator[None]:
    """Hold the lock of a file, which is made where it is missing; the kernel drops it when its holder dies."""
    with writing(path):
        file = open(path, "w")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that takes its place when the block ends without an error.

    A reader sees the old file or the new one, never half of one, even after ``kill -9``.

    Raises
    ------
    CannotWrite
        If the disk is full, the folder is read-only or the file too large for the process; the old file stays.
    """
    path = Path(path)
    if path.is_symlink():  # the link stays, and what it points at is replaced
        path = path.resolve()
    if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe or device would be replaced; a folder is not
        raise CannotWrite(errno.EINVAL, "it is no regular file: give another name", str(path))
    # The suffix stays last: matplotlib and pandas choose the format by it.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp{path.suffix}")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            _flush(temporary)  # the content first, or a crash could leave the new name on an empty file
            os.replace(temporary, path)
            _flush(path.parent)  # then the rename itself
        finally:
            temporary.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Force a file or folder onto the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def place_folder(made: Path, folder: Path, proof: str) -> None:
    """Move a finished folder to its place, its content on the disk first, unless another process was faster.

    Raises
    ------
    OSError
        If it cannot be moved, and the folder in its place does not hold the file ``proof``.
    """
    for path in made.iterdir():
        _flush(path)
    try:
        made.rename(folder)
    except OSError:
        if not (folder / proof).is_file():
            raise


def write_text(path: Path | str, text: str) -> Path:
    """Write a UTF-8 text file atomically; returns its path."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def read_json(path: Path | str) -> dict[str, Any]:
    """The object in a JSON file of the book; ValueError that names the file where it holds none."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, brackets without end
        raise ValueError(f"{path} is damaged ({error}): restore it from version control") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged (no JSON object): restore it from version control")
    return found


def sha256(path: Path | str) -> str:
    """SHA-256 of a file, as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def path_from_environment(variable: str, default: str) -> Path:
    """The folder that an environment variable names, else ``default``; relative to the checkout."""
    return in_checkout(os.environ.get(variable) or default)


def in_checkout(named: str) -> Path:
    """Absolute path; a relative one starts at the checkout, since a notebook's working directory is not the shell's."""
    path = Path(named).expanduser()
    return path if path.is_absolute() else (root() / path).resolve()
