"""A session's protocol: turns, cancelling, bounds, hostile lines. The referee is one that waits for
the test.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from kmint_tui.service import place
from kmint_tui.service.client import NoSession, Session, session
from kmint_tui.service.protocol import MOST_REQUEST_BYTES, MOST_WAITING
from kmint_tui.service.server import Server
from referee.verdict import Verdict


class Waiting:
    """A referee whose judgements go on when the test lets them."""

    def __init__(self) -> None:
        self.begun: SimpleQueue[str] = SimpleQueue()
        self.go: SimpleQueue[None] = SimpleQueue()
        self.seen: list[str] = []

    def judge(
        self, source: str, op: Any, *, tell: Callable[[str], None] = print, **options: Any
    ) -> Verdict:
        self.begun.put(source)
        self.go.get()
        tell("comparing")
        if source == "fault":
            raise ZeroDivisionError
        self.seen.append(source)
        return Verdict(str(op), "correct", "done", source, None, "interpret", seed=1)


@contextmanager
def serving(
    *, idle: float | None = None, threads: int = 1, demand: Any = "files"
) -> Iterator[Waiting]:
    referee = Waiting()
    with place.listening() as listener:
        server = Server(
            referee, threads=threads, idle=idle, demand=demand, mode="interpret", no_gpu="none here"
        )
        thread = threading.Thread(target=server.run, args=(listener,))
        thread.start()
        try:
            yield referee
        finally:
            server.stop()
            thread.join()


class Raw:
    """A client that sends whatever a test likes."""

    def __init__(self) -> None:
        found = place.connected()
        assert found is not None
        self.connection, self.lines = found, found.makefile("rb")
        self.hello = self.read()

    def send(self, content: Any) -> None:
        text = content if isinstance(content, bytes) else json.dumps(content).encode() + b"\n"
        self.connection.sendall(text)

    def read(self) -> dict[str, Any]:
        line = self.lines.readline()
        assert line, "the session closed the connection"
        found: dict[str, Any] = json.loads(line)
        return found

    def until(self, event: str) -> dict[str, Any]:
        while (found := self.read()).get("event") != event:
            pass
        return found

    def ended(self) -> bool:
        try:
            return self.lines.read() == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.lines.close()
        self.connection.close()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def judging(number: int, source: str = "k") -> dict[str, Any]:
    return {"id": number, "do": "judge", "source": source, "op": "softmax", "level": "screen"}


def test_a_verdict_comes_with_the_steps_before_it() -> None:
    with serving() as referee, Raw() as client:
        assert (client.hello["schema"], client.hello["demand"]) == ("kmint.service/1", "files")
        client.send(judging(7, "source"))
        assert client.until("begun")["id"] == 7
        referee.go.put(None)
        assert client.until("doing")["step"] == "comparing"
        answer = client.until("verdict")
        assert (answer["id"], answer["verdict"]["schema"], answer["verdict"]["reason"]) == (
            7,
            "kmint.verdict/1",
            "source",
        )


def test_the_client_makes_the_same_verdict_of_it() -> None:
    with serving() as referee, session() as opened:
        referee.go.put(None)
        steps: list[str] = []
        verdict = opened.judge("source", "softmax", tell=steps.append)
        assert verdict == Verdict("softmax", "correct", "done", "source", None, "interpret", seed=1)
        assert steps[-1] == "comparing"


def test_two_clients_take_turns() -> None:
    with serving() as referee, Raw() as first, Raw() as second:
        for number in range(3):
            first.send(judging(number, f"first {number}"))
        first.until("begun")
        second.send(judging(0, "second"))
        second.until("queued")
        for _ in range(4):
            referee.go.put(None)
        second.until("verdict")
        while len(referee.seen) < 4:
            first.until("verdict")
        # One of the first client's may have been taken before the second came.
        assert referee.seen.index("second") <= 2


def test_what_is_cancelled_ends_waiting_or_running() -> None:
    with serving() as referee, Raw() as client:
        client.send(judging(1, "runs"))
        client.until("begun")
        client.send(judging(2, "waits"))
        client.until("queued")
        client.send({"id": 3, "do": "cancel", "of": 2})
        assert client.until("cancelled")["id"] == 2
        client.send({"id": 4, "do": "cancel", "of": 1})
        client.send({"id": 5, "do": "status"})
        assert client.until("status")["status"]["running"] == 1
        referee.go.put(None)
        assert client.until("cancelled")["id"] == 1
        assert referee.seen == []


def test_a_client_that_goes_cancels_what_it_wanted() -> None:
    with serving() as referee:
        with Raw() as client:
            client.send(judging(1))
            client.send(judging(2))
            client.until("begun")
        with Raw() as other:
            other.send(judging(1, "other"))
            other.until("queued")
            referee.go.put(None)
            referee.go.put(None)
            assert other.until("verdict")["verdict"]["reason"] == "other"
        assert referee.seen == ["other"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"\n", "JSON"),
        (b"[1]\n", "object"),
        (b'{"do": "judge", "id": 1}\n', "operation or a reference"),
        (b'{"do": "fly", "id": 1}\n', "do must be one of"),
        (b'{"do": "judge", "id": "1"}\n', "id must be"),
        (b'{"do": "cancel", "id": 1}\n', "'of'"),
        (b"[" * 100_000 + b"\n", "deep"),
        (b'{"id": 1' + b"0" * 400 + b"}\n", "64 bits"),
        (b"\xff\xfe\n", "UTF-8"),
        (b" " * (MOST_REQUEST_BYTES + 1), "longer"),
    ],
)
def test_a_line_that_is_no_request_ends_its_client_alone(line: bytes, words: str) -> None:
    with serving() as referee, Raw() as good, Raw() as bad:
        bad.send(line)
        answer = bad.until("refused")
        assert words in answer["message"], answer
        assert bad.ended()
        good.send(judging(1))
        referee.go.put(None)
        good.until("verdict")


def test_a_client_may_not_have_more_than_its_share_waiting() -> None:
    with serving(), Raw() as client:
        for number in range(MOST_WAITING + 1):
            client.send(judging(number))
        answer = client.until("refused")
        assert (answer["id"], answer["kind"]) == (MOST_WAITING, "UsageError")
        client.send(judging(0))
        assert "request 0 is under way" in client.until("refused")["message"]


def test_an_unknown_operation_is_refused_and_the_session_lives() -> None:
    from kmint_tui.errors import UsageError

    with serving() as referee, session() as opened:
        with pytest.raises(UsageError, match="no operation is called 'sofmax'"):
            opened.judge("k", "sofmax")
        with pytest.raises(UsageError, match="sm_90"):
            opened.judge("k", "softmax", target="sm_1")
        referee.go.put(None)
        assert opened.judge("k", "softmax").verdict == "correct"


def test_a_fault_of_the_referee_ends_its_request_alone() -> None:
    from kmint_tui.errors import KmintError

    with serving() as referee, session() as opened:
        referee.go.put(None)
        with pytest.raises(KmintError, match="ZeroDivisionError"):
            opened.judge("fault", "softmax")
        referee.go.put(None)
        assert opened.judge("k", "softmax").verdict == "correct"


def test_the_socket_belongs_to_its_user_alone() -> None:
    from kmint_tui.errors import UsageError

    with serving():
        assert place.socket_file().stat().st_mode & 0o777 == 0o600
        assert place.socket_file().parent.stat().st_mode & 0o777 == 0o700
        with pytest.raises(UsageError, match="runs already"), place.listening():
            pass
    assert not place.socket_file().exists()
    with pytest.raises(NoSession, match="no session runs"), session():
        pass


def test_a_folder_that_others_can_reach_is_refused() -> None:
    from kmint_tui.errors import EnvironmentUnfit

    with serving():
        pass
    place.socket_file().parent.chmod(0o755)
    with pytest.raises(EnvironmentUnfit, match="other users can reach"), place.listening():
        pass
    with pytest.raises(EnvironmentUnfit, match="other users can reach"):
        place.connected()


def test_a_long_path_is_no_trouble(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """An address of a Unix socket holds 107 bytes."""
    monkeypatch.setenv("KMINT_HOME", str(tmp_path / ("long" * 40)))
    with serving(), session() as opened:
        assert opened.status().clients == 1


def test_a_session_that_asks_less_of_the_sandbox_is_not_used() -> None:
    with (
        serving(demand="any"),
        pytest.raises(NoSession, match="asks less of the sandbox"),
        session("files"),
    ):
        pass


def test_an_idle_session_ends_and_a_busy_one_does_not() -> None:
    referee = Waiting()
    with ExitStack() as opened:
        listener = opened.enter_context(place.listening())
        server = Server(referee, threads=1, idle=0.05, demand="any", mode="interpret", no_gpu=None)
        thread = threading.Thread(target=server.run, args=(listener,))
        # A client that comes before the session begins to count keeps it from being idle.
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(place.socket_file()))
        client.sendall(json.dumps(judging(1)).encode() + b"\n")
        thread.start()
        referee.begun.get()
        assert server._left() is None
        referee.go.put(None)
        thread.join()
        client.close()


def test_a_session_that_ends_tells_who_waits() -> None:
    with ExitStack() as opened:
        server = opened.enter_context(_until_stopped())
        client: Session = opened.enter_context(session())
        server.stop()
        with pytest.raises(NoSession, match="ended before its answer"):
            client.judge("k", "softmax")


@contextmanager
def _until_stopped() -> Iterator[Server]:
    with place.listening() as listener:
        server = Server(
            Waiting(), threads=1, idle=None, demand="any", mode="interpret", no_gpu=None
        )
        thread = threading.Thread(target=server.run, args=(listener,))
        thread.start()
        yield server
        thread.join()
