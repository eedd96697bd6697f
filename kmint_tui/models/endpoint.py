"""Connections to a smith elsewhere: an OpenAI-compatible endpoint that the user named (llama-server, vLLM, SGLang).

Beside `download.py` the only module that opens connections, and only to the address that was given: no proxy, no redirect.
The prompt is sent there, so nothing happens unless an address is named, and never when kmint is offline. A key, where the
server wants one, is read from KMINT_ENDPOINT_KEY and written nowhere.

Limits: HTTP/1.1, one connection a draft; lines and error texts are bounded; a server that is silent for `SILENCE_SECONDS`
has broken off.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kmint_tui.errors import ModelError, OfflineRefusal, UsageError
from kmint_tui.models.check import ModelFile

KEY_VARIABLE = "KMINT_ENDPOINT_KEY"
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 180.0
LONGEST_LINE = 1 << 20
_LONGEST_ANSWER = 1 << 22
_SHOWN = 200


@dataclass(frozen=True)
class Endpoint:
    """A server that answered: its address, ending in its API's path (for example /v1), and the model it serves."""

    url: str
    model: str


def is_address(model: str) -> bool:
    """Whether a model was named by an address."""
    return model.startswith(("http://", "https://"))


def connect(address: str, *, offline: str | None) -> Endpoint:
    """Ask the server what it serves. An address without a path means /v1; #NAME at its end chooses among several models.

    `offline` is the reason to stay offline, if there is one. Raises UsageError, OfflineRefusal and ModelError.
    """
    url, _, model = address.partition("#")
    parts = _parts(url)
    base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"
    if offline:
        raise OfflineRefusal(f"a smith at {base} needs the network, and {offline} keeps kmint offline")
    try:
        with contextlib.closing(Answer(base + "/models", None)) as answer:
            served = _served(answer.whole())
    except (OSError, ValueError) as error:
        raise ModelError(f"no smith answers at {base}: {error}", fix="start the server, or check the address") from None
    if model and model not in served:
        raise ModelError(f"{base} does not serve {model}, but {', '.join(served)}", fix="name one of those")
    return Endpoint(base, model or served[0])


def stand_in(endpoint: Endpoint) -> ModelFile:
    """What takes a model file's place where there is none: named after the server, of no size."""
    place = Path(urlsplit(endpoint.url).netloc)
    unknown = dict.fromkeys(
        ("nbytes", "context", "layers", "kv_layers", "kv_heads", "key_length", "value_length", "embedding", "vocabulary", "parameters"), 0
    )
    return ModelFile(path=place, architecture="", name=endpoint.model, quant="endpoint", **unknown)


class Answer:
    """The answer to one request, line by line. `close` may be called from another thread and ends the iteration."""

    def __init__(self, url: str, body: dict[str, object] | None) -> None:
        """Send it: POST with a body, GET without. Raises OSError with a reason fit for people."""
        parts = _parts(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.netloc, timeout=CONNECT_SECONDS)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "kmint"}
        if key := os.environ.get(KEY_VARIABLE):
            headers["Authorization"] = f"Bearer {key}"
        try:
            with _readable():
                self._connection.connect()
                assert self._connection.sock is not None
                self._socket: socket.socket = self._connection.sock
                self._socket.settimeout(SILENCE_SECONDS)
                content = None if body is None else json.dumps(body).encode()
                self._connection.request("GET" if body is None else "POST", parts.path, content, headers)
                self._response = self._connection.getresponse()
                if self._response.status != 200:
                    raise OSError(f"status {self._response.status} {self._said()}".strip())
        except BaseException:
            self._connection.close()
            raise

    def __iter__(self) -> Iterator[str]:
        """The lines as they come. Raises OSError when the server breaks off or sends no lines."""
        while True:
            with _readable():
                line = self._response.readline(LONGEST_LINE + 1)
            if len(line) > LONGEST_LINE:
                raise OSError(f"a line of more than {LONGEST_LINE} bytes")
            if not line:
                return
            yield line.decode("utf-8", "replace").rstrip("\r\n")

    def whole(self) -> bytes:
        """All of a short answer. Raises OSError when it is not short."""
        with _readable():
            content = self._response.read(_LONGEST_ANSWER + 1)
        if len(content) > _LONGEST_ANSWER:
            raise OSError(f"an answer of more than {_LONGEST_ANSWER} bytes")
        return content

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            # Closing alone would not wake a thread that waits for the next line.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _said(self) -> str:
        return " ".join(self._response.read(_SHOWN * 4).decode("utf-8", "replace").split())[:_SHOWN]


def _parts(url: str) -> Any:
    parts = urlsplit(url)
    try:
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound or parts.query or parts.fragment:
        raise UsageError(f"{url} is no address of an endpoint", fix="http://HOST:PORT/v1, for example")
    if parts.username is not None:
        raise UsageError("an address must not carry a name or a password", fix=f"put the key into {KEY_VARIABLE}")
    return parts


def _served(content: bytes) -> list[str]:
    """The ids of the models that an answer to /models lists."""
    data = json.loads(content)
    entries = data.get("data") if isinstance(data, dict) else None
    names = [entry.get("id") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    served = [name for name in names if isinstance(name, str) and name]
    if not served:
        raise ValueError("it does not list the models it serves")
    return served


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Turn what http.client and sockets raise into OSErrors that say what happened."""
    try:
        yield
    except TimeoutError:
        raise OSError("no answer in time") from None
    except http.client.HTTPException as error:
        raise OSError(f"no proper answer ({type(error).__name__})") from None
    except (ValueError, AttributeError) as error:
        # What a response raises that was closed by another thread in the middle of reading.
        raise OSError(f"hung up ({type(error).__name__})") from None
    except OSError as error:
        raise OSError(error.strerror or str(error) or type(error).__name__) from None
