"""The decoding loop of one run: all live drafts advance by one token a step.

A run has a number of slots, each a sequence of the context. A draft that ends leaves its slot and
frees its cells, and a waiting draft takes the slot. On a GPU there are as many slots as drafts, on
a CPU a few, because a wider batch only costs more there. Tokens alone decide which draft runs when,
never the clock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kmint_tui.smith.events import Choice, DraftDone, Event, Token
from kmint_tui.smith.extract import Finish
from kmint_tui.smith.native import ABORTED, NO_SLOT, Context, Logits, Model, NativeError
from kmint_tui.smith.sampler import Chain, Picker, SamplerState
from kmint_tui.smith.sampling import Sampling, draft_seed, is_greedy
from kmint_tui.smith.stream import DraftText
from kmint_tui.smith.threads import ThreadWatch
from kmint_tui.smith.times import StepTime, Times

_SHOW_EVERY = 0.05
"""Seconds between two reports of new text."""


@dataclass(frozen=True, kw_only=True)
class DraftJob:
    """One run. All drafts share the tokenised `prompt`; `tails` are the tokens after it for each
    draft.

    `inside` means that prompts end in an opened code fence. `only` has the numbers to make; empty
    means all. Of these, this job makes every `lanes`-th from place `lane` on (`context_pool.py`).
    Numbers, seeds and temperatures are those of the whole run.
    """

    prompt: tuple[int, ...]
    drafts: int
    sampling: Sampling
    seed: int
    max_tokens: int
    inside: bool
    tails: tuple[tuple[int, ...], ...] = ()
    only: tuple[int, ...] = ()
    lane: int = 0
    lanes: int = 1

    @property
    def wanted(self) -> Sequence[int]:
        """The numbers of the drafts that the run makes."""
        return self.only or range(self.drafts)

    @property
    def own(self) -> Sequence[int]:
        """The numbers of the drafts of this job."""
        return self.wanted[self.lane :: self.lanes]

    def tail(self, draft: int) -> tuple[int, ...]:
        """The tokens between the shared prompt and the answer of a draft."""
        return self.tails[draft] if self.tails else ()

    @property
    def longest(self) -> int:
        """Number of tokens of the longest prompt."""
        return len(self.prompt) + max((len(tail) for tail in self.tails), default=0)


def split(
    prompts: Sequence[tuple[int, ...]],
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """The common beginning of prompts, and the rest of each.

    Each rest has at least one token; a single prompt has no rest.
    """
    if len(prompts) == 1:
        return prompts[0], ()
    limit = min(len(prompt) for prompt in prompts) - 1
    common = next(
        (at for at in range(limit) if len({prompt[at] for prompt in prompts}) > 1), max(limit, 0)
    )
    return prompts[0][:common], tuple(prompt[common:] for prompt in prompts)


@dataclass(kw_only=True)
class DraftState:
    """One draft of a run. `slot` is its sequence while it is live.

    `read` is the number of its tokens that are in `text`.
    """

    index: int
    seed: int
    temperature: float
    text: DraftText
    ids: list[int] = field(default_factory=list)
    read: int = 0
    unseen: str = ""
    slot: int = 0


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The parts of a run. `on_gpu`: a decode continues after its call; `on_device`: so does
    sampling.

    `watch` is None where threads do not matter. `emit` sends a group of events at once.
    """

    model: Model
    context: Context
    picker: Picker
    watch: ThreadWatch | None
    on_gpu: bool
    on_device: bool
    emit: Callable[[Sequence[Event]], None]
    cancelled: Callable[[], bool]
    started: float

    def elapsed(self) -> float:
        """Seconds since the start of the run."""
        return time.perf_counter() - self.started


class Run:
    """Drafts in progress.

    Sequence 0 of the context holds the shared prompt, `row` its last logits.
    """

    def __init__(self, job: DraftJob, tools: Tools, row: Logits, slots: int) -> None:
        self._job, self._tools, self._row = job, tools, row
        temperatures = job.sampling.temperatures(job.drafts)
        self.drafts = [
            DraftState(
                index=index,
                seed=draft_seed(job.seed, index),
                temperature=temperatures[index],
                text=DraftText(inside=job.inside),
            )
            for index in job.own
        ]
        self._waiting = deque(self.drafts)
        self._free = list(range(1, slots + 1))
        self._live: list[DraftState] = []
        self._drawers: dict[int, SamplerState | Chain] = {}
        self._retired: list[tuple[int, Chain]] = []
        self._shown = 0.0
        self.times = Times()
        self.first_token = 0.0
        self.aborted = False
        self.choices: list[Choice] = []

    def go(self) -> None:
        """Decode until every draft has ended or the run is cancelled.

        Raises NativeError; reported drafts stay valid.
        """
        self._fill()
        while self._live and not self._tools.cancelled() and not self.aborted:
            self._step()
            self._fill()

    def give_up(self) -> list[Event]:
        """End all unfinished drafts as cancelled. Returns their last events."""
        rest, self._live, self._waiting = [*self._live, *self._waiting], [], deque()
        return [event for draft in rest for event in self._ended(draft, "cancelled")]

    def close(self) -> None:
        """Free the slots that are still taken."""
        for draft in self.drafts:
            if draft.slot:
                self._leave(draft)
        for slot, chain in self._retired:
            self._tools.context.attach(slot, None)
            chain.close()
        self._retired = []

    def _fill(self) -> None:
        """Give free slots to waiting drafts; their prompt's last logits give the first token."""
        context = self._tools.context
        while self._waiting and self._free and not self._tools.cancelled():
            fresh = [
                self._waiting.popleft() for _ in range(min(len(self._waiting), len(self._free)))
            ]
            for draft in fresh:
                draft.slot = self._free.pop(0)
                context.copy(0, draft.slot)
                self._drawers[draft.slot] = self._drawer(draft)
            drawers = [self._drawers[draft.slot] for draft in fresh]
            rows = self._first_rows(fresh)
            if rows is None:
                self._live += fresh
                return
            tokens = self._tools.picker.pick(rows, drawers)
            self.first_token = self.first_token or self._tools.elapsed()
            for draft, drawer in zip(fresh, drawers, strict=True):
                if self._tools.on_device and isinstance(drawer, Chain):
                    context.attach(draft.slot, drawer.pointer)
            self._live = sorted(
                [*self._live, *self._accept(fresh, tokens)], key=lambda draft: draft.slot
            )

    def _first_rows(self, fresh: Sequence[DraftState]) -> Logits | None:
        """The last logits of each draft's prompt, or of the only one.

        None after an abort: the run is over.
        """
        if not self._job.tails:
            return self._row
        context, start = self._tools.context, len(self._job.prompt)
        rows = []
        for draft in fresh:
            tail = self._job.tail(draft.index)
            for low in range(0, len(tail), context.batch.capacity):
                piece = tail[low : low + context.batch.capacity]
                positions = range(start + low, start + low + len(piece))
                last = [False] * (len(piece) - 1) + [True]
                context.batch.fill(piece, positions, [draft.slot] * len(piece), last)
                code = ABORTED if self._tools.cancelled() else context.decode()
                if code == NO_SLOT:
                    self._live += fresh
                    raise NativeError(
                        "request",
                        f"the prompts' {self._job.longest} tokens do not fit a context of "
                        f"{context.cells}",
                    )
                if code == ABORTED:
                    self.aborted = True
                    return None
            rows.append(context.logits(1).copy())
        return np.concatenate(rows)

    def _drawer(self, draft: DraftState) -> SamplerState | Chain:
        """The sampler of a draft. llama.cpp's chain serves drafts without top-k, which have no
        shortlist.
        """
        sampling = self._job.sampling
        if self._tools.on_device or not (sampling.top_k or is_greedy(draft.temperature)):
            return Chain(self._tools.model.lib, sampling, draft.temperature, draft.seed)
        return SamplerState(sampling, draft.temperature, draft.seed)

    def _step(self) -> None:
        context, rows = self._tools.context, self._live
        began = time.perf_counter()
        prompts = [len(self._job.prompt) + len(self._job.tail(draft.index)) for draft in rows]
        positions = [
            prompt + len(draft.ids) - 1 for prompt, draft in zip(prompts, rows, strict=True)
        ]
        context.batch.fill(
            [draft.ids[-1] for draft in rows],
            positions,
            [draft.slot for draft in rows],
            [True] * len(rows),
        )
        code = context.decode()
        if code == ABORTED:
            self.aborted = True
            return
        if code == NO_SLOT:
            self._make_room()
            return
        ready = time.perf_counter()
        # On a GPU the decode is still running: reading the texts now costs no time.
        self._live = self._read(rows)
        live = [row for row, draft in enumerate(rows) if draft.slot]
        if self._tools.on_gpu:
            context.synchronize()
            ready = time.perf_counter()
        if self._tools.cancelled():
            return
        tokens = self._choose(len(rows), live)
        chosen = time.perf_counter()
        self._live = self._accept(self._live, tokens)
        self.times.add(StepTime(time.perf_counter() - began, ready - began, chosen - ready))
        change = (
            self._tools.watch.observe(len(rows), ready - began)
            if self._tools.watch is not None
            else None
        )
        if change is not None:
            context.set_threads(change.threads)
            if change.reason:
                self.choices.append(Choice("threads", str(change.threads), change.reason))

    def _choose(self, decoded: int, live: Sequence[int]) -> list[int]:
        """The next token of each live draft; `live` are the rows of the `decoded` ones that still
        count.
        """
        if not live:
            return []
        context, drawers = self._tools.context, [self._drawers[draft.slot] for draft in self._live]
        if self._tools.on_device:
            chains = [drawer for drawer in drawers if isinstance(drawer, Chain)]
            return [
                chain.picked_on_device(context.pointer, row)
                for row, chain in zip(live, chains, strict=True)
            ]
        logits = context.logits(decoded)
        return self._tools.picker.pick(logits if len(live) == decoded else logits[live], drawers)

    def _accept(self, drafts: Sequence[DraftState], tokens: Sequence[int]) -> list[DraftState]:
        """Give each draft its token; end those that it completes, and return the others."""
        rest = []
        for draft, token in zip(drafts, tokens, strict=True):
            if self._tools.model.is_end(token):
                self._end(draft, "stop")
                continue
            draft.ids.append(token)
            if len(draft.ids) >= self._job.max_tokens:
                self._end(draft, "length")
            else:
                rest.append(draft)
        return rest

    def _read(self, drafts: Sequence[DraftState]) -> list[DraftState]:
        """Update the texts, report new text now and then, end finished drafts, and return the
        others.
        """
        now = self._tools.elapsed()
        show = now - self._shown >= _SHOW_EVERY
        self._shown = now if show else self._shown
        rest: list[DraftState] = []
        shown: list[Event] = []
        for draft in drafts:
            self._catch_up(draft)
            if draft.text.stopped:
                self._end(draft, "stop")
                continue
            if show:
                shown += self._new_text(draft)
            rest.append(draft)
        if shown:
            self._tools.emit(shown)
        return rest

    def _catch_up(self, draft: DraftState) -> None:
        for token in draft.ids[draft.read :]:
            draft.unseen += draft.text.feed(self._tools.model.piece(token))
        draft.read = len(draft.ids)

    def _make_room(self) -> None:
        """The cache is full: end the longest draft, the last of several, and continue the rest."""
        longest = max(self._live, key=lambda draft: (len(draft.ids), draft.index))
        self._live = [draft for draft in self._live if draft is not longest]
        self._end(longest, "length", f"the context of {self._tools.context.cells} tokens is full")

    def _end(self, draft: DraftState, finish: Finish, note: str = "") -> None:
        self._tools.emit(self._ended(draft, finish, note))
        self._leave(draft)

    def _ended(self, draft: DraftState, finish: Finish, note: str = "") -> list[Event]:
        """The last events of a draft: its unreported text, and its end."""
        self._catch_up(draft)
        draft.unseen += draft.text.finish()
        done = DraftDone(
            draft=draft.index,
            text=draft.text.text,
            # The last bytes may have completed the closing fence.
            finish="stop" if draft.text.stopped else finish,
            tokens=len(draft.ids),
            seconds=self._tools.elapsed(),
            seed=draft.seed,
            temperature=draft.temperature,
            ids=tuple(draft.ids),
            note=note,
        )
        return [*self._new_text(draft), done]

    def _leave(self, draft: DraftState) -> None:
        """Free the draft's slot and its cells."""
        drawer = self._drawers.pop(draft.slot)
        self._tools.context.remove(draft.slot)
        if self._tools.on_device and not self._waiting and isinstance(drawer, Chain):
            # llama.cpp plans its graphs again after a chain leaves the device: once, at the end, is
            # cheaper.
            self._retired.append((draft.slot, drawer))
        else:
            if self._tools.on_device:
                self._tools.context.attach(draft.slot, None)
            drawer.close()
        self._free = sorted([*self._free, draft.slot])
        draft.slot = 0

    def _new_text(self, draft: DraftState) -> list[Event]:
        """The unreported text, if any; it counts as reported afterwards."""
        unseen, draft.unseen = draft.unseen, ""
        return [Token(draft.index, unseen, len(draft.ids))] if unseen else []
