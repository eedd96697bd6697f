"""A session: one referee, a few threads that judge, and a thread for each client.

Clients take turns. When a client disconnects, its requests are cancelled. The session ends on
request, or after a time without requests.
"""

from __future__ import annotations

import os
import selectors
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Generic, TypeVar

from kmint_tui import __version__
from kmint_tui.errors import UsageError
from kmint_tui.service.place import Connection, is_own, limit_sending
from kmint_tui.service.protocol import (
    MOST_REQUEST_BYTES,
    MOST_WAITING,
    SCHEMA,
    BadMessage,
    Demand,
    Hello,
    Request,
    Status,
    line,
    refusal,
    request,
)
from kmint_tui.service.work import Judging, Work

Item = TypeVar("Item")
MOST_CLIENTS = 64


class Turns(Generic[Item]):
    """A queue that is fair between clients: each gets one turn, however many items others queue.

    Several threads may put and take.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: OrderedDict[Hashable, deque[Item]] = OrderedDict()
        self._closed = False

    def put(self, client: Hashable, item: Item) -> int:
        """Add an item of a client; returns the number of waiting items of all clients."""
        with self._changed:
            self._waiting.setdefault(client, deque()).append(item)
            self._changed.notify()
            return sum(map(len, self._waiting.values()))

    def take(self) -> Item | None:
        """The next item, from the client that has waited longest for a turn; None once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            client, items = self._waiting.popitem(last=False)
            item = items.popleft()
            if items:
                self._waiting[client] = items
            return item

    def drop(
        self, client: Hashable, wanted: Callable[[Item], bool] = lambda item: True
    ) -> list[Item]:
        """Take out those items of a client that `wanted` accepts."""
        with self._changed:
            items = self._waiting.pop(client, deque())
            dropped = [item for item in items if wanted(item)]
            if left := deque(item for item in items if not wanted(item)):
                self._waiting[client] = left
            return dropped

    def close(self) -> None:
        """End every `take`; waiting items are dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return sum(map(len, self._waiting.values()))


class Server:
    """`run` serves until the session ends; `stop` ends it from any thread."""

    def __init__(
        self,
        referee: Judging,
        *,
        threads: int,
        idle: float | None,
        demand: Demand,
        mode: str,
        no_gpu: str | None,
    ) -> None:
        """`idle` is the number of seconds without a request after which the session ends; None for
        never.
        """
        self._referee, self._idle = referee, idle
        self._hello = Hello(
            schema=SCHEMA,
            kmint_version=__version__,
            pid=os.getpid(),
            prefix=sys.prefix,
            demand=demand,
            mode=mode,
            no_gpu=no_gpu,
        )
        self._turns: Turns[Work] = Turns()
        self._lock = threading.Lock()
        self._clients: set[Client] = set()
        self._running = self._done = 0
        self._began = self._last = time.monotonic()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._over = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"judge-{number}", daemon=True)
            for number in range(threads)
        ]

    def run(self, listener: Connection) -> None:
        """Serve clients of `listener`."""
        for thread in self._threads:
            thread.start()
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(listener, selectors.EVENT_READ)
                selector.register(self._wake, selectors.EVENT_READ)
                while not self._over and (left := self._left()) != 0:
                    ready = {key.fileobj for key, _ in selector.select(left)}
                    if listener in ready:
                        self._welcome(listener)
                    if self._wake in ready:
                        with suppress(BlockingIOError):
                            os.eventfd_read(self._wake)
        finally:
            self._end()

    def stop(self) -> None:
        """End the session without waiting for running judgements."""
        self._over = True
        self._awake()

    def _awake(self) -> None:
        """Make the main thread check its work again."""
        os.eventfd_write(self._wake, 1)

    def _left(self) -> float | None:
        """Seconds until the session is idle; None while it has work."""
        with self._lock:
            if self._idle is None or self._running or len(self._turns):
                return None
            return max(0.0, self._last + self._idle - time.monotonic())

    def _end(self) -> None:
        self._turns.close()
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            client.close()

    def _welcome(self, listener: Connection) -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with self._lock:
                full = len(self._clients) >= MOST_CLIENTS
            if full or not is_own(connection):
                connection.close()
                return
            limit_sending(connection)
            client = Client(self, connection)
            with self._lock:
                self._clients.add(client)
            threading.Thread(target=client.serve, name="client", daemon=True).start()

    def _serve(self) -> None:
        """A thread that judges."""
        while (work := self._turns.take()) is not None:
            with self._lock:
                self._running += 1
            try:
                work.judged_by(self._referee)
            finally:
                with self._lock:
                    self._running -= 1
                    self._done += 1
                    self._last = time.monotonic()
                self._awake()

    def hello(self) -> dict[str, Any]:
        """The greeting to every new client."""
        return asdict(self._hello)

    def accept(self, client: Client, work: Work) -> None:
        """Have a request judged when its client has a turn."""
        with self._lock:
            self._last = time.monotonic()
        work.say("queued", ahead=self._turns.put(client, work) - 1)

    def withdraw(self, client: Client, number: int) -> None:
        """Cancel a request that waits."""
        for work in self._turns.drop(client, lambda one: one.request.id == number):
            work.say("cancelled")

    def leave(self, client: Client) -> None:
        """Remove a client that disconnected, with its requests."""
        self._turns.drop(client)
        with self._lock:
            self._clients.discard(client)
            self._last = time.monotonic()
        self._awake()

    def status(self) -> dict[str, Any]:
        """The state of the session."""
        now = time.monotonic()
        with self._lock:
            waiting, idle = len(self._turns), 0.0 if self._running else round(now - self._last, 3)
            found = Status(
                pid=os.getpid(),
                clients=len(self._clients),
                waiting=waiting,
                running=self._running,
                done=self._done,
                idle_seconds=idle,
                seconds=round(now - self._began, 3),
            )
        return asdict(found)


class Client:
    """One connection."""

    def __init__(self, server: Server, connection: Connection) -> None:
        self._server, self._connection = server, connection
        self._sending = threading.Lock()
        self._open: dict[int, Work] = {}

    def serve(self) -> None:
        """Read requests until the client disconnects or sends a line that is no request."""
        try:
            self._say(self._server.hello())
            with self._connection.makefile("rb") as lines:
                while text := lines.readline(MOST_REQUEST_BYTES + 1):
                    self._handle(request(text))
        except BadMessage as error:
            self._say({"id": None, **refusal(UsageError(str(error), title="not a request"))})
        except OSError:
            pass
        finally:
            for work in list(self._open.values()):
                work.cancel()
            self._server.leave(self)
            self.close()

    def close(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self._connection.shutdown(2)
        self._connection.close()

    def _handle(self, wanted: Request) -> None:
        match wanted.do:
            case "judge":
                if wanted.id in self._open or len(self._open) >= MOST_WAITING:
                    known = wanted.id in self._open
                    what = (
                        f"request {wanted.id} is under way"
                        if known
                        else f"{MOST_WAITING} requests are under way"
                    )
                    self._say(
                        {"id": wanted.id, **refusal(UsageError(what, fix="wait for an answer"))}
                    )
                    return
                work = self._open[wanted.id] = Work(wanted, self._say)
                self._server.accept(self, work)
            case "cancel":
                assert wanted.of is not None
                if (known_work := self._open.get(wanted.of)) is not None:
                    known_work.cancel()
                    self._server.withdraw(self, wanted.of)
            case "status":
                self._say({"id": wanted.id, "event": "status", "status": self._server.status()})
            case "stop":
                self._say({"id": wanted.id, "event": "status", "status": self._server.status()})
                self._server.stop()

    def _say(self, content: dict[str, Any]) -> None:
        """Send a message; a client that reads nothing is let go."""
        if content.get("event") in ("verdict", "refused", "cancelled"):
            self._open.pop(content["id"], None)
        with self._sending:
            try:
                self._connection.sendall(line(content))
            except OSError:
                with suppress(OSError):
                    self._connection.shutdown(2)
