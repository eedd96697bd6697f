"""A smith behind an OpenAI-compatible endpoint (llama-server, vLLM, SGLang) on a bigger machine.

The same events as the local engine: N drafts are N streamed requests at once, which such servers batch by themselves. This
module opens no connection: the caller gives it a `Transport` from the one module that may. The server's chat template is
used, with thinking switched off by `chat_template_kwargs`; a server that ignores it gives answers that begin with
thoughts, which extraction drops. Seeds are passed on; whether they hold is the server's business.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

from kmint_tui.smith.engine import DEFAULT_MAX_TOKENS
from kmint_tui.smith.events import DraftDone, Event, Failed, RunDone
from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.remote_request import Request, Transport, Wanted
from kmint_tui.smith.sampling import Sampling, draft_seed

CHAT_PATH = "/chat/completions"


class RemoteSmith:
    """Drafts kernels through an endpoint such as http://host:8080/v1."""

    def __init__(self, url: str, model: str, transport: Transport) -> None:
        self._url = url.rstrip("/") + CHAT_PATH
        self._model = model
        self._transport = transport
        self._requests: tuple[Request, ...] = ()
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
        """As `Smith.draft`. Ends with `Failed` when no draft came through, else with `RunDone`.

        A `cancel` counts from this call on, not only once the first event was asked for.
        """
        sampling, events = sampling or Sampling(), SimpleQueue[Event]()
        self._cancelled.clear()
        self._requests = tuple(
            Request(
                self._url,
                self._transport,
                Wanted(
                    index,
                    self._model,
                    prompt if isinstance(prompt, Prompt) else prompt[index],
                    sampling,
                    temperature,
                    draft_seed(seed, index),
                    max_tokens,
                ),
                events.put,
            )
            for index, temperature in enumerate(sampling.temperatures(drafts))
        )
        return self._run(self._requests, events)

    def cancel(self) -> None:
        """Hang up on all requests under way."""
        self._cancelled.set()
        for request in self._requests:
            request.hang_up()

    def close(self) -> None:
        """Nothing stays behind but requests that the server has not answered yet."""
        self.cancel()

    def __enter__(self) -> RemoteSmith:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _run(self, requests: tuple[Request, ...], events: SimpleQueue[Event]) -> Iterator[Event]:
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
