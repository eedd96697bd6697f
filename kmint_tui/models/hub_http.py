"""The connection to the hub: one streamed GET at a time, through huggingface_hub's HTTP client.

`hub.py` and `download.py` use it; with `endpoint.py` these are the only modules that open
connections.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from kmint_tui.errors import KmintError, ModelError, OfflineRefusal

STALL_SECONDS = 30.0
"""Seconds without a byte after which a connection counts as broken."""


class Interrupted(Exception):
    """The transfer stopped and may be continued; the message is the reason."""


def no_telemetry() -> None:
    """Stop the hub's client, before its import, from reporting this machine and its user to the
    hub.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


@contextlib.contextmanager
def answer(url: str, headers: dict[str, str], stall_seconds: float) -> Iterator[Any]:
    """The streamed answer to a GET, after redirects.

    Raises Interrupted when another try may help.
    """
    no_telemetry()
    # Public names, but not re-exported for mypy.
    from huggingface_hub.utils import build_hf_headers, get_session  # type: ignore[attr-defined]

    # Only unpacked answers: a packed one could unpack to any size.
    headers = {**build_hf_headers(), "Accept-Encoding": "identity", **headers}
    try:
        with get_session().stream(
            "GET", url, headers=headers, timeout=stall_seconds, follow_redirects=True
        ) as response:
            yield response
    except (KmintError, Interrupted, OSError):
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2"):
            raise Interrupted(
                f"{type(error).__name__}: {str(error)[:120] or 'no answer'}"
            ) from error
        raise


def refused(status: int, repo: str) -> ModelError:
    if status in (401, 403):
        return ModelError(
            f"{repo}: access refused ({status})",
            fix="accept the licence on its page, then log in with `hf auth login`",
        )
    if status == 404:
        return ModelError(
            f"{repo}: not found on the hub (404)", fix="check the name and revision in models.toml"
        )
    return ModelError(f"{repo}: the hub answered {status}", fix="try again later")


@contextlib.contextmanager
def hub_errors(repo: str) -> Iterator[None]:
    """Turn huggingface_hub's errors into kmint's."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    where = os.environ.get("HF_ENDPOINT", "the hub")
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise OfflineRefusal(
            f"looking up {repo} needs the network, and HF_HUB_OFFLINE is set"
        ) from error
    except OSError as error:
        raise ModelError(
            f"{where} cannot be reached ({error})", fix="check the network and proxy settings"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # For example a captive portal's HTML in place of the hub's JSON.
        reason = f"{where} does not answer as the hub does ({type(error).__name__})"
        raise ModelError(
            f"{repo}: {reason}",
            fix="check HF_ENDPOINT, the proxy, and whether a login page stands in between",
        ) from error
