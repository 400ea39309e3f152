"""One file of the npm registry, pinned by its hash, and the folder of the user's cache where it is unpacked."""

import hashlib
import os
import urllib.request
from pathlib import Path


def cache_folder() -> Path:
    """Where unpacked tools stand."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flashtrace"


def fetch(url: str, sha512: str) -> bytes:
    """The package, checked; ValueError where it is not the one that is pinned."""
    with urllib.request.urlopen(url, timeout=120) as response:
        data = response.read()
    if hashlib.sha512(data).hexdigest() != sha512:
        raise ValueError(f"{url} does not have the pinned hash")
    return data
