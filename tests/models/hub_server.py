"""A small HTTP server on loopback with the hub's protocol: model info, redirects, ranges, etags.

Faults are switched on by name, one answer at a time. A file's etag follows its content, and a range
is given only of the version that the client names (`If-Range`), unless a fault changes that.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

COMMIT = "c" * 40
BLOCK = 1 << 16


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that break off are the purpose of these tests."""


class Hub:
    """Serves `files` of one repository.

    - `faults` is a queue: the next file request takes the first one;
    - `info_fault` is a status for requests about the repository;
    - `announced` replaces a file's length in the answer about the repository;
    - `plain` keeps files in plain git, without a sha256;
    - `public` is the address of redirects;
    - `silent_after` stops every answer after that many bytes of a file, until the client closes;
    - `served` counts a file's bytes before they are sent, so no client has an uncounted byte;
    - `commit` is the reported commit, `listed` are additional reported names;
    - `pages` is HTML that answers every request;
    - `packed` and `endless` change the answers about the repository.
    """

    def __init__(self, repo: str, files: dict[str, bytes]) -> None:
        self.repo, self.files = repo, dict(files)
        self.faults: deque[tuple[str, int]] = deque()
        self.requests: list[tuple[str, str | None]] = []
        self.served = 0
        self.info_fault: int | None = None
        self.announced: dict[str, int] = {}
        self.plain = self.ignores_if_range = False
        self.public: str | None = None
        self.silent_after: int | None = None
        self.commit: object = COMMIT
        self.listed: list[object] = []
        self.pages: bytes | None = None
        self.packed = self.endless = False
        self._server = _Quiet(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Hub:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def info(self) -> dict[str, Any]:
        siblings: list[dict[str, Any]] = [{"rfilename": name, "size": 5} for name in self.listed]
        for name, data in self.files.items():
            size = self.announced.get(name, len(data))
            lfs = {
                "lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": size, "pointerSize": 1}
            }
            siblings.append({"rfilename": name, "size": size, **({} if self.plain else lfs)})
        names = {
            "id": self.repo,
            "modelId": self.repo,
            "sha": self.commit,
            "private": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
        }
        return {**names, "_id": "1", "siblings": siblings}

    def described(self) -> bytes:
        """The answer about the repository."""
        answer = json.dumps(self.info()).encode()
        return gzip.compress(answer) if self.packed else answer

    def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if hub.pages is not None:
                    self._reply(200, hub.pages, {"Content-Type": "text/html"})
                elif path.startswith("/api/") and hub.info_fault is not None:
                    self._reply(hub.info_fault, b"{}", {"Retry-After": "1"})
                elif path.startswith("/api/") and hub.endless:
                    self._go_on()
                elif path.startswith(f"/api/models/{hub.repo}"):
                    self._reply(
                        200, hub.described(), {"Content-Encoding": "gzip"} if hub.packed else {}
                    )
                elif path.startswith(f"/{hub.repo}/resolve/"):
                    place = f"{hub.public or hub.endpoint}/blob/{path.partition('/resolve/')[2].partition('/')[2]}"
                    self._reply(302, b"", {"Location": place, "X-Repo-Commit": COMMIT})
                elif path.startswith("/blob/"):
                    self._file(path.removeprefix("/blob/"))
                else:
                    self._reply(404, b"{}", {"X-Error-Code": "RepoNotFound"})

            def _file(self, name: str) -> None:
                data, wanted = hub.files[name], self.headers.get("Range")
                hub.requests.append((name, wanted))
                fault, amount = hub.faults.popleft() if hub.faults else ("", 0)
                if fault == "status":
                    return self._reply(amount, b"no", {"Retry-After": "0"} if amount == 429 else {})
                if fault == "wait":
                    return self._reply(429, b"slow down", {"Retry-After": str(amount)})
                start = (
                    int(wanted.removeprefix("bytes=").rstrip("-"))
                    if wanted and fault != "ignore-range"
                    else 0
                )
                if start >= len(data):
                    return self._reply(416, b"", {})
                if fault == "changed":
                    data = bytes(255 - byte for byte in data) + b"!"
                etag = f'"{hashlib.sha1(data).hexdigest()}"'
                if (
                    self.headers.get("If-Range", etag) != etag
                    and not hub.ignores_if_range
                    and fault != "changed"
                ):
                    start = 0
                body, headers = data[start:], {"ETag": etag}
                if start:
                    headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
                if fault == "more":
                    body += b"x" * amount
                length = len(body)
                if fault == "drop":
                    body = body[:amount]
                silent = hub.silent_after is not None and hub.silent_after < len(body)
                if silent:
                    body = body[: hub.silent_after]
                self.send_response(206 if start else 200)
                for key, value in {**headers, "Content-Length": str(length)}.items():
                    self.send_header(key, value)
                self.end_headers()
                for at in range(0, len(body), BLOCK):
                    block = body[at : at + BLOCK]
                    hub.served += len(block)
                    self.wfile.write(block)
                if silent:
                    self.rfile.read(1)
                if fault == "drop" or silent:
                    self.close_connection = True

            def _go_on(self) -> None:
                """Endless blank space, with which JSON may begin."""
                self.send_response(200)
                self.end_headers()
                self.close_connection = True
                with contextlib.suppress(OSError):
                    while True:
                        self.wfile.write(b" " * BLOCK)

            def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for key, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(body)

        return Handler
