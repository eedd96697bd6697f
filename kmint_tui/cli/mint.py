"""`kmint mint OP`: draft kernels, referee every draft, rank them, keep everything in the history."""

from __future__ import annotations

import secrets
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal

import click

from kmint_tui import paths
from kmint_tui.cli.diagnostics import Diagnostics, ExitCode
from kmint_tui.cli.framework import Amount, Command
from kmint_tui.cli.models import complete_model
from kmint_tui.cli.operations import complete_operation
from kmint_tui.cli.patience import Patience
from kmint_tui.cli.state import State
from kmint_tui.cli.termination import Terminated
from kmint_tui.errors import KmintError, UsageError

if TYPE_CHECKING:
    from kmint_tui.mint import Mint
    from kmint_tui.minting.request import MintRequest
    from kmint_tui.minting.result import MintResult
    from kmint_tui.smith import Smith
    from kmint_tui.smith.remote import RemoteSmith


@click.command(cls=Command)
@click.argument("op", required=False, shell_complete=complete_operation)
@click.option("--drafts", "-n", type=click.IntRange(1, 64), help="How many kernels to draft.  [default: 8]")
@click.option(
    "--model", "-m", metavar="ID|PATH|URL", shell_complete=complete_model, help="The smith; by default the best one that is here."
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Repeat a session: same model, seed and drafts give the same kernels.")
@click.option("--temperature", type=Amount(0, 5), help="By default the model's own.")
@click.option("--top-p", type=Amount(0, 1, min_open=True), help="By default the model's own.")
@click.option("--max-tokens", type=click.IntRange(16, 32768), help="Longest draft.  [default: the model's own]")
@click.option(
    "--until",
    type=click.Choice(["best", "first"]),
    default="best",
    show_default=True,
    help="Judge every draft, or stop at the first that wins (without a GPU to time on: that is correct).",
)
@click.option(
    "--repair",
    metavar="K",
    type=click.IntRange(0, 8),
    default=0,
    help="Send rejected drafts back with the referee's reason, up to K times.  [default: 0]",
)
@click.option("--tune", is_flag=True, help="Sweep block sizes, warps and stages of the best kernel; needs a GPU.")
@click.option(
    "--reference",
    metavar="FILE.py[:FN]",
    help="Judge by your own PyTorch function instead of an operation of the catalogue. The smith is told the first line of its docstring.",
)
@click.option("--target", metavar="ARCH", help="GPU to compile for, for example sm_90.  [default: the one here]")
@click.option("--dialect", type=click.Choice(["card", "trained"]), help="Form of the prompt.  [default: the model's own]")
@click.option("--save", "folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False), help="Save the best kernel into DIR.")
@click.option("--dry-run", is_flag=True, help="Show the prompt, the plan and the estimate; draft nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.mint/1).")
@click.option("--jsonl", is_flag=True, help="A stream of events (kmint.mint-event/1), one JSON object a line.")
@click.pass_obj
def mint(
    state: State,
    op: str | None,
    drafts: int | None,
    model: str | None,
    seed: int | None,
    temperature: float | None,
    top_p: float | None,
    max_tokens: int | None,
    until: Literal["best", "first"],
    repair: int,
    tune: bool,
    reference: str | None,
    target: str | None,
    dialect: Literal["card", "trained"] | None,
    folder: Path | None,
    dry_run: bool,
    as_json: bool,
    jsonl: bool,
) -> int:
    """Draft kernels for an operation, referee every draft and rank them.

    \b
      kmint mint softmax
      kmint mint add_rmsnorm_gelu --drafts 16 --until first
      kmint mint layernorm_mish --repair 2 --tune
      kmint mint --reference mine.py:fused_norm
      kmint mint softmax --model http://box:8080/v1

    The first Ctrl-C stops drafting and keeps what is done, the second gives up the rest as well. Exit code 0 means that at
    least one kernel is correct, 1 that none is.
    """
    from kmint_tui.cli.models_pull import offline_reason
    from kmint_tui.cli.planning import Wishes, plan, show_plan
    from kmint_tui.cli.referee import unfit
    from kmint_tui.models.endpoint import connect

    if as_json and jsonl:
        raise UsageError("--json and --jsonl exclude each other", fix="--json for one document at the end, --jsonl for a stream")
    wishes = Wishes(op, reference, model, drafts, seed, temperature, top_p, max_tokens, until, target, dialect, repair, tune)
    with Patience(state.err) as patience:
        patience.reading(reference)
        request = plan(
            wishes, draw_seed=lambda: secrets.randbelow(2**32), reach=lambda address: connect(address, offline=offline_reason(state))
        )
    if dry_run:
        show_plan(state.out, request, as_json=as_json or jsonl)
        return ExitCode.DONE
    err = state.err
    result, failure, interrupted = _run(state, err, request, jsonl=jsonl, folder=folder, reference=reference)
    if as_json:
        state.out.document("kmint.mint/1", result.to_json())
    elif not jsonl:
        _show(state, err, result, reference)
    if failure is not None:
        raise failure
    if interrupted:
        return ExitCode.INTERRUPTED
    if result.best is None and (broken := [verdict for verdict in result.verdicts.values() if verdict.verdict == "error"]):
        raise unfit(broken[0])
    return ExitCode.DONE if result.best is not None else ExitCode.NOTHING_PASSED


def _run(
    state: State, err: Diagnostics, request: MintRequest, *, jsonl: bool, folder: Path | None, reference: str | None
) -> tuple[MintResult, Exception | None, bool]:
    from kmint_tui.cli.progress import MintProgress
    from kmint_tui.cli.referee import judges, open_referee
    from kmint_tui.cli.save import save_draft
    from kmint_tui.events import Finished, to_json
    from kmint_tui.history.store import History
    from kmint_tui.mint import Mint
    from kmint_tui.models.usage import note
    from kmint_tui.smith.log_file import own_log

    log, out = own_log(), state.out
    progress = MintProgress(err)
    result: MintResult | None = None
    with History(paths.history_file()) as history, open_referee() as referee, _smith(request, log) as smith:
        if referee.no_gpu:
            err.note(f"no GPU to time on ({referee.no_gpu}): kernels are checked by Triton's interpreter")
        session = Mint(request, smith=smith, judge=referee, history=history, times=referee.mode == "replay", judges=judges(), racer=referee)
        with _two_step_interrupt(session, err) as interrupts:
            for event in session.run():
                progress.show(event)
                if jsonl:
                    out.record(to_json(event))
                    if out.unread:
                        session.stop()
                if isinstance(event, Finished):
                    result = event.result
        assert result is not None
        here = request.endpoint is None
        if here and (taken := note(log, request.model.file, drafts=request.drafts, max_tokens=request.max_tokens)):
            err.hint(taken)
        failure = session.failure
        if folder is not None and result.best_id is not None and failure is None:
            try:
                saved = save_draft(history, referee, result.best_id, folder, reference=reference)
                err.note(f"saved {', '.join(str(path) for path in saved.files)}")
            except KmintError as error:
                failure = error
    return result, failure, bool(interrupts)


def _smith(request: MintRequest, log: Path) -> Smith | RemoteSmith:
    """The smith of this request: a process of ours, or an endpoint elsewhere."""
    from kmint_tui.models.endpoint import Answer
    from kmint_tui.smith import Options, Smith
    from kmint_tui.smith.remote import RemoteSmith

    if request.endpoint is not None:
        return RemoteSmith(request.endpoint.url, request.endpoint.model, Answer)
    return Smith(request.model.file.path, Options(log=log, tuning=paths.private_dir(paths.cache_dir()) / "tuning.json"))


def _show(state: State, err: Diagnostics, result: MintResult, reference: str | None) -> None:
    from kmint_tui.cli.report import show_result

    show_result(state.out, result)
    if result.best_id is not None:
        err.hint(f"see it:  kmint history show {result.best_id}")
        by = f" --reference {shlex.quote(reference)}" if reference else ""
        err.hint(f"save it: kmint save {result.best_id} --to DIR{by}")


@contextmanager
def _two_step_interrupt(session: Mint, err: Diagnostics) -> Iterator[list[int]]:
    """The first Ctrl-C stops drafting, the second interrupts everything. Yields the list of interrupts so far."""
    seen: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        if len(seen) > 1:
            raise KeyboardInterrupt
        session.stop()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield seen
    except (KeyboardInterrupt, Terminated):
        err.hint(f"what was done is kept: kmint history show {session.session_id}")
        raise
    finally:
        signal.signal(signal.SIGINT, before)
