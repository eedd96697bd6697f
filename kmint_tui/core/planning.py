"""From the options of a session to its request: an option goes before the settings file, and that
before the model's own values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kmint_tui import config, paths
from kmint_tui.core.referee import check_target, no_gpu_reason
from kmint_tui.core.task import wanted_task
from kmint_tui.errors import EnvironmentUnfit, ModelError, UsageError
from kmint_tui.minting.reasons import counted
from kmint_tui.minting.request import OWN_WORDING, MintRequest, Until
from kmint_tui.models import cards, digest, endpoint, registry, store
from kmint_tui.models.registry import Dialect
from kmint_tui.smith.prompts import Prompt, build, function_prompt, graph_prompt
from kmint_tui.smith.sampling import Sampling
from kmint_tui.smith.taught import taught
from referee.reference.asked import Asked

if TYPE_CHECKING:
    from kmint_tui.graph.program import Program
    from kmint_tui.smith.card import CardPrompt
    from referee.ops import Op
    from referee.problem import TaskName

T = TypeVar("T")
_TEMPERATURE, _TOP_P, _MAX_TOKENS = 0.7, 0.97, 1024


@dataclass(frozen=True, kw_only=True)
class MintOptions:
    """The options of a minting session; None leaves one to the settings, else to the model.

    Exactly one of `op`, an operation of the catalogue, and `reference`, the user's own function, is
    set. `more` holds the addresses of further smiths. `max_tokens` counts the tokens of one draft, `repair` the further rounds.
    """

    op: str | None = None
    reference: Asked | None = None
    model: str | None = None
    more: tuple[str, ...] = ()
    drafts: int | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    until: Until = "best"
    target: str | None = None
    dialect: Dialect | None = None
    repair: int = 0
    tune: bool = False
    template: bool = True
    shapes: tuple[str, ...] = ()
    dtype: str | None = None


def plan(
    options: MintOptions,
    *,
    draw_seed: Callable[[], int],
    reach: Callable[[str], endpoint.Endpoint] | None = None,
    timed_elsewhere: bool = False,
) -> MintRequest:
    """The request of a session. `draw_seed` gives the seed where the options have none.

    `reach` connects to a smith at an address; without it, an address is refused. With
    `timed_elsewhere` a sweep needs no GPU here. Raises UsageError,
    ConfigError, ModelError or EnvironmentUnfit.
    """
    settings = config.load(paths.config_file()).config
    target = settings.mint_target if options.target is None else options.target
    if options.tune:
        check_tunable(target, timed_elsewhere=timed_elsewhere)
    op, task = wanted_task(options.op, options.reference, options.shapes, options.dtype)
    drafts = _first(options.drafts, settings.mint_drafts, 8)
    known = registry.load(paths.user_models_file())
    wanted = options.model or settings.mint_model
    addresses = [wanted, *options.more] if wanted and options.more else []
    if local := [one for one in addresses if not endpoint.is_address(one)]:
        raise UsageError(
            f"several smiths draft by their addresses, and {local[0]} is none",
            fix="give one --model, or several of the form http://HOST:PORT",
        )
    elsewhere = _reached(wanted, reach) if wanted and endpoint.is_address(wanted) else None
    if elsewhere is not None:
        choice = store.Choice(
            elsewhere.url, endpoint.stand_in(elsewhere), None, "named by its address"
        )
    else:
        choice = store.resolve(known, wanted) if wanted else store.choose(known, drafts=drafts)
    entry = choice.entry
    sampling = Sampling(
        temperature=_first(
            options.temperature,
            settings.mint_temperature,
            entry.temperature if entry else None,
            _TEMPERATURE,
        ),
        top_p=_first(options.top_p, settings.mint_top_p, entry.top_p if entry else None, _TOP_P),
    )
    dialect = options.dialect or (entry.dialect if entry else "card")
    program = _program(op, task, dialect)
    card = _card(choice, dialect)
    return MintRequest(
        op=op,
        task=task,
        model=choice,
        model_sha256="" if elsewhere is not None else _checked_digest(choice),
        prompt=_prompt(op, task, dialect, program, card),
        drafts=drafts,
        seed=draw_seed() if options.seed is None else options.seed,
        sampling=sampling,
        max_tokens=_first(
            options.max_tokens,
            settings.mint_max_tokens,
            entry.max_tokens if entry else None,
            _MAX_TOKENS,
        ),
        until=options.until,
        target=check_target(target),
        repair=options.repair,
        tune=options.tune,
        feedback=entry.feedback if entry else "full",
        endpoint=elsewhere,
        more=tuple(_reached(one, reach) for one in options.more),
        dialect=dialect,
        program=program,
        template=options.template,
        wording=f"the words of the card with sha256 {card.sha256}" if card else OWN_WORDING,
    )


def _checked_digest(choice: store.Choice) -> str:
    """The SHA-256 of the model file, compared with the known ones.

    An unchanged file is not read again.
    """
    path = choice.file.path
    try:
        return digest.verified(path, choice.entry.sha256.get(path.name) if choice.entry else None)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error


def _program(op: Op, task: str | TaskName, dialect: Dialect) -> Program | None:
    """The function as a graph, None where it has none.

    Raises UsageError where it has none and the smith reads nothing else.
    """
    from kmint_tui.graph.operations import program_of
    from kmint_tui.graph.program import OutOfScope

    try:
        return program_of(op, task)
    except OutOfScope as error:
        if dialect != "graph":
            return None
        reason = f"this smith reads graphs, and {op.name} has none: {error}"
        fix = "name a larger smith with --model, or change that part of the function"
        raise UsageError(reason, title="not in this smith's scope", fix=fix) from error


def _card(choice: store.Choice, dialect: Dialect) -> CardPrompt | None:
    """The prompt of the model's own card; None for another dialect or without a stored card."""
    if choice.entry is None or dialect not in ("card", "trained"):
        return None
    found = cards.stored_card(choice.entry.id)
    return None if found is None else found.prompt


def _prompt(
    op: Op, task: str | TaskName, dialect: Dialect, program: Program | None, card: CardPrompt | None
) -> Prompt:
    if dialect == "graph":
        assert program is not None
        return graph_prompt(taught(program.stages[program.main]).stage)
    from referee.problem import TaskName

    function = TaskName.of(task) if isinstance(task, str) else task
    return (
        function_prompt(function, dialect, program, card=card)
        if function.asked
        else build(op, dialect, card=card)
    )


def _reached(address: str, reach: Callable[[str], endpoint.Endpoint] | None) -> endpoint.Endpoint:
    if reach is None:
        raise UsageError(
            "only the command line uses a smith on another machine",
            fix=f"kmint mint OP --model {address}",
        )
    return reach(address)


def check_tunable(
    target: str | None,
    *,
    timed_elsewhere: bool = False,
    asked: str = "--tune",
    fix: str = "leave out --tune, or mint on a machine with a GPU",
) -> None:
    """Raise an error where nothing can be timed, before anything is drafted.

    Raises EnvironmentUnfit without a GPU, and UsageError with another target.
    """
    if not timed_elsewhere and (lonely := no_gpu_reason()):
        raise EnvironmentUnfit(
            f"{asked} times variants of the best kernel on a GPU, and {lonely}",
            title="tuning needs a GPU",
            fix=fix,
        )
    if target is not None:
        raise UsageError(
            "--tune times on a GPU at hand, so it does not go with another --target",
            fix="leave one of them out",
        )


def described_program(request: MintRequest) -> str:
    """The graph of the function in words, or that it has none."""
    if request.program is None:
        return (
            "none: the function does more than kmint's graphs can say; the smith reads its source"
        )
    return described_graph(request.op, request.program)


def described_graph(op: Op, program: Program) -> str:
    """A graph in words: its steps, its kernels, and an operation with the same steps."""
    from kmint_tui.graph.operations import same_operation

    stages = (
        "one kernel"
        if len(program.stages) == 1
        else f"{len(program.stages)} kernels that run one after the other"
    )
    lines = sum(len(stage.lines) for stage in program.stages)
    known = same_operation(program) if op.origin == "user" else None
    same = f", the same steps as `{known}` of the catalogue" if known else ""
    notes = "".join(f"; {note}" for note in program.notes)
    return f"{counted(lines, 'step')} in {stages}{same}{notes}"


def _first(*values: T | None) -> T:
    return next(value for value in values if value is not None)
