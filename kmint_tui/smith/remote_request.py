"""One draft's request to an endpoint: what is sent, and the events that its streamed answer gives.

Whatever the server says, and whenever the request is hung up, exactly one last event comes: `DraftDone` or `Failed`. A server that
has not answered yet is not waited for: its draft ends at once, and the thread ends when the transport gives up.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from kmint_tui.smith.events import DraftDone, Event, Failed, Token
from kmint_tui.smith.extract import Finish
from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.sampling import Sampling
from kmint_tui.smith.stream import DraftText

_DATA = "data:"
_SHOWN = 200


class Stream(Protocol):
    """An answer that arrives line by line. `close` may be called from another thread and ends the iteration."""

    def __iter__(self) -> Iterator[str]:
        """The lines, as text."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class Transport(Protocol):
    """Posts JSON and returns the streamed answer. Raises OSError with a reason fit for people."""

    def __call__(self, url: str, body: dict[str, object]) -> Stream:
        """Send one request."""
        ...


@dataclass(frozen=True)
class Wanted:
    """One draft of a run, and how its tokens are to be drawn."""

    index: int
    model: str
    prompt: Prompt
    sampling: Sampling
    temperature: float
    seed: int
    max_tokens: int

    def body(self) -> dict[str, object]:
        """The request."""
        return {
            "model": self.model,
            "messages": [{"role": "system", "content": self.prompt.system}, {"role": "user", "content": self.prompt.user}],
            "stream": True,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.sampling.top_p,
            "top_k": self.sampling.top_k,
            "min_p": self.sampling.min_p,
            "seed": self.seed,
            "chat_template_kwargs": {"enable_thinking": False},
        }


class Request:
    """`serve` in a thread of its own, `hang_up` from any other. Events go to `put`, the last one once and nothing after it."""

    def __init__(self, url: str, transport: Transport, wanted: Wanted, put: Callable[[Event], None]) -> None:
        self._url, self._transport, self._wanted, self._put = url, transport, wanted, put
        self._started = time.perf_counter()
        self._guard = threading.Lock()
        self._stream: Stream | None = None
        self._hung_up = self._over = False

    def serve(self) -> None:
        """Send it, and pass on what comes."""
        text, tokens, finish = DraftText(inside=False), 0, None
        try:
            if self._hung_up:
                return
            stream = self._transport(self._url, self._wanted.body())
            try:
                for piece, ending in pieces(stream) if self._keep(stream) else ():
                    tokens += bool(piece)
                    finish = ending or finish
                    self._show(text.feed(piece.encode()), tokens)
                    if text.stopped or self._hung_up:
                        break
            finally:
                stream.close()
        except Exception as error:
            # Not only OSError: a thread that died here would leave the run waiting for this draft for ever.
            if not self._hung_up:
                self._end(Failed("environment", f"{self._url}: {error or type(error).__name__}"))
                return
        self._show(text.finish(), tokens)
        end: Finish = "stop" if text.stopped or finish == "stop" else "length" if finish == "length" else "cancelled"
        self._end(self._done(text.text, tokens, end))

    def hang_up(self) -> None:
        """Ask for no more. A draft that has got no answer yet ends now."""
        with self._guard:
            self._hung_up, stream = True, self._stream
        if stream is None:
            self._end(self._done("", 0, "cancelled"))
        else:
            stream.close()

    def _keep(self, stream: Stream) -> bool:
        """Let `hang_up` find the stream; False when that is over already."""
        with self._guard:
            self._stream = stream
            return not self._hung_up

    def _show(self, text: str, tokens: int) -> None:
        with self._guard:
            if text and not self._over:
                self._put(Token(self._wanted.index, text, tokens))

    def _end(self, event: Event) -> None:
        with self._guard:
            if not self._over:
                self._over = True
                self._put(event)

    def _done(self, text: str, tokens: int, finish: Finish) -> DraftDone:
        return DraftDone(
            draft=self._wanted.index,
            text=text,
            finish=finish,
            tokens=tokens,
            seconds=time.perf_counter() - self._started,
            seed=self._wanted.seed,
            temperature=self._wanted.temperature,
            note="" if finish != "cancelled" or self._hung_up else "the endpoint broke off",
        )


def pieces(lines: Stream) -> Iterator[tuple[str, str | None]]:
    """Text and finish reason of each chunk of a server-sent event stream. Raises ValueError when it is something else."""
    for line in lines:
        if not line.startswith(_DATA):
            continue
        payload = line[len(_DATA) :].strip()
        if payload == "[DONE]":
            return
        chunk: Any = json.loads(payload)
        try:
            choices = chunk.get("choices") or []
            found = [((choice.get("delta") or {}).get("content") or "", choice.get("finish_reason")) for choice in choices]
        except (AttributeError, TypeError):
            found = [(None, None)]
        if not all(isinstance(text, str) for text, _ in found) or "error" in chunk:
            raise ValueError(f"the endpoint answered {payload[:_SHOWN]}")
        yield from found
