"""The smith's handle in the application: it starts, feeds and ends the engine's child process.

The child may be killed, run out of memory or abort at any moment. The run then ends with a `Failed`
event with the reason, finished drafts stay valid, and the next run starts a new child. The child
never outlives this process. One run at a time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from kmint_tui import paths
from kmint_tui.errors import EnvironmentUnfit
from kmint_tui.smith import start_cache
from kmint_tui.smith.child import Child
from kmint_tui.smith.events import (
    Chat,
    DraftDone,
    Event,
    Failed,
    Loading,
    Measured,
    ModelLoaded,
    Note,
    RunDone,
    Token,
)
from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.sampling import Sampling
from kmint_tui.smith.split_drafts import contexts_for
from kmint_tui.smith.template import FENCE, TemplateRefused
from kmint_tui.smith.template_process import rendered

Activity = Literal["idle", "paused", "drafting"]

DEFAULT_MAX_TOKENS = 768
LOGS_KEPT = 10
_FATAL = {"native", "killed", "protocol"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings for one model. None lets the engine decide; it reports its choice and the reason.

    `gpu_layers` -1 means all; without them loading fails unless `allow_cpu`. `lanes` is the largest
    number of contexts that share a run's drafts on a GPU. `max_cells` bounds the cache in tokens.
    `tuning` is the file of measurements. `log` is a new file for llama.cpp's output.
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
        self._plain_reason = ""
        self._single_reason = start_cache.remembered_crash(options.tuning, model)
        self._runs = 0
        self._cancelled = 0
        self._chat = Chat("", "", False)
        self.loaded: ModelLoaded | None = None

    @property
    def log(self) -> Path:
        """The file with the output of llama.cpp and the child."""
        return self._options.log

    @property
    def pid(self) -> int | None:
        """The child's process id; None without a child."""
        return self._child.pid if self._child is not None and self._child.running else None

    def load(self) -> Iterator[Event]:
        """Start the child and load the model unless that is done: `Loading`s, then `ModelLoaded` or
        `Failed`.
        """
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
        only: Sequence[int] = (),
    ) -> Iterator[Event]:
        """Draft `drafts` kernels from one prompt, or each from its own prompt of a sequence.

        With `only`, the drafts of these numbers alone are made, as those of a whole run.

        Loads the model first when needed. A `Prompt` goes through the model's chat template; a str
        is used unchanged. `fence` opens the code fence for the model. The last event is `RunDone`
        or `Failed`. An iterator that is left early cancels the run. Raises RuntimeError during
        another run, ValueError when the numbers of prompts and drafts differ.
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
            try:
                texts = self._texts(prompts, FENCE if fence else "")
            except TemplateRefused as refused:
                yield Failed("template", refused.reason)
                return
            except EnvironmentUnfit as unfit:
                yield Failed("environment", unfit.message)
                return
            command = {
                "do": "draft",
                "run": self._runs,
                "texts": texts,
                "drafts": drafts,
                "only": list(only),
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
                    if isinstance(event, (Token, DraftDone)) and not 0 <= event.draft < drafts:
                        event = Failed(
                            "protocol",
                            f"the engine reports draft {event.draft} of {drafts}",
                            str(self.log),
                        )
                    ended = isinstance(event, (RunDone, Failed))
                    if isinstance(event, Failed) and event.code in _FATAL:
                        contexts = self._contexts(drafts)
                        self._drop(child)
                        if child.crashed and contexts > 1:
                            self._one_context(
                                f"llama.cpp crashed ({child.signal_name}) in a run with "
                                f"{contexts} contexts"
                            )
                    yield event
            finally:
                if not ended:
                    self.cancel()
                    while not isinstance(child.events.get(), (RunDone, Failed)):
                        pass

    def cancel(self) -> None:
        """Stop the current run within one step, from any thread. Its drafts end with finish
        "cancelled".

        During loading the run ends once the model is loaded; `close` does not wait.
        """
        child = self._child
        self._cancelled = self._runs
        if child is not None:
            child.resume()
            child.send({"do": "cancel", "run": self._runs})

    @property
    def activity(self) -> Activity:
        """ "drafting" while the smith may use the processor or the GPU, else "idle" or "paused"."""
        if not self._guard.locked():
            return "idle"
        child = self._child
        return "paused" if child is not None and child.paused else "drafting"

    def pause(self) -> None:
        """Stop a run in place and return once the child stands still; GPU work ends within a step.

        `resume`, `cancel` and `close` end the pause. Without a child nothing happens.
        """
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        """Continue after `pause`."""
        if self._child is not None:
            self._child.resume()

    def close(self) -> None:
        """End the child.

        A current run ends with a `Failed` event. Any thread may call it, repeatedly.
        """
        child, self._child = self._child, None
        self.loaded = None
        if child is not None:
            child.close()

    def __enter__(self) -> Smith:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _load(self) -> Iterator[Event]:
        if self._child is not None and self._child.running and self.loaded is not None:
            return
        if self._child is not None:
            self._drop(self._child)
        while True:
            child = self._child = Child(self._options.log)
            reasons = {"plain_reason": self._plain_reason, "single_reason": self._single_reason}
            child.send(
                {"do": "load", "path": str(self._model.absolute()), **reasons, **self._wishes()}
            )
            while isinstance(event := child.events.get(), (Loading, Note, Measured, Chat)):
                if isinstance(event, Measured):
                    self._remember(event)
                elif isinstance(event, Chat):
                    self._chat = event
                else:
                    yield event
            if isinstance(event, ModelLoaded):
                self.loaded = event
            elif isinstance(event, Failed):
                self._drop(child)
                if child.crashed and not self._plain_reason:
                    self._plain_reason = (
                        f"llama.cpp crashed ({child.signal_name}) with weights repacked for "
                        "this processor"
                    )
                    self._one_context(
                        f"llama.cpp crashed ({child.signal_name}) while the model was "
                        "loaded or contexts were measured"
                    )
                    continue
            yield event
            return

    def _one_context(self, reason: str) -> None:
        """Use one context from now on, and at later starts."""
        if not self._single_reason:
            self._single_reason = reason
            start_cache.remember_crash(self._options.tuning, self._model, reason)

    def _wishes(self) -> dict[str, object]:
        settings = {
            name: wish
            for name, wish in vars(self._options).items()
            if name not in ("log", "tuning")
        }
        return {
            **settings,
            "known": start_cache.read(self._options.tuning)
            if self._options.tuning is not None
            else {},
        }

    def _remember(self, measured: Measured) -> None:
        """Store a measurement of the child for later starts."""
        if self._options.tuning is not None:
            start_cache.store(self._options.tuning, measured.key, measured.entry)

    def _texts(self, prompts: Sequence[Prompt | str], prefill: str) -> list[str]:
        """The child's input: each `Prompt` rendered by the model's chat template.

        Raises TemplateRefused, EnvironmentUnfit.
        """
        chat = self._chat
        forms = [prompt for prompt in prompts if isinstance(prompt, Prompt)]
        made = iter(
            rendered(forms, chat.template, bos=chat.bos, add_bos=chat.adds_bos, prefill=prefill)
            if forms
            else ()
        )
        return [prompt + prefill if isinstance(prompt, str) else next(made) for prompt in prompts]

    def _contexts(self, drafts: int) -> int:
        """Number of contexts of a run with that many drafts, as far as the child reported."""
        choices = self.loaded.choices if self.loaded is not None else ()
        return contexts_for(
            drafts, next((int(choice.value) for choice in choices if choice.name == "lanes"), 1)
        )

    def _drop(self, child: Child) -> None:
        """End a child that is of no further use; the next run starts another."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._guard.release()


def own_log() -> Path:
    """This process's log file for the smith. Makes the folder and removes the oldest files.

    Raises StorageError.
    """
    folder = paths.private_dir(paths.log_dir())
    for old in sorted(folder.glob("smith-*.log"), key=_changed)[: -LOGS_KEPT + 1]:
        old.unlink(missing_ok=True)
    return folder / f"smith-{os.getpid()}.log"


def _changed(path: Path) -> float:
    """The time of the last write; 0 for a file that another kmint has just removed."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
