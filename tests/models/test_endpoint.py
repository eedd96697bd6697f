"""Connections to an endpoint: real servers on loopback that answer, stall, lie or break off."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kmint_tui.errors import ModelError, OfflineRefusal, UsageError
from kmint_tui.models import endpoint
from kmint_tui.models.endpoint import Answer, Endpoint, connect, is_address

Handle = Callable[[BaseHTTPRequestHandler, bytes], None]
Serve = Callable[[Handle], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server with one handler for everything; returns its address without a path."""
    servers: list[ThreadingHTTPServer] = []

    def start(handle: Handle) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                handle(self, b"")

            def do_POST(self) -> None:
                handle(self, self.rfile.read(int(self.headers["Content-Length"])))

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Stay silent."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def says(status: int, content: bytes) -> Handle:
    def handle(request: BaseHTTPRequestHandler, body: bytes) -> None:
        del body
        request.send_response(status)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    return handle


def models(*names: str) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": name} for name in names]}).encode()


def test_an_address_is_told_from_an_id_or_a_path() -> None:
    assert is_address("http://box:8080") and is_address("https://box/v1")
    assert (
        not is_address("minicpm5-1b")
        and not is_address("/models/a.gguf")
        and not is_address("ftp://box")
    )


def test_the_first_model_served_is_used_unless_one_is_named(serve: Serve) -> None:
    url = serve(says(200, models("big", "small")))
    assert connect(url, offline=None) == Endpoint(f"{url}/v1", "big")
    assert connect(f"{url}/api/v1/#small", offline=None) == Endpoint(f"{url}/api/v1", "small")
    with pytest.raises(ModelError, match="does not serve other, but big, small"):
        connect(f"{url}#other", offline=None)


def test_offline_refuses_before_anything_is_sent(serve: Serve) -> None:
    seen: list[str] = []
    url = serve(lambda request, body: seen.append(request.path))
    with pytest.raises(OfflineRefusal, match="--offline keeps kmint offline"):
        connect(url, offline="--offline")
    assert seen == []


@pytest.mark.parametrize(
    "url", ["http://", "http:///v1", "http://host:99999/v1", "http://host/v1?x=1", "box:80"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="not the address of an endpoint"):
        connect(url, offline=None)


def test_an_address_with_a_password_is_refused() -> None:
    with pytest.raises(UsageError, match="must not carry") as refused:
        connect("http://me:secret@host/v1", offline=None)
    assert "secret" not in f"{refused.value.message}{refused.value.fix}"


@pytest.mark.parametrize(
    ("status", "content", "reason"),
    [
        (401, b'{"error": "no key"}', "status 401"),
        (301, b"", "status 301"),
        (200, b"<html>", "no smith answers"),
        (200, b"[]", "does not list"),
        (200, b'{"data": [{"id": 3}, "x"]}', "does not list"),
    ],
)
def test_servers_that_are_no_endpoint_are_named(
    serve: Serve, status: int, content: bytes, reason: str
) -> None:
    url = serve(says(status, content))
    with pytest.raises(ModelError, match=reason) as refused:
        connect(url, offline=None)
    assert url in refused.value.message and "\n" not in refused.value.message


def test_nobody_there_is_said_plainly(serve: Serve) -> None:
    with pytest.raises(ModelError, match=r"http://127\.0\.0\.1:9/v1: Connection refused"):
        connect("http://127.0.0.1:9", offline=None)

    def hangs_up(request: BaseHTTPRequestHandler, body: bytes) -> None:
        request.connection.close()

    with pytest.raises(ModelError, match="no proper answer|hung up|reset"):
        connect(serve(hangs_up), offline=None)


def test_a_silent_server_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "SILENCE_SECONDS", 0.2)
    release = threading.Event()

    def dawdles(request: BaseHTTPRequestHandler, body: bytes) -> None:
        release.wait(600)

    with pytest.raises(ModelError, match="no answer in time"):
        connect(serve(dawdles), offline=None)
    release.set()


def test_the_key_is_sent_and_nothing_is_compressed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str | None, str | None, Any]] = []

    def handle(request: BaseHTTPRequestHandler, body: bytes) -> None:
        seen.append(
            (
                request.path,
                request.headers["Authorization"],
                request.headers["Accept-Encoding"],
                json.loads(body),
            )
        )
        says(200, b"one\r\ntwo\n")(request, body)

    url = serve(handle)
    monkeypatch.setenv(endpoint.KEY_VARIABLE, "k")
    answer = Answer(f"{url}/v1/chat/completions", {"a": "é"})
    assert list(answer) == ["one", "two"]
    answer.close()
    assert seen == [("/v1/chat/completions", "Bearer k", "identity", {"a": "é"})]


def test_a_line_without_end_is_cut_off(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LONGEST_LINE", 1000)
    answer = Answer(serve(says(200, b"x" * 5000)) + "/v1", {})
    with pytest.raises(OSError, match="a line of more than 1000 bytes"):
        list(answer)
    answer.close()


def test_closing_wakes_a_reader_that_waits(serve: Serve) -> None:
    release, ended = threading.Event(), threading.Event()

    def handle(request: BaseHTTPRequestHandler, body: bytes) -> None:
        del body
        request.send_response(200)
        request.end_headers()
        request.wfile.write(b"first\n")
        request.wfile.flush()
        release.wait(600)

    answer = Answer(serve(handle) + "/v1", {})
    lines = iter(answer)
    assert next(lines) == "first"

    def read() -> None:
        try:
            list(lines)
        except OSError:
            pass
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    answer.close()
    assert ended.wait(300)
    release.set()


def sends(*pieces: bytes, forever: bytes = b"") -> Handle:
    """Writes raw bytes to the socket, then `forever` again and again until the client closes it."""

    def handle(request: BaseHTTPRequestHandler, body: bytes) -> None:
        del body
        with contextlib.suppress(OSError):
            for piece in pieces:
                request.connection.sendall(piece)
            while forever:
                request.connection.sendall(forever)
                request.connection.settimeout(0.01)
                with contextlib.suppress(TimeoutError):
                    if not request.connection.recv(1):
                        return
                request.connection.settimeout(None)

    return handle


@pytest.mark.parametrize(
    "handle",
    [
        sends(forever=b"HTTP/1.1 100 Continue\r\n\r\n"),
        sends(b"HTTP/1.1 200 OK\r\nX-Slow: ", forever=b"x"),
        sends(b"HTTP/1.1 500 No\r\n\r\n", forever=b"x"),
    ],
    ids=["continue", "header", "error"],
)
def test_an_answer_that_never_begins_is_ended(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, handle: Handle
) -> None:
    """The server always sends some bytes, so that no single read takes long."""
    monkeypatch.setattr(endpoint, "SILENCE_SECONDS", 0.5)
    with pytest.raises(ModelError, match="no answer in time|status 500"):
        connect(serve(handle), offline=None)


@pytest.mark.parametrize("forever", [b": wait\n", b"x"], ids=["comments", "one byte"])
@pytest.mark.parametrize("closes", [b"", b"Connection: close\r\n"], ids=["keeps", "closes"])
def test_an_answer_that_never_ends_is_ended(serve: Serve, forever: bytes, closes: bytes) -> None:
    """Comment lines, or one byte after another.

    http.client keeps the socket in two ways, and both are covered.
    """
    answer = Answer(
        serve(sends(b"HTTP/1.1 200 OK\r\n" + closes + b"\r\n", forever=forever)) + "/v1",
        {},
        seconds=0.5,
    )
    with contextlib.closing(answer), pytest.raises(OSError, match="no answer in time"):
        list(answer)


def test_an_answer_of_endless_bytes_is_cut_off(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit on bytes holds long before the limit on time."""
    monkeypatch.setattr(endpoint, "MOST_BYTES", 10_000)
    answer = Answer(serve(sends(b"HTTP/1.1 200 OK\r\n\r\n", forever=b": x\n" * 1000)) + "/v1", {})
    with contextlib.closing(answer), pytest.raises(OSError, match="more than 10000 bytes"):
        list(answer)


def test_too_many_headers_are_named(serve: Serve) -> None:
    """http.client's own limit, in its own words."""
    headers = b"".join(b"X-%d: y\r\n" % number for number in range(200))
    with pytest.raises(ModelError, match="got more than 100 headers"):
        connect(serve(sends(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n")), offline=None)


def test_deep_json_from_a_server_is_named(serve: Serve) -> None:
    """Python's own parser runs out of stack on it."""
    with pytest.raises(ModelError, match="no smith answers"):
        connect(serve(says(200, b"[" * 200_000)), offline=None)


def test_many_served_names_are_not_all_shown(serve: Serve) -> None:
    """A lying server could fill the screen."""
    with pytest.raises(ModelError, match="but m0, m1, .*m7, \\.\\.\\.$"):
        connect(
            serve(says(200, models(*(f"m{number}" for number in range(1000))))) + "#other",
            offline=None,
        )
