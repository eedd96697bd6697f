"""A smith behind an OpenAI-compatible endpoint (llama-server, vLLM, SGLang) on a bigger machine.

The same events as the local engine: N drafts are N streamed requests at once, which such servers batch by themselves. This
module opens no connection: the caller gives it a `Transport` from the one module that may. The server's chat template is
used, with thinking switched off by `chat_template_kwargs`; a server that ignores it gives answers that begin with
thoughts, which extraction drops. Seeds are passed on; whether they hold is the server's business.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Any, Protocol

from kmint_tui.smith.engine import DEFAULT_MAX_TOKENS
from kmint_tui.smith.events import DraftDone, Event, Failed, RunDone, Token
from kmint_tui.smith.extract import Finish
from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.sampling import Sampling, draft_seed
from kmint_tui.smith.stream import DraftText

CHAT_PATH = "/chat/completions"
_DATA = "data:"


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


class RemoteSmith:
    """Drafts kernels through an endpoint such as http://host:8080/v1."""

    def __init__(self, url: str, model: str, transport: Transport) -> None:
        self._url = url.rstrip("/") + CHAT_PATH
        self._model = model
        self._transport = transport
        self._streams: dict[int, Stream] = {}
        self._guard = threading.Lock()
        self._cancelled = threading.Event()

    def draft(
        self,
        prompt: Prompt | Sequence[Prompt],
        drafts: int,
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_tokens: int = DEFAULT_MAX_TOKENS,
    ) -> Iterator[Event]:
        """As `Smith.draft`. Ends with `Failed` when no draft came through, else with `RunDone`."""
        sampling = sampling or Sampling()
        self._cancelled.clear()
        events: SimpleQueue[Event] = SimpleQueue()
        started = time.perf_counter()
        bodies = [
            self._body(prompt if isinstance(prompt, Prompt) else prompt[index], sampling, temperature, draft_seed(seed, index), max_tokens)
            for index, temperature in enumerate(sampling.temperatures(drafts))
        ]
        threads = [
            threading.Thread(target=self._serve, args=(index, body, events, started), name=f"remote-{index}", daemon=True)
            for index, body in enumerate(bodies)
        ]
        for thread in threads:
            thread.start()
        ended: list[DraftDone] = []
        failures: list[Failed] = []
        try:
            while len(ended) + len(failures) < drafts:
                event = events.get()
                if isinstance(event, Failed):
                    failures.append(event)
                    continue
                if isinstance(event, DraftDone):
                    ended.append(event)
                yield event
        finally:
            if len(ended) + len(failures) < drafts:
                self.cancel()
            for thread in threads:
                thread.join()
        yield failures[0] if failures and not ended else self._figures(ended, started)

    def cancel(self) -> None:
        """Hang up on all requests under way."""
        self._cancelled.set()
        with self._guard:
            streams = list(self._streams.values())
        for stream in streams:
            stream.close()

    def close(self) -> None:
        """Nothing stays behind but requests under way."""
        self.cancel()

    def __enter__(self) -> RemoteSmith:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _body(self, prompt: Prompt, sampling: Sampling, temperature: float, seed: int, max_tokens: int) -> dict[str, object]:
        return {
            "model": self._model,
            "messages": [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}],
            "stream": True,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "seed": seed,
            "chat_template_kwargs": {"enable_thinking": False},
        }

    def _serve(self, index: int, body: dict[str, object], events: SimpleQueue[Event], started: float) -> None:
        """One request: its tokens, then its end."""
        text, tokens, finish = DraftText(inside=False), 0, None
        try:
            stream = self._transport(self._url, body)
            with self._guard:
                self._streams[index] = stream
            try:
                for piece, ending in _pieces(stream):
                    tokens += bool(piece)
                    finish = ending or finish
                    shown = text.feed(piece.encode())
                    if shown:
                        events.put(Token(index, shown, tokens))
                    if text.stopped or self._cancelled.is_set():
                        break
            finally:
                with self._guard:
                    del self._streams[index]
                stream.close()
        except (OSError, ValueError) as error:
            if not self._cancelled.is_set():
                events.put(Failed("environment", f"{self._url}: {error}"))
                return
        rest = text.finish()
        if rest:
            events.put(Token(index, rest, tokens))
        end: Finish = "stop" if text.stopped or finish == "stop" else "length" if finish == "length" else "cancelled"
        seed, temperature = body["seed"], body["temperature"]
        events.put(
            DraftDone(
                draft=index,
                text=text.text,
                finish=end,
                tokens=tokens,
                seconds=time.perf_counter() - started,
                seed=seed if isinstance(seed, int) else 0,
                temperature=temperature if isinstance(temperature, float) else 0.0,
                note="" if end != "cancelled" or self._cancelled.is_set() else "the endpoint broke off",
            )
        )

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


def _pieces(lines: Stream) -> Iterator[tuple[str, str | None]]:
    """Text and finish reason of each chunk of a server-sent event stream. Raises ValueError when it is something else."""
    for line in lines:
        if not line.startswith(_DATA):
            continue
        payload = line[len(_DATA) :].strip()
        if payload == "[DONE]":
            return
        chunk: Any = json.loads(payload)
        if not isinstance(chunk, dict) or "error" in chunk:
            raise ValueError(f"the endpoint answered {payload[:200]}")
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta") or {}
            yield delta.get("content") or "", choice.get("finish_reason")
