"""Makes N drafts from one prompt, or from prompts with a common beginning, in one context.

The common part is read once and stays for the next run. Sequence 0 holds the shared prompt and
nothing else. Runs (`run.py`) copy it into their slots at no cost, because the cells are shared.

Reproducible on the CPU: the same file, wheel, kind of machine, prompt, number of drafts, settings
and seed give the same tokens. Thread count and earlier runs change nothing. Two rules ensure it:
- a prompt is always prefilled in the same pieces, and only whole pieces are kept for the next
  prompt;
- the clock decides nothing about a draft, except where a cancel ends it.

Draft i of eight is not draft i of four: the widths of the batches differ, and with them the
rounding. On a GPU the rounding also depends on the device, its driver, and the measured number of
contexts (`context_pool.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from kmint_tui.smith.events import Event, RunDone
from kmint_tui.smith.native import ABORTED, NO_SLOT, Context, Logits, Model, NativeError
from kmint_tui.smith.run import DraftJob, Run, Tools
from kmint_tui.smith.sampler import Picker
from kmint_tui.smith.threads import REFERENCE_WIDTH, ThreadWatch

MAX_DRAFTS = 128
"""Largest number of drafts of one run."""

PIECE_CPU, PIECE_GPU = 128, 512
"""Tokens of a prompt that one decode reads."""

_SPARE = 8
"""Spare tokens of cache a draft."""

_SLACK = 512
"""Tokens that the present context may lack for a repair round."""


class Decoder:
    """Owns one context of a model and runs jobs in it, one at a time."""

    def __init__(
        self,
        model: Model,
        picker: Picker,
        watch: ThreadWatch,
        *,
        on_gpu: bool,
        on_device: bool,
        max_cells: int | None = None,
    ) -> None:
        """`on_device` puts chains on the accelerator; `max_cells` bounds the cache in tokens."""
        self._model, self._picker, self._watch = model, picker, watch
        self._on_gpu, self._on_device, self._max_cells = on_gpu, on_device, max_cells
        self._piece = PIECE_GPU if on_gpu else PIECE_CPU
        self.context: Context | None = None
        self._resident: tuple[int, ...] = ()
        self._row: Logits = np.empty((0, 0), np.float32)

    def abort(self) -> None:
        """Stop a running decode on the CPU; callable from another thread."""
        context = self.context
        if context is not None:
            context.abort(True)

    def close(self) -> None:
        """Free the context."""
        context, self.context = self.context, None
        if context is not None:
            context.close()

    def run(
        self,
        job: DraftJob,
        emit: Callable[[Sequence[Event]], None],
        cancelled: Callable[[], bool],
        *,
        started: float | None = None,
        prompt_read: Callable[[], None] = lambda: None,
    ) -> RunDone:
        """Draft. Events go to `emit`; the last of them is also returned.

        Raises NativeError; reported drafts stay valid. Times count from `started`, or from this
        call. `prompt_read` is called before the first draft begins.
        """
        started = time.perf_counter() if started is None else started
        context = self.prepare(job)
        reused = self._prefill(context, job.prompt, cancelled)
        prefilled = time.perf_counter() - started
        prompt_read()
        watch = None if self._on_gpu else self._watch
        tools = Tools(
            model=self._model,
            context=context,
            picker=self._picker,
            watch=watch,
            on_gpu=self._on_gpu,
            on_device=self._on_device,
            emit=emit,
            cancelled=cancelled,
            started=started,
        )
        run = Run(job, tools, self._row, self._slots(job))
        try:
            if reused is not None:
                run.go()
            rest = run.give_up()
            done = RunDone(
                drafts=len(job.own),
                tokens=sum(len(draft.ids) for draft in run.drafts),
                seconds=time.perf_counter() - started,
                prompt_tokens=job.longest,
                reused_tokens=reused or 0,
                prefill_seconds=prefilled,
                first_token_seconds=run.first_token,
                steps=len(run.times.steps),
                step_seconds=run.times.median,
                sampling_share=run.times.sampling_share,
                host_seconds=run.times.host,
                cells=context.cells,
                threads=self._watch.threads,
                cancelled=cancelled(),
                choices=tuple(run.choices),
            )
            # One call, and before any clean-up: a caller that cancelled is waiting.
            emit([*rest, done])
        finally:
            run.close()
            if run.aborted and self._model.recurrent:
                self._resident = ()
        return done

    def _check(self, job: DraftJob) -> None:
        if not 1 <= job.drafts <= MAX_DRAFTS:
            raise NativeError(
                "request", f"{job.drafts} drafts requested: 1 to {MAX_DRAFTS} can be made at once"
            )
        if job.max_tokens < 1:
            raise NativeError("request", "a draft needs room for at least one token")
        if not job.prompt:
            raise NativeError("request", "the prompt is empty")
        room = self._model.trained_context - job.longest
        if room < job.max_tokens:
            size = f"{job.longest} prompt tokens and {job.max_tokens} more"
            raise NativeError(
                "request", f"{size} do not fit the model's context of {self._model.trained_context}"
            )

    def _slots(self, job: DraftJob) -> int:
        return len(job.own) if self._on_gpu else min(len(job.own), REFERENCE_WIDTH)

    def cells(self, job: DraftJob) -> int:
        """Tokens of cache that let each of the job's drafts reach its largest length."""
        each = job.longest - len(job.prompt) + job.max_tokens + _SPARE
        return -(-(len(job.prompt) + self._slots(job) * each) // 256) * 256

    def prepare(self, job: DraftJob) -> Context:
        """A context with room for the job: the present one if it is large enough, else a new one.

        A new context reads the prompt again. For prompts that continue the resident one, the
        present context therefore stays when only drafts of full length would overfill it. If it
        fills up, the longest draft ends. Raises NativeError: "request" for an impossible job,
        "memory" when no context fits.
        """
        self._check(job)
        slots, cells = self._slots(job), self.cells(job)
        if self._max_cells is not None:
            cells = min(cells, self._max_cells)
        sequences = slots + 1
        least = cells - slots * (job.longest - len(job.prompt)) - _SLACK if job.tails else cells
        context = self.context
        if context is not None and (context.cells < least or context.sequences < sequences):
            cells, sequences = max(cells, context.cells), max(sequences, context.sequences)
            self.close()
            context = None
        if context is None:
            batch = max(self._piece, MAX_DRAFTS)
            threads = self._watch.threads
            context = Context(
                self._model,
                cells=cells,
                sequences=sequences,
                batch=batch,
                threads=threads,
                on_gpu=self._on_gpu,
            )
            self.context, self._resident = context, ()
        context.abort(False)
        context.set_threads(self._watch.threads)
        return context

    def _prefill(
        self, context: Context, prompt: tuple[int, ...], cancelled: Callable[[], bool]
    ) -> int | None:
        """Read the prompt into sequence 0 and its last logits into `_row`.

        Returns the number of reused tokens, None when cancelled.
        """
        if prompt == self._resident:
            return len(prompt)
        if len(prompt) > context.cells:
            raise NativeError(
                "request",
                f"the prompt's {len(prompt)} tokens do not fit a context of {context.cells}",
            )
        keep = 0 if self._model.recurrent else reusable(self._resident, prompt, self._piece)
        self._resident = ()
        if keep == 0 or not context.remove(0, keep):
            context.clear()
            keep = 0
        for start in range(keep, len(prompt), self._piece):
            end = min(start + self._piece, len(prompt))
            count, last = end - start, end == len(prompt)
            context.batch.fill(
                prompt[start:end], range(start, end), [0] * count, [False] * (count - 1) + [last]
            )
            code = ABORTED if cancelled() else context.decode()
            if code == NO_SLOT:
                context.clear()
                raise NativeError(
                    "request",
                    f"the prompt's {len(prompt)} tokens do not fit a context of {context.cells}",
                )
            if code == ABORTED:
                context.clear()
                return None
        self._row = context.logits(1).copy()
        self._resident = prompt
        return keep


def reusable(resident: Sequence[int], prompt: Sequence[int], size: int) -> int:
    """Number of leading tokens of `prompt` to keep from `resident`: equal whole pieces of `size`.

    At least one token of the prompt stays to be read.
    """
    limit = min(len(resident), len(prompt) - 1)
    common = next((index for index in range(limit) if resident[index] != prompt[index]), limit)
    return common // size * size
