"""Whether the model hub can be reached, found out in seconds: its own client tries for most of a minute."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request

from huggingface_hub import constants

PATIENCE = 5.0  # s for an answer of any kind; a name that is not resolved may take longer than any timeout of a socket


def is_offline() -> bool:
    """Whether to leave the hub alone: it is switched off (``HF_HUB_OFFLINE``), or nothing answers at its address."""
    if constants.HF_HUB_OFFLINE:
        return True
    answered = threading.Event()
    thread = threading.Thread(target=_ask, args=(constants.ENDPOINT, answered), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return not answered.is_set()


def _ask(address: str, answered: threading.Event) -> None:
    """Set the event where a server answers, even with an error: proxies of the environment are used."""
    try:
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PATIENCE).close()
        answered.set()
    except urllib.error.HTTPError:
        answered.set()
    except (OSError, ValueError):
        return
