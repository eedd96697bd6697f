"""A command's side of a session: verdicts from it, as the referee itself gives them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from kmint_tui import __version__
from kmint_tui.errors import EnvironmentUnfit
from kmint_tui.service.place import Connection, connected, socket_file
from kmint_tui.service.protocol import (
    MOST_ANSWER_BYTES,
    BadMessage,
    Demand,
    Hello,
    Level,
    Reference,
    Request,
    Status,
    parsed,
    refused,
)
from kmint_tui.typed import Mistyped, made

if TYPE_CHECKING:
    from referee.problem import TaskName
    from referee.verdict import Verdict

_STRENGTH: tuple[Demand, ...] = ("any", "files", "all")
_START = "start one with `kmint serve`"


class NoSession(EnvironmentUnfit):
    """No session that this command can use, with the reason."""

    title = "no session"


class Session:
    """A connection to the session that runs. Use it from one thread at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lines, self._last = connection, connection.makefile("rb"), 0
        try:
            self.hello = made(Hello, self._read(), "the session's greeting")
        except NoSession:
            self.close()
            raise
        except Mistyped as error:
            self.close()
            raise NoSession(
                f"the session is of another kmint: {error}",
                fix="`kmint serve --stop`, then `kmint serve`",
            ) from None

    def close(self) -> None:
        """Leave the session, which cancels the requests of this connection."""
        self._lines.close()
        self._connection.close()

    def judge(
        self,
        source: str,
        op: str | TaskName,
        *,
        level: Level = "full",
        target: str | None = None,
        seed: int | None = None,
        batch_invariant: bool = False,
        strict: bool = False,
        tell: Callable[[str], None] = lambda step: None,
        count: Callable[[int, int], None] = lambda done, total: None,
    ) -> Verdict:
        """Like `Referee.judge`. Raises KmintError for a refusal, NoSession at its end."""
        from referee.verdict import Verdict

        name, reference = _task_of(op)
        shapes = () if isinstance(op, str) else op.shapes
        wanted = Request(
            id=self._next(),
            do="judge",
            source=source,
            op=name,
            reference=reference,
            level=level,
            target=target,
            seed=seed,
            batch_invariant=batch_invariant,
            strict=strict,
            shapes=shapes,
            wide=not isinstance(op, str) and op.wide,
        )
        self._send(wanted)
        while True:
            event = self._read()
            if event.get("id") not in (wanted.id, None):
                continue
            match event.get("event"):
                case "queued":
                    tell(
                        "waiting for the session"
                        + (f", {event['ahead']} requests ahead" if event.get("ahead") else "")
                    )
                case "doing":
                    tell(str(event.get("step")))
                case "cases":
                    count(int(event["done"]), int(event["total"]))
                case "refused":
                    raise refused(event)
                case "cancelled":
                    raise NoSession("the session gave up this request")
                case "verdict":
                    return made(Verdict, event.get("verdict"), "the verdict")

    def status(self, *, stop: bool = False) -> Status:
        """The state of the session; with `stop` it ends."""
        self._send(Request(id=self._next(), do="stop" if stop else "status"))
        return made(Status, self._read().get("status"), "the status")

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _send(self, wanted: Request) -> None:
        try:
            self._connection.sendall(wanted.to_line())
        except OSError as error:
            raise _ended() from error

    def _read(self) -> dict[str, Any]:
        """The next message. Raises NoSession when the session has ended."""
        try:
            text = self._lines.readline(MOST_ANSWER_BYTES + 1)
            if not text.endswith(b"\n"):
                raise _ended()
            return parsed(text, most_bytes=MOST_ANSWER_BYTES)
        except (OSError, BadMessage) as error:
            raise _ended() from error


@contextmanager
def session(demand: Demand = "any") -> Iterator[Session]:
    """The running session. Raises NoSession if none runs or this command may not trust it."""
    connection = connected()
    if connection is None:
        raise NoSession(f"no session runs at {socket_file()}", fix=_START)
    opened = Session(connection)
    try:
        hello = opened.hello
        if (hello.kmint_version, hello.prefix) != (__version__, sys.prefix):
            where = f"kmint {hello.kmint_version} in {hello.prefix}"
            raise NoSession(
                f"the session is of {where}", fix="`kmint serve --stop`, then `kmint serve`"
            )
        if _STRENGTH.index(hello.demand) < _STRENGTH.index(demand):
            fix = "`kmint serve --stop`, then `kmint serve` with the same sandbox options"
            raise NoSession(
                f"the session asks less of the sandbox ({hello.demand}) than this command "
                f"({demand})",
                fix=fix,
            )
        yield opened
    finally:
        opened.close()


class Sessions:
    """Several connections to the running session. Any number of threads may use it."""

    def __init__(self, connections: Sequence[Session]) -> None:
        self.hello = connections[0].hello
        self._free: SimpleQueue[Session] = SimpleQueue()
        for one in connections:
            self._free.put(one)

    def judge(
        self,
        source: str,
        op: str | TaskName,
        *,
        level: Level = "full",
        target: str | None = None,
        seed: int | None = None,
        batch_invariant: bool = False,
        strict: bool = False,
        tell: Callable[[str], None] = lambda step: None,
        count: Callable[[int, int], None] = lambda done, total: None,
    ) -> Verdict:
        """Like `Session.judge`, through a free connection; waits for one."""
        one = self._free.get()
        try:
            return one.judge(
                source,
                op,
                level=level,
                target=target,
                seed=seed,
                batch_invariant=batch_invariant,
                strict=strict,
                tell=tell,
                count=count,
            )
        finally:
            self._free.put(one)


@contextmanager
def sessions(connections: int, demand: Demand = "any") -> Iterator[Sessions]:
    """The session that runs, by several connections. Raises NoSession as `session` does."""
    with ExitStack() as opened:
        yield Sessions([opened.enter_context(session(demand)) for _ in range(connections)])


def _ended() -> NoSession:
    return NoSession("the session ended before its answer", fix=f"{_START}, and ask again")


def _task_of(op: str | TaskName) -> tuple[str | None, Reference | None]:
    if isinstance(op, str):
        return op, None
    if op.file is None:
        return op.op, None
    return None, Reference(op.file, op.function, op.inputs, op.fixed)
