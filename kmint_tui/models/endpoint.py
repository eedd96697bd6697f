"""Connections to a remote smith: an OpenAI-compatible endpoint (llama-server, vLLM, SGLang).

It connects only to the address that the user named: no proxy, no redirect. The prompt goes there,
so nothing happens without an address, and nothing when kmint is offline. A key comes from
KMINT_ENDPOINT_KEY and is written nowhere.

Limits: HTTP/1.1, one connection a draft. Lines, answers and error texts have a maximum length. An
answer must begin within `SILENCE_SECONDS` and end within `TOTAL_SECONDS`. http.client takes at most
100 headers of 64 KiB.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kmint_tui.documents import parse_json
from kmint_tui.errors import ModelError, OfflineRefusal, UsageError
from kmint_tui.models.check import ModelFile

KEY_VARIABLE = "KMINT_ENDPOINT_KEY"
CONNECT_SECONDS = 10.0
"""Seconds for a connection."""

SILENCE_SECONDS = 180.0
"""Seconds until the first byte of an answer, and between two bytes."""

TOTAL_SECONDS = 1800.0
"""Seconds for a whole answer."""

LONGEST_LINE = 1 << 20
"""Largest number of bytes in a line."""

MOST_BYTES = 1 << 26
"""Largest number of bytes in an answer."""

_LONGEST_ANSWER = 1 << 22
_SHOWN = 200
_NAMES_SHOWN = 8


@dataclass(frozen=True)
class Endpoint:
    """A server that answered: its address with the API's path (for example /v1), and its model."""

    url: str
    model: str


def is_address(model: str) -> bool:
    """True when an address names the model."""
    return model.startswith(("http://", "https://"))


def connect(address: str, *, offline: str | None) -> Endpoint:
    """Ask the server for its models. An address without a path means /v1.

    #NAME at the end of the address chooses among several models. `offline` is the reason to stay
    offline, or None. Raises UsageError, OfflineRefusal and ModelError.
    """
    url, _, model = address.partition("#")
    parts = _parts(url)
    base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"
    if offline:
        raise OfflineRefusal(
            f"a smith at {base} needs the network, and {offline} keeps kmint offline"
        )
    try:
        with contextlib.closing(Answer(base + "/models", None, seconds=SILENCE_SECONDS)) as answer:
            served = _served(answer.whole())
    except (OSError, ValueError) as error:
        raise ModelError(
            f"no smith answers at {base}: {error}", fix="start the server, or check the address"
        ) from None
    if model and model not in served:
        more = ", ..." if len(served) > _NAMES_SHOWN else ""
        raise ModelError(
            f"{base} does not serve {model}, but {', '.join(served[:_NAMES_SHOWN])}{more}",
            fix="name one of those",
        )
    return Endpoint(base, model or served[0])


def stand_in(endpoint: Endpoint) -> ModelFile:
    """The replacement of a model file: named after the server, of no size."""
    place = Path(urlsplit(endpoint.url).netloc)
    unknown = dict.fromkeys(
        (
            "nbytes",
            "context",
            "layers",
            "kv_layers",
            "kv_heads",
            "key_length",
            "value_length",
            "embedding",
            "vocabulary",
            "parameters",
        ),
        0,
    )
    return ModelFile(path=place, architecture="", name=endpoint.model, quant="endpoint", **unknown)


class Answer:
    """The answer to one request, line by line.

    `close` may be called from another thread and ends the iteration.
    """

    def __init__(
        self, url: str, body: dict[str, object] | None, *, seconds: float | None = None
    ) -> None:
        """Send the request: POST with a body, GET without.

        The answer must end within `seconds` (None: `TOTAL_SECONDS`). Raises OSError with a reason
        for the user.
        """
        parts = _parts(url)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._connection = kind(parts.netloc, timeout=CONNECT_SECONDS)
        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "kmint",
        }
        if key := os.environ.get(KEY_VARIABLE):
            headers["Authorization"] = f"Bearer {key}"
        self._received = 0
        self._socket: socket.socket | None = None
        self._response: http.client.HTTPResponse | None = None
        self._deadline = _Deadline(self._hang_up)
        try:
            with self._in_time():
                self._deadline.set(SILENCE_SECONDS)
                self._connection.connect()
                # The connection drops its socket when the server announces that it will close it.
                self._socket = self._connection.sock
                self._socket.settimeout(SILENCE_SECONDS)
                content = None if body is None else json.dumps(body).encode()
                self._connection.request(
                    "GET" if body is None else "POST", parts.path, content, headers
                )
                self._response = self._connection.getresponse()
                if self._response.status != 200:
                    detail = " ".join(
                        self._response.read(_SHOWN * 4).decode("utf-8", "replace").split()
                    )[:_SHOWN]
                    raise OSError(f"status {self._response.status} {detail}".strip())
                self._deadline.set(TOTAL_SECONDS if seconds is None else seconds)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[str]:
        """The lines as they come. Raises OSError when the server stops or sends no lines."""
        while True:
            with self._reading() as response:
                line = response.readline(LONGEST_LINE + 1)
            self._received += len(line)
            if len(line) > LONGEST_LINE:
                raise OSError(f"a line of more than {LONGEST_LINE} bytes")
            if self._received > MOST_BYTES:
                raise OSError(f"an answer of more than {MOST_BYTES} bytes")
            if not line:
                return
            yield line.decode("utf-8", "replace").rstrip("\r\n")

    def whole(self) -> bytes:
        """All of a short answer. Raises OSError for a long one."""
        with self._reading() as response:
            content = response.read(_LONGEST_ANSWER + 1)
        if len(content) > _LONGEST_ANSWER:
            raise OSError(f"an answer of more than {_LONGEST_ANSWER} bytes")
        return content

    def close(self) -> None:
        """Close the connection."""
        self._deadline.cancel()
        self._hang_up()
        self._connection.close()
        if self._response is not None:
            self._response.close()

    def _hang_up(self) -> None:
        # Closing alone would not wake a thread that waits for the next line.
        connected: socket.socket | None = self._socket or self._connection.sock
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[http.client.HTTPResponse]:
        """The answer to read from. Raises OSError for every failure, also after the deadline."""
        assert self._response is not None
        with self._in_time():
            yield self._response

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        try:
            with _readable():
                yield
                if self._deadline.passed:
                    raise OSError("no end")
        except OSError:
            if self._deadline.passed:
                raise OSError(f"no answer in time ({self._deadline.seconds:g} s)") from None
            raise


class _Deadline:
    """Calls `act` at the deadline, from its own thread: a server of one byte a second is never
    silent.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._timer: threading.Timer | None = None
        self.seconds = 0.0
        self.passed = False

    def set(self, seconds: float) -> None:
        """Set the deadline to `seconds` from now, in place of an earlier one."""
        self.cancel()
        self.seconds = seconds
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """Remove the deadline."""
        if self._timer is not None:
            self._timer.cancel()

    def _pass(self) -> None:
        self.passed = True
        self._act()


def _parts(url: str) -> Any:
    parts = urlsplit(url)
    try:
        sound = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        sound = False
    if not sound or parts.query or parts.fragment:
        raise UsageError(
            f"{url} is not the address of an endpoint", fix="http://HOST:PORT/v1, for example"
        )
    if parts.username is not None:
        raise UsageError(
            "an address must not carry a name or a password",
            fix=f"put the key into {KEY_VARIABLE}",
        )
    return parts


def _served(content: bytes) -> list[str]:
    """The ids of the models in an answer to /models."""
    data = parse_json(content)
    entries = data.get("data") if isinstance(data, dict) else None
    names = (
        [entry.get("id") for entry in entries if isinstance(entry, dict)]
        if isinstance(entries, list)
        else []
    )
    served = [name for name in names if isinstance(name, str) and name]
    if not served:
        raise ValueError("it does not list the models it serves")
    return served


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Turn the errors of http.client and sockets into OSErrors with a reason."""
    try:
        yield
    except TimeoutError:
        raise OSError("no answer in time") from None
    except http.client.HTTPException as error:
        # Its subclasses quote text of the server.
        what = str(error) if type(error) is http.client.HTTPException else type(error).__name__
        raise OSError(f"no proper answer ({what})") from None
    except (ValueError, AttributeError) as error:
        # http.client raises these when another thread closes a response that is being read.
        raise OSError(f"hung up ({type(error).__name__})") from None
    except OSError as error:
        raise OSError(error.strerror or str(error) or type(error).__name__) from None
