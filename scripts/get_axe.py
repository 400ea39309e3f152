"""axe-core, the checker of accessibility that the browser tests run on pages: ``python -m scripts.get_axe``.

One pinned package of npm, checked against its hash; its one script is kept in the cache of the user. No node.
"""

import io
import tarfile

from flashtrace_lib.files import write_text
from scripts.npm_package import cache_folder, fetch

VERSION = "4.14.1"
SHA512 = (
    "1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b73"
    "4f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5"
)
URL = f"https://registry.npmjs.org/axe-core/-/axe-core-{VERSION}.tgz"


def axe_script() -> str:
    """The script, fetched where the cache lacks it; OSError where there is neither a cached one nor a network."""
    path = cache_folder() / f"axe-core-{VERSION}.min.js"
    if not path.exists():
        with tarfile.open(fileobj=io.BytesIO(fetch(URL, SHA512))) as archive:
            write_text(path, archive.extractfile("package/axe.min.js").read().decode("utf-8"))
    return path.read_text(encoding="utf-8")


if __name__ == "__main__":
    print(f"axe-core {VERSION}: {len(axe_script())} characters in {cache_folder()}")
