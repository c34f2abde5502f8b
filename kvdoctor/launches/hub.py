"""Whether the hub can be reached: asked once and briefly, since its client tries again and again for half a minute."""

import functools
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kvdoctor.errors import Unassessed
from kvdoctor.home import home_cache
from kvdoctor.launches.request import LaunchRequest

_HUB = "https://huggingface.co"
_WAIT_SECONDS = 4.0


def settle_network(request: LaunchRequest, *, note: Callable[[str], None]) -> LaunchRequest:
    """Give ``request`` as it can be planned: when the hub does not answer, from what its cache holds of the model.

    Asked when the requests are known to be right, since it may take some seconds.

    Raises:
        Unassessed: the hub does not answer, and its cache knows nothing of the model.

    """
    reference = request.model
    if reference is None or reference.kind != "hub" or request.offline:
        return request
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return request  # the worker's environment follows it, and nothing is asked
    endpoint = os.environ.get("HF_ENDPOINT") or _HUB
    reason = _no_answer(endpoint)
    if reason is None:
        return request
    folder = "models--" + reference.name.replace("/", "--")
    if not _exists(_cache() / folder):
        raise Unassessed(
            f"{endpoint} cannot be reached ({reason}), and {reference.name} is not in the hub's cache",
            hint="Check the network, or give a directory that holds the model's config.",
        )
    note(f"{endpoint} cannot be reached ({reason}): {reference.name} is read from the hub's cache")
    return replace(request, offline=True)


@functools.cache
def _no_answer(endpoint: str) -> str | None:
    """Give the reason why nothing answers at ``endpoint``; ``None`` when something does, whatever it says."""
    reasons: list[str | None] = []
    # In a thread: nothing else bounds how long a name is looked up.
    asking = threading.Thread(target=lambda: reasons.append(_ask(endpoint)), daemon=True)
    asking.start()
    asking.join(_WAIT_SECONDS)
    return reasons[0] if reasons else f"no answer within {_WAIT_SECONDS:g} seconds"


def _ask(endpoint: str) -> str | None:
    try:
        request = urllib.request.Request(endpoint, method="HEAD")  # noqa: S310 - the user's own endpoint
        with urllib.request.urlopen(request, timeout=_WAIT_SECONDS):  # noqa: S310 - as above
            return None
    except urllib.error.HTTPError:
        return None
    except urllib.error.URLError as error:
        # A certificate that is not trusted here may be by the hub's client, which has other settings.
        return None if "CERTIFICATE" in str(error.reason) else _words(error.reason)
    except (OSError, ValueError) as error:
        return _words(error)


def _words(error: object) -> str:
    return str(getattr(error, "strerror", None) or error)


def _cache() -> Path:
    """Where the hub's client keeps what it fetched, as ``workers/environment.py`` gives it to the worker."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache)
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or home_cache()) / "huggingface"
    return Path(home) / "hub"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
