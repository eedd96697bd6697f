"""The smith as the application sees it: a handle on the engine's child process.

The child may be killed, run out of memory or abort at any moment: the run then ends with a `Failed` event that says so,
drafts that were done stay done, and the next run starts a new child. It never outlives this process. One run at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from kmint_tui.smith import crashes
from kmint_tui.smith.child import Child
from kmint_tui.smith.events import Event, Failed, Loaded, Loading, Note, RunDone
from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.sampling import Sampling
from kmint_tui.smith.shares import lanes_for

Activity = Literal["idle", "paused", "drafting"]

DEFAULT_MAX_TOKENS = 768
_FATAL = {"native", "killed", "protocol"}


@dataclass(frozen=True)
class Options:
    """How to run a model. None leaves a decision to the engine, which says what it decided and why.

    `gpu_layers` -1 means all; asked for and not had, loading fails unless `allow_cpu`. `lanes` is the largest number of
    contexts that share a run's drafts on a GPU. `max_cells` bounds the cache in tokens. `tuning` is the file that remembers
    measurements. `log` is a file for llama.cpp's words, made anew.
    """

    log: Path
    tuning: Path | None = None
    gpu_layers: int | None = None
    allow_cpu: bool = False
    threads: int | None = None
    sampling: Literal["turn", "pool", "device"] | None = None
    lanes: int | None = None
    max_cells: int | None = None


class Smith:
    """Drafts kernels with one model file. Also a context manager."""

    def __init__(self, model: Path, options: Options) -> None:
        self._model = model
        self._options = options
        self._guard = threading.Lock()
        self._child: Child | None = None
        self._plain_reason, self._single_reason = "", crashes.remembered(options.tuning, model)
        self._runs = 0
        self._cancelled = 0
        self.loaded: Loaded | None = None

    @property
    def log(self) -> Path:
        """The file that holds what llama.cpp and the child said."""
        return self._options.log

    @property
    def pid(self) -> int | None:
        """The child's process id; None while there is no child."""
        return self._child.pid if self._child is not None and self._child.running else None

    def load(self) -> Iterator[Event]:
        """Start the child and load the model if that is still to be done: `Loading`s, then `Loaded` or `Failed`."""
        with _Exclusive(self._guard):
            yield from self._load()

    def draft(
        self,
        prompt: Prompt | str | Sequence[Prompt],
        drafts: int,
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        fence: bool = False,
    ) -> Iterator[Event]:
        """Draft `drafts` kernels from one prompt, or each from its own of a sequence; loads the model first when needed.

        A `Prompt` goes through the model's chat template, a str is taken as it is. `fence` opens the code fence for the
        model. The last event is `RunDone` or `Failed`. Leaving the iterator early cancels the run.
        Raises RuntimeError when another run is under way, ValueError for another number of prompts than of drafts.
        """
        prompts = [prompt] if isinstance(prompt, (str, Prompt)) else prompt
        if prompts is prompt and len(prompts) != drafts:
            raise ValueError(f"{len(prompts)} prompts for {drafts} drafts")
        with _Exclusive(self._guard):
            self._runs += 1
            failed = False
            for event in self._load():
                failed = isinstance(event, Failed)
                yield event
            child = self._child
            if failed or child is None:
                return
            command = {
                "do": "draft",
                "run": self._runs,
                "prompts": [one if isinstance(one, str) else asdict(one) for one in prompts],
                "drafts": drafts,
                "sampling": asdict(sampling or Sampling()),
                "seed": seed,
                "max_tokens": max_tokens,
                "fence": fence,
            }
            child.send(command)
            if self._cancelled == self._runs:
                self.cancel()
            ended = False
            try:
                while not ended:
                    event = child.events.get()
                    ended = isinstance(event, (RunDone, Failed))
                    if isinstance(event, Failed) and event.code in _FATAL:
                        lanes = self._lanes(drafts)
                        self._drop(child)
                        if child.crashed and lanes > 1:
                            self._one_lane(f"llama.cpp crashed ({child.signal_name}) in a run with {lanes} lanes")
                    yield event
            finally:
                if not ended:
                    self.cancel()
                    while not isinstance(child.events.get(), (RunDone, Failed)):
                        pass

    def cancel(self) -> None:
        """Stop the run under way within one step, from any thread. Its drafts end with finish "cancelled".

        While the model is still being loaded, the run ends as soon as it is there; `close` does not wait.
        """
        child = self._child
        self._cancelled = self._runs
        if child is not None:
            child.resume()
            child.send({"do": "cancel", "run": self._runs})

    @property
    def activity(self) -> Activity:
        """Whether the smith may be using processor or GPU at this moment."""
        if not self._guard.locked():
            return "idle"
        child = self._child
        return "paused" if child is not None and child.paused else "drafting"

    def pause(self) -> None:
        """Halt a run where it is; returns when the child stands still. What the GPU was given before ends within a step.

        `resume`, `cancel` and `close` end the pause. Does nothing where there is no child.
        """
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        """Go on after `pause`."""
        if self._child is not None:
            self._child.resume()

    def close(self) -> None:
        """End the child. A run under way ends with a `Failed` event. May be called more than once and from any thread."""
        child, self._child = self._child, None
        self.loaded = None
        if child is not None:
            child.close()

    def __enter__(self) -> Smith:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _load(self) -> Iterator[Event]:
        if self._child is not None and self._child.running and self.loaded is not None:
            return
        if self._child is not None:
            self._drop(self._child)
        while True:
            child = self._child = Child(self._options.log)
            reasons = {"plain_reason": self._plain_reason, "single_reason": self._single_reason}
            child.send({"do": "load", "path": str(self._model), **reasons, **self._wishes()})
            while isinstance(event := child.events.get(), (Loading, Note)):
                yield event
            if isinstance(event, Loaded):
                self.loaded = event
            elif isinstance(event, Failed):
                self._drop(child)
                if child.crashed and not self._plain_reason:
                    self._plain_reason = f"llama.cpp crashed ({child.signal_name}) with weights repacked for this processor"
                    self._one_lane(f"llama.cpp crashed ({child.signal_name}) while the model was loaded or lanes were measured")
                    continue
            yield event
            return

    def _one_lane(self, reason: str) -> None:
        """From now on, and at later starts."""
        if not self._single_reason:
            self._single_reason = reason
            crashes.remember(self._options.tuning, self._model, reason)

    def _wishes(self) -> dict[str, object]:
        wishes = {name: wish for name, wish in vars(self._options).items() if name != "log"}
        return {**wishes, "tuning": str(self._options.tuning) if self._options.tuning is not None else None}

    def _lanes(self, drafts: int) -> int:
        """How many lanes a run of so many drafts has, as far as the child said."""
        choices = self.loaded.choices if self.loaded is not None else ()
        return lanes_for(drafts, next((int(choice.value) for choice in choices if choice.name == "lanes"), 1))

    def _drop(self, child: Child) -> None:
        """Bury a child that is of no use any more; the next run starts another."""
        child.close()
        if self._child is child:
            self._child = None
            self.loaded = None


class _Exclusive:
    """Lets one run through at a time."""

    def __init__(self, guard: threading.Lock) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        if not self._guard.acquire(blocking=False):
            raise RuntimeError("this smith is already busy with a run")

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._guard.release()
