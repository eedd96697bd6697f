"""`kmint mint OP`: draft kernels, judge every draft, rank them, keep all in the history."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
from click.core import ParameterSource

from kmint_tui import paths
from kmint_tui.cli.framework import Amount, RunsCandidates
from kmint_tui.cli.history_ids import complete_session
from kmint_tui.cli.model_ids import complete_model
from kmint_tui.cli.options import (
    OPERATION,
    complete_operation,
    farm_options,
    reference_option,
    session_option,
    shape_options,
)
from kmint_tui.cli.slow_steps import SlowStepNotice
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import Diagnostics
from kmint_tui.cli.termination import Terminated, two_step_interrupt
from kmint_tui.core.exit_codes import ExitCode
from kmint_tui.errors import KmintError, UsageError

if TYPE_CHECKING:
    from kmint_tui.core.farm.opening import FarmAsked
    from kmint_tui.core.session import Session
    from kmint_tui.events import MintEvent
    from kmint_tui.minting.request import MintRequest
    from kmint_tui.minting.result import MintResult
    from kmint_tui.minting.resuming import Resumed
    from kmint_tui.models.registry import Dialect
    from kmint_tui.save.saving import Saved
    from referee.reference.asked import Asked


_WITH_RESUME = (
    *("resumed", "models", "reference", "inputs", "fixed", "folder", "by_session"),
    *("gpus", "ray", "ray_kind", "dry_run", "as_json", "jsonl"),
)


@click.command(cls=RunsCandidates)
@click.argument(
    "op",
    metavar="[OP]",
    required=False,
    type=OPERATION,
    shell_complete=complete_operation,
    help='An operation, by its name or by words such as "rmsnorm residual silu"; `kmint ops` lists them.',
)
@click.option(
    "--drafts", "-n", type=click.IntRange(1, 64), help="How many kernels to draft.  [default: 8]"
)
@click.option(
    "--model",
    "-m",
    "models",
    metavar="ID|PATH|URL",
    multiple=True,
    shell_complete=complete_model,
    help="The smith; by default the best one that is here. Several URLs share the drafts.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    help="Repeat a session: same model, seed and drafts give the same kernels.",
)
@click.option("--temperature", type=Amount(0, 5), help="By default the model's own.")
@click.option("--top-p", type=Amount(0, 1, min_open=True), help="By default the model's own.")
@click.option(
    "--max-tokens",
    type=click.IntRange(16, 32768),
    help="Longest draft.  [default: the model's own]",
)
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
@click.option(
    "--tune",
    is_flag=True,
    help="Race the template's structures too, and sweep block sizes, warps and stages; needs a GPU.",
)
@reference_option("Mint your own PyTorch function instead of an operation of the catalogue.")
@shape_options
@click.option(
    "--target",
    metavar="ARCH",
    help="GPU to compile for, for example sm_90.  [default: the one here]",
)
@click.option(
    "--dialect",
    type=click.Choice(["card", "trained", "graph", "request"]),
    help="Form of the prompt.  [default: the model's own]",
)
@click.option(
    "--template/--no-template",
    default=True,
    help="Let the kernel that kmint writes itself compete.  [default: yes]",
)
@click.option(
    "--save",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Save the best kernel into DIR.",
)
@click.option(
    "--resume",
    "resumed",
    metavar="SESSION",
    shell_complete=complete_session,
    help="Go on with a session that was killed or stopped, with its own options.",
)
@session_option
@farm_options
@click.option(
    "--dry-run", is_flag=True, help="Show the prompt, the plan and the estimate; draft nothing."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.mint/1).")
@click.option(
    "--jsonl", is_flag=True, help="A stream of events (kmint.mint-event/1), one JSON object a line."
)
@click.pass_obj
def mint(
    state: State,
    op: str | None,
    drafts: int | None,
    models: tuple[str, ...],
    seed: int | None,
    temperature: float | None,
    top_p: float | None,
    max_tokens: int | None,
    until: Literal["best", "first"],
    repair: int,
    tune: bool,
    reference: Asked | None,
    shapes: tuple[str, ...],
    dtype: str | None,
    target: str | None,
    dialect: Dialect | None,
    template: bool,
    folder: Path | None,
    resumed: str | None,
    by_session: bool,
    farm: FarmAsked,
    dry_run: bool,
    as_json: bool,
    jsonl: bool,
) -> int:
    """Draft kernels for an operation, referee every draft and rank them.

    \b
      kmint mint softmax
      kmint mint add_rmsnorm_gelu --drafts 16 --until first
      kmint mint layernorm_mish --repair 2 --tune
      kmint mint rmsnorm --shape 32768x1024 --dtype bf16
      kmint mint --reference mine.py:fused_norm --input "x=bf16[B,4096] w=bf16[4096]"
      kmint mint softmax --model http://box:8080/v1
      kmint mint softmax --model http://a:8080 --model http://b:8080 --drafts 64 --gpus all
      kmint mint --resume 12

    The first Ctrl-C stops drafting and keeps the finished drafts, the second gives up the rest as
    well. Exit code 0 means that at least one kernel is correct, 1 that none is.
    """
    from kmint_tui.cli.plan_report import show_plan
    from kmint_tui.core.offline import offline_reason
    from kmint_tui.core.planning import MintOptions, plan
    from kmint_tui.core.referee import unfit
    from kmint_tui.core.resuming import goes_on as session_that_goes_on
    from kmint_tui.models.endpoint import connect

    if as_json and jsonl:
        raise UsageError(
            "--json and --jsonl exclude each other",
            fix="--json for one document at the end, --jsonl for a stream",
        )
    if tune and by_session:
        raise UsageError(
            "--tune and --session exclude each other",
            fix="leave --session out: only this process times the settings",
        )
    options = MintOptions(
        op=op,
        reference=reference,
        model=models[0] if models else None,
        more=models[1:],
        drafts=drafts,
        seed=seed,
        temperature=temperature,
        top_p=top_p,
        max_tokens=max_tokens,
        until=until,
        target=target,
        dialect=dialect,
        repair=repair,
        tune=tune,
        template=template,
        shapes=shapes,
        dtype=dtype,
    )
    goes_on = None
    if resumed is not None:
        _refuse_others(click.get_current_context())
        goes_on = session_that_goes_on(resumed, models=models, reference=reference)
        options = goes_on.options
    with SlowStepNotice(state.err) as notice:
        notice.reading(reference)
        request = plan(
            options,
            draw_seed=lambda: secrets.randbelow(2**32),
            reach=lambda address: connect(address, offline=offline_reason(flag=state.offline)),
            timed_elsewhere=farm.ray is not None,
        )
    if goes_on is not None:
        goes_on.check(request)
        state.err.note(goes_on.words)
    if dry_run:
        show_plan(state.out, request, as_json=as_json or jsonl)
        return ExitCode.DONE
    err = state.err
    result, saved, failure, interrupted = _run(
        state,
        err,
        request,
        goes_on.earlier if goes_on is not None else None,
        jsonl=jsonl,
        folder=folder,
        reference=options.reference,
        by_session=by_session,
        farm=farm,
    )
    if as_json:
        state.out.document("kmint.mint/1", result.to_json())
    elif not jsonl:
        _show(state, err, result, saved, options.reference)
    if failure is not None:
        raise failure
    if interrupted:
        return ExitCode.INTERRUPTED
    if result.best is None and (
        broken := [verdict for verdict in result.verdicts.values() if verdict.verdict == "error"]
    ):
        raise unfit(broken[0])
    return ExitCode.DONE if result.best is not None else ExitCode.NOTHING_PASSED


def _refuse_others(context: click.Context) -> None:
    """Raise UsageError for options that a session that goes on has already."""
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in _WITH_RESUME
        and context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise UsageError(
            f"--resume takes the options of its session, and {', '.join(given)} is given too",
            fix="leave it out, or begin a new session",
        )


def _run(
    state: State,
    err: Diagnostics,
    request: MintRequest,
    earlier: Resumed | None,
    *,
    jsonl: bool,
    folder: Path | None,
    reference: Asked | None,
    by_session: bool,
    farm: FarmAsked,
) -> tuple[MintResult, Saved | None, Exception | None, bool]:
    from kmint_tui.cli.progress import MintProgress
    from kmint_tui.core.engine import smith_of
    from kmint_tui.core.judges import open_judge
    from kmint_tui.core.measuring import need_gpus
    from kmint_tui.core.referee import judge_threads
    from kmint_tui.core.save import save_minted
    from kmint_tui.core.session import Session
    from kmint_tui.events import to_json
    from kmint_tui.history.store import History
    from kmint_tui.smith.engine import own_log

    log, out = own_log(), state.out
    progress = MintProgress(err, debug=state.debug)

    def show(event: MintEvent) -> None:
        progress.show(event)
        if jsonl:
            out.record(to_json(event))
            if out.unread:
                session.stop()

    session = Session(request, show, earlier)
    with (
        History(paths.history_file()) as history,
        open_judge(
            state.demand(),
            state.err.note,
            by_session=by_session,
            threads=judge_threads(),
            asked=farm,
        ) as judge,
        smith_of(request, log) as smith,
    ):
        if request.tune:
            need_gpus("a sweep of --tune", judge.farm)
        if judge.no_gpu:
            err.note(
                f"no GPU to time on ({judge.no_gpu}): kernels are checked by Triton's interpreter"
            )
        with _interrupts(session, err) as interrupts:
            result = session.run(smith=smith, judge=judge, history=history)
        assert result is not None
        if state.debug and request.endpoint is None:
            _show_memory(err, log, request)
        failure, saved = session.failure, None
        if folder is not None and result.best_id is not None and failure is None:
            try:
                saved = save_minted(history, judge.judge, result, folder, reference, tell=err.note)
            except KmintError as error:
                failure = error
    return result, saved, failure, bool(interrupts)


def _show_memory(err: Diagnostics, log: Path, request: MintRequest) -> None:
    """Compare the memory that the smith took, by its log, with the estimate."""
    from kmint_tui.models.usage import note

    taken = note(log, request.model.file, drafts=request.drafts, max_tokens=request.max_tokens)
    if taken:
        err.hint(taken)


def _show(
    state: State, err: Diagnostics, result: MintResult, saved: Saved | None, reference: Asked | None
) -> None:
    """Write the result and proposals for the next step."""
    from kmint_tui.cli.report import show_result
    from kmint_tui.core.save import first_call

    show_result(state.out, result)
    if saved is not None:
        err.note(f"saved {', '.join(str(path) for path in saved.files)}")
        if hint := first_call(saved, reference):
            err.hint(hint)
    elif result.best_id is not None:
        by = f" {shlex.join(reference.words())}" if reference else ""
        err.hint(f"see it:  kmint history show {result.best_id}")
        err.hint(f"save it: kmint save {result.best_id} --to DIR{by}")


@contextmanager
def _interrupts(session: Session, err: Diagnostics) -> Iterator[list[int]]:
    """The first Ctrl-C stops drafting; after the second the user learns where the drafts are."""
    with two_step_interrupt(session.stop) as seen:
        try:
            yield seen
        except (KeyboardInterrupt, Terminated):
            err.hint(f"finished drafts are kept: kmint history show {session.id}")
            raise
