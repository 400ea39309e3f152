"""Unpack a headless Chromium for the browser tests, where the machine has none: ``python -m scripts.get_chromium``.

The npm package @sparticuz/chromium holds a headless shell that needs no library of a desktop: one pinned tarball,
checked against its hash and unpacked once into the cache of the user. No root, no node. Where that cannot be done (no
network, another architecture), the reason is printed and the tests that need a browser are skipped; nothing fails.
"""

import io
import os
import platform
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from scripts.npm_package import cache_folder, fetch

VERSION = "153.0.0"
SHA512 = (
    "8e2196a92bcf31dbb8f8ff538a562a011ef21063c41c8371fa50af13f36a34ef"
    "c41d8cc5ff1d615222394fa8a8548b7b744cbb9fcf1bcb24f4be4f9d9ec810c0"
)
URL = f"https://registry.npmjs.org/@sparticuz/chromium/-/chromium-{VERSION}.tgz"
SYSTEM_NAMES = ("chromium", "chromium-browser", "google-chrome")

_LAUNCHER = """#!/bin/sh
here="$(dirname "$(readlink -f "$0")")"
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FONTCONFIG_FILE="$here/fonts.conf"
exec "$here/headless-shell" --no-zygote "$@"
"""
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{folder}/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{folder}/fonts-cache</cachedir>
  <alias><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""


def unpacked() -> Path:
    """Where the unpacked browser's launcher stands, or would."""
    return cache_folder() / f"chromium-{VERSION}" / "chromium"


def chromium_path() -> str | None:
    """The browser to use: the one of ``FLASHTRACE_CHROMIUM``, the system's, the unpacked one, or None."""
    named = os.environ.get("FLASHTRACE_CHROMIUM")
    if named:
        return named
    found = next(filter(None, map(shutil.which, SYSTEM_NAMES)), None)
    return found or (str(unpacked()) if unpacked().exists() else None)


def unpack(package: bytes, launcher: Path) -> None:
    """Unpack the package into the launcher's folder, which appears whole or not at all."""
    import brotli  # only here: whoever only asks for the path needs no package

    folder = launcher.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        new = Path(made) / "new"
        new.mkdir()
        with tarfile.open(fileobj=io.BytesIO(package)) as archive:
            parts = {Path(m.name).name: archive.extractfile(m).read() for m in archive if m.name.endswith(".br")}
        (new / "headless-shell").write_bytes(brotli.decompress(parts["chromium.br"]))
        for name in ("al2023.tar.br", "fonts.tar.br", "swiftshader.tar.br"):
            with tarfile.open(fileobj=io.BytesIO(brotli.decompress(parts[name]))) as archive:
                archive.extractall(new, filter="data")
        (new / "fonts.conf").write_text(_FONTS.format(folder=folder))
        _add_fonts(new / "fonts")
        (new / "chromium").write_text(_LAUNCHER)
        for program in ("headless-shell", "chromium"):
            (new / program).chmod(0o755)
        if not folder.exists():
            new.rename(folder)


def _add_fonts(folder: Path) -> None:
    """Add matplotlib's DejaVu: a machine without fonts shows arrows and Greek all the same."""
    import matplotlib

    for font in Path(matplotlib.get_data_path(), "fonts", "ttf").glob("DejaVuSans*.ttf"):
        shutil.copy(font, folder)


def main() -> int:
    """Unpack a browser unless there is one; always 0, because the tests can do without."""
    try:
        if chromium_path() is None:
            if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
                raise OSError(f"the packed browser is for Linux on x86_64, this is {platform.platform()}")
            unpack(fetch(URL, SHA512), unpacked())
            print(f"unpacked Chromium {VERSION}: {unpacked()}")
    except Exception as error:
        print(f"no browser, so the tests that need one will be skipped: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
