"""A smith behind an OpenAI-compatible endpoint (llama-server, vLLM, SGLang) on a larger machine.

It gives the same events as the local engine. Several endpoints share the drafts of a run. N drafts
are N streamed requests at once, which such
servers batch. The caller passes a `Transport`; this module opens no connection. The server's chat
template is used, with thinking switched off by `chat_template_kwargs`. A server that ignores the
switch gives answers that begin with thoughts, which extraction drops. Seeds are sent, but the
server may ignore them.

Exactly one last event comes for every draft: `DraftDone` or `Failed`. A request that is closed
before the server answered ends its draft at once; its thread ends when the transport gives up.
A server that ignores `max_tokens` is cut off at `LONGEST_TOKEN` characters a token. Tokens
themselves cannot be counted here: some servers send several in one piece, and some one in several
pieces.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol

from kmint_tui.documents import parse_json
from kmint_tui.smith.engine import DEFAULT_MAX_TOKENS
from kmint_tui.smith.events import DraftDone, Event, Failed, RunDone, Token
from kmint_tui.smith.extract import Finish
from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.sampling import Sampling, draft_seed
from kmint_tui.smith.stream import DraftText

LONGEST_TOKEN = 16
"""Largest number of characters a token that a server may send."""

_DATA = "data:"
_CUT = "the endpoint sent more than max_tokens allows; the rest is left out"
_SHOWN = 200
"""Number of characters of an invalid answer in the message."""
CHAT_PATH = "/chat/completions"


class LineStream(Protocol):
    """An answer that arrives line by line.

    `close` may be called from another thread and ends the iteration.
    """

    def __iter__(self) -> Iterator[str]:
        """The lines, as text."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Transport(Protocol):
    """Posts JSON and returns the streamed answer. Raises OSError with a reason for the user."""

    def __call__(self, url: str, body: dict[str, object]) -> LineStream:
        """Send one request."""
        ...


@dataclass(frozen=True, kw_only=True)
class DraftSettings:
    """One draft of a run and its sampling settings."""

    index: int
    model: str
    prompt: Prompt
    sampling: Sampling
    temperature: float
    seed: int
    max_tokens: int

    def body(self) -> dict[str, object]:
        """The request's JSON body."""
        system = [{"role": "system", "content": self.prompt.system}] if self.prompt.system else []
        return {
            "model": self.model,
            "messages": [*system, {"role": "user", "content": self.prompt.user}],
            "stream": True,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.sampling.top_p,
            "top_k": self.sampling.top_k,
            "min_p": self.sampling.min_p,
            "seed": self.seed,
            "chat_template_kwargs": {"enable_thinking": False},
        }


class DraftRequest:
    """`serve` runs in its own thread, `hang_up` in any other.

    Events go to `put`: the last one once, and nothing after it.
    """

    def __init__(
        self, url: str, transport: Transport, wanted: DraftSettings, put: Callable[[Event], None]
    ) -> None:
        self._url, self._transport, self._wanted, self._put = url, transport, wanted, put
        self._started = time.perf_counter()
        self._guard = threading.Lock()
        self._stream: LineStream | None = None
        self._hung_up = self._over = False

    def serve(self) -> None:
        """Send the request and pass its events on."""
        text, tokens, finish, note = DraftText(inside=False), 0, None, ""
        room = LONGEST_TOKEN * self._wanted.max_tokens
        try:
            if self._hung_up:
                return
            stream = self._transport(self._url, self._wanted.body())
            try:
                for piece, ending in pieces(stream) if self._keep(stream) else ():
                    tokens += bool(piece)
                    finish = ending or finish
                    if len(piece) > room:
                        finish, note = "length", _CUT
                    self._show(text.feed(piece[:room].encode("utf-8", "replace")), tokens)
                    room -= len(piece)
                    if text.stopped or self._hung_up or note:
                        break
            finally:
                stream.close()
        except Exception as error:
            # Any exception, not only OSError: a thread that ended silently would leave the run
            # waiting.
            if not self._hung_up:
                self._end(Failed("environment", f"{self._url}: {error or type(error).__name__}"))
                return
        self._show(text.finish(), tokens)
        end: Finish = (
            "stop"
            if text.stopped or finish == "stop"
            else "length"
            if finish == "length"
            else "cancelled"
        )
        self._end(self._done(text.text, tokens, end, note))

    def hang_up(self) -> None:
        """Close the request. A draft without an answer ends now."""
        with self._guard:
            self._hung_up, stream = True, self._stream
        if stream is None:
            self._end(self._done("", 0, "cancelled"))
        else:
            stream.close()

    def _keep(self, stream: LineStream) -> bool:
        """Show `hang_up` the stream; False after a `hang_up`."""
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

    def _done(self, text: str, tokens: int, finish: Finish, note: str = "") -> DraftDone:
        return DraftDone(
            draft=self._wanted.index,
            text=text,
            finish=finish,
            tokens=tokens,
            seconds=time.perf_counter() - self._started,
            seed=self._wanted.seed,
            temperature=self._wanted.temperature,
            note=note if finish != "cancelled" or self._hung_up else "the endpoint broke off",
        )


def pieces(lines: LineStream) -> Iterator[tuple[str, str | None]]:
    """Text and finish reason of each chunk of a server-sent event stream.

    Raises ValueError for any other text.
    """
    for line in lines:
        if not line.startswith(_DATA):
            continue
        payload = line[len(_DATA) :].strip()
        if payload == "[DONE]":
            return
        try:
            chunk: Any = parse_json(payload)
            choices = chunk.get("choices") or []
            found = [
                ((choice.get("delta") or {}).get("content") or "", choice.get("finish_reason"))
                for choice in choices
            ]
            usable = "error" not in chunk and all(isinstance(text, str) for text, _ in found)
        except (AttributeError, TypeError, ValueError):
            usable = False
        if not usable:
            raise ValueError(f"the endpoint answered {payload[:_SHOWN]}")
        yield from found


class RemoteSmith:
    """Drafts kernels through endpoints such as http://host:8080/v1, which share the drafts."""

    def __init__(
        self, url: str, model: str, transport: Transport, more: Sequence[tuple[str, str]] = ()
    ) -> None:
        """`more` are further addresses, each with the name of its model. Draft n of a run comes
        from server n modulo their number.
        """
        self._servers = [
            (address.rstrip("/") + CHAT_PATH, name) for address, name in ((url, model), *more)
        ]
        self._transport = transport
        self._requests: tuple[DraftRequest, ...] = ()
        self._cancelled = threading.Event()

    def draft(
        self,
        prompt: Prompt | Sequence[Prompt],
        drafts: int,
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        only: Sequence[int] = (),
    ) -> Iterator[Event]:
        """As `Smith.draft`. Ends with `Failed` when no draft arrived, else with `RunDone`.

        A `cancel` counts from this call on, even before the first event is read.
        """
        sampling, events = sampling or Sampling(), SimpleQueue[Event]()
        count = len(self._servers)
        self._cancelled.clear()
        self._requests = tuple(
            DraftRequest(
                self._servers[index % count][0],
                self._transport,
                DraftSettings(
                    index=index,
                    model=self._servers[index % count][1],
                    prompt=prompt if isinstance(prompt, Prompt) else prompt[index],
                    sampling=sampling,
                    temperature=temperature,
                    seed=draft_seed(seed, index),
                    max_tokens=max_tokens,
                ),
                events.put,
            )
            for index, temperature in enumerate(sampling.temperatures(drafts))
            if not only or index in only
        )
        return self._run(self._requests, events)

    def cancel(self) -> None:
        """Close all open requests."""
        self._cancelled.set()
        for request in self._requests:
            request.hang_up()

    def close(self) -> None:
        """Close all requests; only requests without an answer stay in their threads."""
        self.cancel()

    def __enter__(self) -> RemoteSmith:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _run(
        self, requests: tuple[DraftRequest, ...], events: SimpleQueue[Event]
    ) -> Iterator[Event]:
        started = time.perf_counter()
        for index, request in enumerate(requests):
            threading.Thread(target=request.serve, name=f"remote-{index}", daemon=True).start()
        ended: list[DraftDone] = []
        failures: list[Failed] = []
        try:
            while len(ended) + len(failures) < len(requests):
                event = events.get()
                if isinstance(event, Failed):
                    failures.append(event)
                    continue
                if isinstance(event, DraftDone):
                    ended.append(event)
                yield event
        finally:
            if len(ended) + len(failures) < len(requests):
                self.cancel()
        yield failures[0] if failures and not ended else self._figures(ended, started)

    def _figures(self, ended: list[DraftDone], started: float) -> RunDone:
        return RunDone(
            drafts=len(ended),
            tokens=sum(draft.tokens for draft in ended),
            seconds=time.perf_counter() - started,
            prompt_tokens=0,
            reused_tokens=0,
            prefill_seconds=0.0,
            first_token_seconds=0.0,
            steps=0,
            step_seconds=0.0,
            sampling_share=0.0,
            cells=0,
            threads=0,
            cancelled=self._cancelled.is_set(),
        )
