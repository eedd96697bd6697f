"""The endpoint smith against a real server on loopback that keeps or breaks the protocol."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kmint_tui.models.endpoint import Answer
from kmint_tui.smith import DraftDone, Event, Failed, Prompt, RunDone, Sampling, Token
from kmint_tui.smith.remote import LONGEST_TOKEN, RemoteSmith
from kmint_tui.smith.sampling import draft_seed
from tests.smith.conftest import done

PROMPT = Prompt("system", "user")
Says = Callable[[dict[str, Any]], Iterator[str]]


@pytest.fixture
def serve() -> Iterator[Callable[[Says], str]]:
    """Starts a server that answers with the lines of `answer(request)`; returns its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Says) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200 if self.path == "/v1/chat/completions" else 404)
                self.end_headers()
                try:
                    for line in answer(request):
                        self.wfile.write(line.encode() + b"\n\n")
                        self.wfile.flush()
                except ConnectionError:
                    return

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Stay silent."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/v1"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def chunk(text: str, finish: str | None = None) -> str:
    return "data: " + json.dumps(
        {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}
    )


def speaks(*pieces: str, finish: str = "stop") -> Says:
    def answer(request: dict[str, Any]) -> Iterator[str]:
        del request
        yield ": a comment"
        yield 'data: {"choices": [{"index": 0, "delta": {"role": "assistant"}}]}'
        yield from (chunk(piece) for piece in pieces)
        yield chunk("", finish)
        yield "data: [DONE]"

    return answer


def test_drafts_stream_and_end(serve: Callable[[Says], str]) -> None:
    smith = RemoteSmith(serve(speaks("def ", "run(x):", " pass")), "any", Answer)
    events = list(smith.draft(PROMPT, 3))
    assert isinstance(events[-1], RunDone) and events[-1].drafts == 3
    assert {draft.text for draft in done(events).values()} == {"def run(x): pass"}
    assert {draft.finish for draft in done(events).values()} == {"stop"}
    assert sum(isinstance(event, Token) for event in events) >= 9


def test_each_draft_sends_its_seed_and_settings(serve: Callable[[Says], str]) -> None:
    seen: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> Iterator[str]:
        seen.append(request)
        yield chunk("x", "length")

    events = list(
        RemoteSmith(serve(answer) + "/", "name", Answer).draft(
            PROMPT, 2, sampling=Sampling(ladder=0.2), seed=4, max_tokens=7
        )
    )
    assert {request["seed"] for request in seen} == {draft_seed(4, 0), draft_seed(4, 1)}
    assert sorted(request["temperature"] for request in seen) == pytest.approx([0.5, 0.9])
    assert all(request["max_tokens"] == 7 and request["model"] == "name" for request in seen)
    assert all(request["chat_template_kwargs"] == {"enable_thinking": False} for request in seen)
    assert {draft.finish for draft in done(events).values()} == {"length"}


def test_several_servers_share_the_drafts(serve: Callable[[Says], str]) -> None:
    seen: dict[str, list[str]] = {"a": [], "b": []}

    def server(name: str) -> Says:
        def answer(request: dict[str, Any]) -> Iterator[str]:
            seen[name].append(request["model"])
            yield from speaks(name)(request)

        return answer

    smith = RemoteSmith(serve(server("a")), "m1", Answer, [(serve(server("b")), "m2")])
    drafts = done(list(smith.draft(PROMPT, 5)))
    assert [drafts[number].text for number in range(5)] == ["a", "b", "a", "b", "a"]
    assert seen == {"a": ["m1"] * 3, "b": ["m2"] * 2}


def test_the_connection_is_dropped_at_the_closing_fence(serve: Callable[[Says], str]) -> None:
    dropped = threading.Event()

    def answer(request: dict[str, Any]) -> Iterator[str]:
        del request
        yield from (chunk(piece) for piece in ("```python\n", "y = 1", "\n`", "``\n"))
        try:
            while True:
                yield chunk("talk ")
        finally:
            dropped.set()

    finished = done(list(RemoteSmith(serve(answer), "m", Answer).draft(PROMPT, 1)))
    assert finished[0].text == "```python\ny = 1" and finished[0].finish == "stop"
    assert dropped.wait(300)


def test_cancelling_hangs_up(serve: Callable[[Says], str]) -> None:
    def answer(request: dict[str, Any]) -> Iterator[str]:
        del request
        while True:
            yield chunk("more ")

    smith = RemoteSmith(serve(answer), "m", Answer)
    events: list[Event] = []
    for event in smith.draft(PROMPT, 2):
        if not events:
            smith.cancel()
        events.append(event)
    assert isinstance(events[-1], RunDone) and events[-1].cancelled
    assert {draft.finish for draft in done(events).values()} == {"cancelled"}


def test_leaving_the_iterator_hangs_up(serve: Callable[[Says], str]) -> None:
    dropped = threading.Event()

    def answer(request: dict[str, Any]) -> Iterator[str]:
        del request
        try:
            while True:
                yield chunk("more ")
        finally:
            dropped.set()

    run = RemoteSmith(serve(answer), "m", Answer).draft(PROMPT, 1)
    next(run)
    run.close()  # type: ignore[attr-defined]
    assert dropped.wait(300)


class Silent:
    """Takes every request and sends only `words`.

    `asked` is set after the expected number of requests.
    """

    def __init__(self, words: bytes, expected: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._words, self._expected = words, expected
        self._connections: list[socket.socket] = []
        self.asked = threading.Event()
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        for _ in range(self._expected):
            self._connections.append(self._listening.accept()[0])
            assert self._connections[-1].recv(1)
            self._connections[-1].sendall(self._words)
        self.asked.set()

    def close(self) -> None:
        for one in (self._listening, *self._connections):
            one.close()


@pytest.mark.parametrize(
    "words",
    [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\ndata: {"],
)
def test_a_cancel_does_not_wait_for_a_server_that_says_nothing(words: bytes) -> None:
    server = Silent(words, 3)
    smith = RemoteSmith(server.url, "m", Answer)

    def cancel() -> None:
        server.asked.wait()
        smith.cancel()

    threading.Thread(target=cancel, daemon=True).start()
    events = list(smith.draft(PROMPT, 3))
    assert {(draft.finish, draft.tokens, draft.note) for draft in done(events).values()} == {
        ("cancelled", 0, "")
    }
    assert isinstance(events[-1], RunDone) and events[-1].cancelled and events[-1].drafts == 3
    server.close()


def test_a_cancel_before_the_first_event_sends_nothing() -> None:
    def unwanted(url: str, body: dict[str, object]) -> Answer:
        raise AssertionError("sent")

    smith = RemoteSmith("http://127.0.0.1:9/v1", "m", unwanted)
    run = smith.draft(PROMPT, 2)
    smith.cancel()
    events = list(run)
    assert [draft.finish for draft in done(events).values()] == ["cancelled"] * 2 and isinstance(
        events[-1], RunDone
    )


def test_a_transport_that_breaks_in_whatever_way_ends_the_run() -> None:
    def broken(url: str, body: dict[str, object]) -> Answer:
        raise RecursionError("too deep")

    *_, event = RemoteSmith("http://127.0.0.1:9/v1", "m", broken).draft(PROMPT, 2)
    assert isinstance(event, Failed) and "too deep" in event.reason


ODD = (
    '{"error": {"message": "no such model"}}', "[1]", "{", "3", '"x"', "null", "[" * 99_999,
    '{"choices": [1]}', '{"choices": 3}', '{"choices": {"a": 1}}', '{"choices": [{"delta": "x"}]}',
    '{"choices": [{"delta": {"content": 5}}]}', '{"choices": [{"delta": {"content": ["x"]}}]}',
)  # fmt: skip


@pytest.mark.parametrize(
    "line", [f"data: {payload}" for payload in ODD], ids=[payload[:40] for payload in ODD]
)
def test_an_answer_that_is_an_error_fails_with_its_words(
    serve: Callable[[Says], str], line: str
) -> None:
    events = list(RemoteSmith(serve(lambda request: iter([line])), "m", Answer).draft(PROMPT, 2))
    assert (
        isinstance(events[-1], Failed)
        and events[-1].code == "environment"
        and "/v1/chat/completions" in events[-1].reason
    )
    assert not done(events)


def test_a_wrong_address_fails(serve: Callable[[Says], str]) -> None:
    url = serve(speaks("x"))
    *_, event = RemoteSmith(url + "/other", "m", Answer).draft(PROMPT, 1)
    assert isinstance(event, Failed) and "status 404" in event.reason
    with socket.socket() as nobody:
        # A bound port without a listener: no other program can answer there meanwhile.
        nobody.bind(("127.0.0.1", 0))
        *_, event = RemoteSmith(
            f"http://127.0.0.1:{nobody.getsockname()[1]}/v1", "m", Answer
        ).draft(PROMPT, 1)
    assert isinstance(event, Failed)


def test_one_draft_that_fails_does_not_cost_the_others(serve: Callable[[Says], str]) -> None:
    first = draft_seed(0, 0)

    def answer(request: dict[str, Any]) -> Iterator[str]:
        yield 'data: {"error": "busy"}' if request["seed"] == first else chunk("fine", "stop")

    events = list(RemoteSmith(serve(answer), "m", Answer).draft(PROMPT, 3))
    assert isinstance(events[-1], RunDone) and events[-1].drafts == 2
    assert set(done(events)) == {1, 2} and isinstance(events[0], (Token, DraftDone))


def test_an_answer_that_breaks_off_is_marked(serve: Callable[[Says], str]) -> None:
    finished = done(
        list(
            RemoteSmith(serve(lambda request: iter([chunk("def run(")])), "m", Answer).draft(
                PROMPT, 1
            )
        )
    )
    assert finished[0].finish == "cancelled" and "broke off" in finished[0].note


def test_a_server_that_ignores_max_tokens_is_cut_off(serve: Callable[[Says], str]) -> None:
    """Millions of characters for seven tokens, in small pieces and in one."""
    dropped = threading.Event()

    def endless(request: dict[str, Any]) -> Iterator[str]:
        del request
        try:
            while True:
                yield chunk("word ")
        finally:
            dropped.set()

    most = 7 * LONGEST_TOKEN
    for says in (endless, lambda request: iter([chunk("x" * 500_000)])):
        finished = done(list(RemoteSmith(serve(says), "m", Answer).draft(PROMPT, 1, max_tokens=7)))
        assert (len(finished[0].text), finished[0].finish) == (most, "length")
        assert "max_tokens" in finished[0].note
    assert dropped.wait(300)


@pytest.mark.parametrize(
    "payload",
    ["[" * 200_000, "<html>login</html>", '{"choices": 3}'],
    ids=["deep", "html", "number"],
)
def test_an_event_that_is_no_chunk_is_shown(serve: Callable[[Says], str], payload: str) -> None:
    """The reason quotes the beginning of the event, and the draft ends."""
    *_, event = RemoteSmith(serve(lambda request: iter([f"data: {payload}"])), "m", Answer).draft(
        PROMPT, 1
    )
    assert (
        isinstance(event, Failed) and f"the endpoint answered {payload[:20]}"[:40] in event.reason
    )
