"""N drafts from one prompt, in one batch: prefill once, share the prompt, one decode a step for all that are still live.

Sequence 0 holds the prompt and nothing else, so that it is still there for the next run. Draft i is sequence i + 1. A
finished draft leaves the batch at once; its cells stay until the run ends, so that the cells of the others, and with them
the order in which attention sums, do not depend on it.

Reproducible on the CPU: the same file, wheel and kind of machine, the same prompt, number of drafts, settings and seed give
the same tokens, whatever the thread count and whatever ran before. Three rules see to it:
- a prompt is always prefilled in the same pieces, and only whole pieces are kept for the next prompt;
- a batch never has a single row, because llama.cpp then splits attention by the number of threads: the last live draft is
  decoded twice, its twin in a spare sequence;
- nothing about a draft is decided by the clock. Cancelling is the exception: where it strikes depends on the moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kmint_tui.smith.events import Choice, DraftDone, Event, Note, RunDone, Token
from kmint_tui.smith.extract import Finish
from kmint_tui.smith.native import ABORTED, NO_SLOT, Context, Logits, Model, NativeError
from kmint_tui.smith.sampler import Chain, Picker
from kmint_tui.smith.sampling import Sampling, draft_seed
from kmint_tui.smith.stream import DraftText
from kmint_tui.smith.threads import ThreadWatch

MAX_DRAFTS = 128
PIECE_CPU, PIECE_GPU = 128, 512
_SPARE = 8
_SHOW_EVERY = 0.05


@dataclass(frozen=True)
class Job:
    """One run. `prompt` is tokenised; `inside` says that it ends in an opened code fence."""

    prompt: tuple[int, ...]
    drafts: int
    sampling: Sampling
    seed: int
    max_tokens: int
    inside: bool


@dataclass
class _Draft:
    index: int
    seed: int
    temperature: float
    chain: Chain
    text: DraftText
    ids: list[int] = field(default_factory=list)
    unseen: str = ""

    @property
    def sequence(self) -> int:
        return self.index + 1


@dataclass
class _Clock:
    start: float = field(default_factory=time.perf_counter)
    shown: float = 0.0
    prefill: float = 0.0
    first: float = 0.0
    sampling: float = 0.0
    steps: list[float] = field(default_factory=list)

    def elapsed(self) -> float:
        return time.perf_counter() - self.start


class Decoder:
    """Owns the context of one model and runs jobs in it, one at a time."""

    def __init__(
        self, model: Model, picker: Picker, watch: ThreadWatch, *, on_gpu: bool, on_device: bool, max_cells: int | None = None
    ) -> None:
        """`on_device` lets chains run on the accelerator; `max_cells` bounds the cache (the fit estimate's business)."""
        self._model, self._picker, self._watch = model, picker, watch
        self._on_gpu, self._on_device, self._max_cells = on_gpu, on_device, max_cells
        self._piece = PIECE_GPU if on_gpu else PIECE_CPU
        self._context: Context | None = None
        self._resident: tuple[int, ...] = ()
        self._row: Logits = np.empty((0, 0), np.float32)

    def abort(self) -> None:
        """Make a decode under way on the CPU give up; callable from another thread."""
        if self._context is not None:
            self._context.abort(True)

    def close(self) -> None:
        """Free the context."""
        if self._context is not None:
            self._context.close()
            self._context = None

    def run(self, job: Job, emit: Callable[[Event], None], cancelled: Callable[[], bool]) -> RunDone:
        """Draft. Events go to `emit`, the figures are returned. Raises NativeError; drafts already reported stay valid."""
        clock = _Clock()
        self._check(job)
        context = self._prepared(job)
        reused = self._prefill(context, job.prompt, cancelled)
        clock.prefill = clock.elapsed()
        drafts = [self._draft(job, index, temperature) for index, temperature in enumerate(job.sampling.temperatures(job.drafts))]
        live = list(drafts)
        choices: list[Choice] = []
        try:
            if reused is None:
                self._finish(live, "cancelled", emit, clock)
                live = []
            else:
                for draft in drafts:
                    context.copy(0, draft.sequence)
                tokens = self._picker.pick(np.broadcast_to(self._row, (job.drafts, self._model.tokens)), [draft.chain for draft in drafts])
                clock.first = clock.elapsed()
                if self._on_device:
                    for draft in drafts:
                        context.attach(draft.sequence, draft.chain.pointer)
                live = self._take(job, live, tokens, emit, clock)
            self._loop(job, context, live, emit, cancelled, clock, choices)
        finally:
            self._forget(context, drafts)
        steps = sorted(clock.steps)
        spent = sum(steps)
        return RunDone(
            drafts=job.drafts,
            tokens=sum(len(draft.ids) for draft in drafts),
            seconds=clock.elapsed(),
            prompt_tokens=len(job.prompt),
            reused_tokens=reused or 0,
            prefill_seconds=clock.prefill,
            first_token_seconds=clock.first,
            steps=len(steps),
            step_seconds=steps[len(steps) // 2] if steps else 0.0,
            sampling_share=clock.sampling / spent if spent else 0.0,
            cells=context.cells,
            threads=self._watch.threads,
            cancelled=cancelled(),
            choices=tuple(choices),
        )

    def _check(self, job: Job) -> None:
        if not 1 <= job.drafts <= MAX_DRAFTS:
            raise NativeError("request", f"{job.drafts} drafts asked for: from 1 to {MAX_DRAFTS} can be made at once")
        if job.max_tokens < 1:
            raise NativeError("request", "a draft needs room for at least one token")
        if not job.prompt:
            raise NativeError("request", "the prompt is empty")
        room = self._model.trained_context - len(job.prompt)
        if room < job.max_tokens:
            size = f"{len(job.prompt)} prompt tokens and {job.max_tokens} more"
            raise NativeError("request", f"{size} do not fit the model's context of {self._model.trained_context}")

    def _prepared(self, job: Job) -> Context:
        """A context with room for the job: the one at hand when it is large enough, else a new one."""
        cells = len(job.prompt) + (job.drafts + 1) * (job.max_tokens + _SPARE)
        cells = -(-cells // 256) * 256
        if self._max_cells is not None:
            cells = min(cells, self._max_cells)
        sequences = job.drafts + 2
        context = self._context
        if context is not None and (context.cells < cells or context.sequences < sequences):
            cells, sequences = max(cells, context.cells), max(sequences, context.sequences)
            self.close()
            context = None
        if context is None:
            batch = max(self._piece + 64, MAX_DRAFTS + 1)
            context = Context(self._model, cells=cells, sequences=sequences, batch=batch, threads=self._watch.threads)
            self._context, self._resident = context, ()
        context.abort(False)
        context.set_threads(self._watch.threads)
        return context

    def _prefill(self, context: Context, prompt: tuple[int, ...], cancelled: Callable[[], bool]) -> int | None:
        """Bring the prompt into sequence 0 and its last logits into `_row`. Returns the tokens reused, None when cancelled."""
        if prompt == self._resident:
            return len(prompt)
        keep = 0 if self._model.recurrent else reusable(self._resident, prompt, self._piece)
        self._resident = ()
        if keep == 0:
            context.clear()
        elif not context.remove(0, keep):
            context.clear()
            keep = 0
        starts = [start for start in piece_starts(len(prompt), self._piece) if start >= keep]
        for start, end in zip(starts, [*starts[1:], len(prompt)], strict=True):
            if cancelled():
                context.clear()
                return None
            count = end - start
            last = end == len(prompt)
            context.batch.fill(prompt[start:end], range(start, end), [0] * count, [False] * (count - 1) + [last])
            code = context.decode()
            if code == NO_SLOT:
                context.clear()
                raise NativeError("request", f"the prompt's {len(prompt)} tokens do not fit a context of {context.cells}")
            if code == ABORTED:
                context.clear()
                return None
        self._row = context.logits(1).copy()
        self._resident = prompt
        return keep

    def _draft(self, job: Job, index: int, temperature: float) -> _Draft:
        seed = draft_seed(job.seed, index)
        chain = Chain(self._model.lib, job.sampling, temperature, seed)
        return _Draft(index, seed, temperature, chain, DraftText(inside=job.inside))

    def _loop(
        self,
        job: Job,
        context: Context,
        live: list[_Draft],
        emit: Callable[[Event], None],
        cancelled: Callable[[], bool],
        clock: _Clock,
        choices: list[Choice],
    ) -> None:
        twin = job.drafts + 1
        twinned = False
        while live:
            if cancelled():
                self._finish(live, "cancelled", emit, clock)
                return
            if len(live) == 1 and not twinned and not self._on_gpu:
                context.copy(live[0].sequence, twin)
                twinned = True
            rows = [*live, live[0]] if twinned else live
            tokens = [draft.ids[-1] for draft in rows]
            positions = [len(job.prompt) + len(draft.ids) - 1 for draft in rows]
            sequences = [draft.sequence for draft in live] + ([twin] if twinned else [])
            context.batch.fill(tokens, positions, sequences, [True] * len(live) + [False] * (len(rows) - len(live)))
            began = time.perf_counter()
            code = context.decode()
            if code == NO_SLOT:
                live = self._make_room(context, live, emit, clock)
                continue
            if code == ABORTED:
                self._resident = () if self._model.recurrent else self._resident
                self._finish(live, "cancelled", emit, clock)
                return
            chosen, sampling = self._choose(context, live)
            taken = time.perf_counter() - began
            clock.steps.append(taken)
            clock.sampling += sampling
            live = self._take(job, live, chosen, emit, clock)
            change = None if self._on_gpu else self._watch.observe(len(rows), taken)
            if change is not None:
                context.set_threads(change.threads)
                if change.reason:
                    choices.append(Choice("threads", str(change.threads), change.reason))
                    emit(Note(f"{change.threads} threads from now on: {change.reason}"))

    def _choose(self, context: Context, live: Sequence[_Draft]) -> tuple[list[int], float]:
        """The next token of each live draft, and the seconds it took to choose once the logits were there."""
        if self._on_device:
            context.synchronize()
            began = time.perf_counter()
            tokens = [draft.chain.picked_on_device(context.pointer, row) for row, draft in enumerate(live)]
        else:
            logits = context.logits(len(live))
            began = time.perf_counter()
            tokens = self._picker.pick(logits, [draft.chain for draft in live])
        return tokens, time.perf_counter() - began

    def _take(self, job: Job, live: list[_Draft], tokens: Sequence[int], emit: Callable[[Event], None], clock: _Clock) -> list[_Draft]:
        """Add one token to each live draft, report what is finished, and return those that go on."""
        rest: list[_Draft] = []
        for draft, token in zip(live, tokens, strict=True):
            ended = self._model.is_end(token)
            if not ended:
                draft.ids.append(token)
                draft.unseen += draft.text.feed(self._model.piece(token))
            if ended or draft.text.stopped:
                self._finish([draft], "stop", emit, clock)
            elif len(draft.ids) >= job.max_tokens:
                self._finish([draft], "length", emit, clock)
            else:
                rest.append(draft)
        now = clock.elapsed()
        if now - clock.shown >= _SHOW_EVERY:
            clock.shown = now
            for draft in rest:
                _show(draft, emit)
        return rest

    def _make_room(self, context: Context, live: list[_Draft], emit: Callable[[Event], None], clock: _Clock) -> list[_Draft]:
        """The cache is full: give up the longest draft (the last of several) and let the others go on."""
        longest = max(live, key=lambda draft: (len(draft.ids), draft.index))
        self._finish([longest], "length", emit, clock, f"the context of {context.cells} tokens is full")
        context.remove(longest.sequence)
        return [draft for draft in live if draft is not longest]

    def _finish(self, drafts: Sequence[_Draft], finish: Finish, emit: Callable[[Event], None], clock: _Clock, note: str = "") -> None:
        for draft in drafts:
            draft.unseen += draft.text.finish()
            _show(draft, emit)
            ended: Finish = "stop" if draft.text.stopped and finish == "length" else finish
            emit(
                DraftDone(
                    draft=draft.index,
                    text=draft.text.text,
                    finish=ended,
                    tokens=len(draft.ids),
                    seconds=clock.elapsed(),
                    seed=draft.seed,
                    temperature=draft.temperature,
                    ids=tuple(draft.ids),
                    note=note,
                )
            )

    def _forget(self, context: Context, drafts: Sequence[_Draft]) -> None:
        """Leave only the prompt behind."""
        for draft in drafts:
            if self._on_device:
                context.attach(draft.sequence, None)
            context.remove(draft.sequence)
            draft.chain.close()
        context.remove(len(drafts) + 1)


def piece_starts(length: int, size: int) -> list[int]:
    """Where the pieces of a prompt begin. A last piece of a single token is joined to the one before it."""
    starts = list(range(0, length, size))
    if len(starts) > 1 and length - starts[-1] == 1:
        starts.pop()
    return starts


def reusable(resident: Sequence[int], prompt: Sequence[int], size: int) -> int:
    """How many leading tokens of `prompt` can be kept from `resident`: whole pieces of both that are equal."""
    common = next((i for i, (a, b) in enumerate(zip(resident, prompt, strict=False)) if a != b), min(len(resident), len(prompt)))
    edges = {*piece_starts(len(resident), size), len(resident)}
    return max((start for start in piece_starts(len(prompt), size) if start <= common and start in edges), default=0)


def _show(draft: _Draft, emit: Callable[[Event], None]) -> None:
    if draft.unseen:
        emit(Token(draft.index, draft.unseen, len(draft.ids)))
        draft.unseen = ""
