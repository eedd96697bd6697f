"""`kmint mint --model http://…` from end to end, with a server on loopback that speaks the
protocol.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runner import Done, kmint
from tests.save.test_host_code import GOOD

pytestmark = pytest.mark.usefixtures("warm")

PROXIES = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}


class Server:
    """An endpoint that answers every prompt with a good kernel, and remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.paths.append(self.path)
                self._say(json.dumps({"data": [{"id": "the-27b"}]}).encode())

            def do_POST(self) -> None:
                outer.paths.append(self.path)
                outer.requests.append(
                    json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                )
                text = f"```python\n{GOOD}```\n"
                chunks = [
                    {"choices": [{"delta": {"content": text[start : start + 40]}}]}
                    for start in range(0, len(text), 40)
                ]
                lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
                self._say(
                    "".join(
                        [
                            *lines,
                            'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n',
                        ]
                    ).encode()
                )

            def _say(self, content: bytes) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def mint(url: str, *arguments: str, **environment: str) -> Done:
    words = ("mint", "softmax", "--model", url, "--seed", "1", "--drafts", "2", *arguments)
    return kmint(*words, **environment)  # type: ignore[arg-type]


def test_a_named_endpoint_drafts_and_is_remembered(server: Server) -> None:
    done = mint(server.url, "--json", **PROXIES)
    assert done.code == 0, done.err
    document = done.document
    assert document["model"] == f"{server.url}/v1" and document["best"] in (0, 1)
    # Whichever of the two answers came first is the one that is judged.
    first, other = document["best"], 1 - document["best"]
    assert (
        document["drafts"][first]["source"] == GOOD.lstrip()
        and document["drafts"][other]["duplicate_of"] == first
    )
    assert server.paths == ["/v1/models", "/v1/chat/completions", "/v1/chat/completions"]
    assert {request["model"] for request in server.requests} == {"the-27b"}
    assert len({request["seed"] for request in server.requests}) == 2
    assert all("softmax" in request["messages"][1]["content"] for request in server.requests)
    assert f"{server.url}/v1" in kmint("history", "show", str(document["history_id"])).out


def test_the_wire_shows_source_graph_and_shapes(server: Server, tmp_path: Path) -> None:
    """A larger smith sees the function's source, its graph, and the shapes and dtypes of inputs and
    outputs.
    """
    (tmp_path / "mine.py").write_text(
        "import torch\n\ndef halves(x, w, alpha=0.5):\n    first, second = x.chunk(2, -1)\n"
        "    return first * w * alpha, second.float().square().mean(-1)\n"
    )
    kmint(
        "mint", "--reference", f"{tmp_path / 'mine.py'}:halves", "--input", "x=bf16[M,2*N] w=bf16[N]",
        "--model", server.url, "--drafts", "1", "--seed", "1", "--no-template",
    )  # fmt: skip
    (request,) = server.requests
    said = request["messages"][1]["content"]
    assert "    return first * w * alpha, second.float().square().mean(-1)" in said
    assert "run(x: bfloat16[M, 2*N], w: bfloat16[N], alpha: float = 0.5) -> " in said
    assert "bfloat16[M, N], " in said and "float32[M])" in said
    assert "v0 mn f load a0 at" in said and "a0 = x" in said and " sum v" in said
    assert "@triton.jit" in said


def test_a_dry_run_asks_what_is_served_and_sends_no_prompt(server: Server) -> None:
    done = mint(f"{server.url}/v1#the-27b", "--dry-run")
    assert done.code == 0 and "the-27b" in done.out and "gets the prompt" in done.out
    assert server.paths == ["/v1/models"]
    assert mint(f"{server.url}/v1", "--dry-run", "--json").document["memory"] is None


@pytest.mark.parametrize("by", ["flag", "variable", "settings"])
def test_offline_refuses_an_endpoint_and_nothing_is_sent(
    server: Server, by: str, kmint_home: Path
) -> None:
    if by == "flag":
        done = kmint("--offline", "mint", "softmax", "--model", server.url)
    elif by == "variable":
        done = mint(server.url, KMINT_OFFLINE="1")
    else:
        (kmint_home / "config").mkdir(parents=True)
        (kmint_home / "config" / "config.toml").write_text("[network]\noffline = true\n")
        done = mint(server.url)
    assert done.code == 4 and "keeps kmint offline" in done.err
    assert server.paths == [] and server.requests == []


def test_nobody_at_the_address_is_exit_4() -> None:
    with socket.socket() as nobody:
        # A port that is taken and not listened to: nothing else can answer there meanwhile.
        nobody.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        done = mint(address)
    assert done.code == 4 and f"no smith answers at {address}/v1" in done.err
