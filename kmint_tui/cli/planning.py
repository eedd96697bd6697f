"""From the words on the command line to a mint request: flags first, then the settings file, then the model's own values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal, TypeVar

from kmint_tui import config, paths
from kmint_tui.cli.output import Output
from kmint_tui.cli.referee import check_target, no_gpu_reason, wanted_task
from kmint_tui.errors import EnvironmentUnfit, UsageError
from kmint_tui.minting.request import MintRequest, Until
from kmint_tui.models import digest, endpoint, registry, store
from kmint_tui.models.fit import assess, readable
from kmint_tui.smith.prompts import build
from kmint_tui.smith.sampling import Sampling

T = TypeVar("T")
_TEMPERATURE, _TOP_P, _MAX_TOKENS = 0.7, 0.97, 1024


@dataclass(frozen=True)
class Wishes:
    """What was asked for; None where nothing was."""

    op: str | None
    reference: str | None
    model: str | None
    drafts: int | None
    seed: int | None
    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    until: Until
    target: str | None
    dialect: Literal["card", "trained"] | None
    repair: int = 0
    tune: bool = False


def plan(wishes: Wishes, *, draw_seed: Callable[[], int], reach: Callable[[str], endpoint.Endpoint] | None = None) -> MintRequest:
    """The request. Raises UsageError, ConfigError, ModelError or EnvironmentUnfit for what cannot be had.

    `reach` connects to a smith named by its address; without it, such a smith is refused.
    """
    settings = config.load(paths.config_file()).config
    target = settings.mint_target if wishes.target is None else wishes.target
    if wishes.tune:
        _check_tunable(target)
    op, task = wanted_task(wishes.op, wishes.reference)
    drafts = _first(wishes.drafts, settings.mint_drafts, 8)
    known = registry.load(paths.user_models_file())
    wanted = wishes.model or settings.mint_model
    elsewhere = _reached(wanted, reach) if wanted and endpoint.is_address(wanted) else None
    if elsewhere is not None:
        choice = store.Choice(elsewhere.url, endpoint.stand_in(elsewhere), None, "asked for by its address")
    else:
        choice = store.resolve(known, wanted) if wanted else store.choose(known, drafts=drafts)
    entry = choice.entry
    sampling = Sampling(
        temperature=_first(wishes.temperature, settings.mint_temperature, entry.temperature if entry else None, _TEMPERATURE),
        top_p=_first(wishes.top_p, settings.mint_top_p, entry.top_p if entry else None, _TOP_P),
    )
    return MintRequest(
        op=op,
        task=task,
        model=choice,
        model_sha256="" if elsewhere is not None else digest.sha256(choice.file.path),
        prompt=build(op, wishes.dialect or (entry.dialect if entry else "card")),
        drafts=drafts,
        seed=draw_seed() if wishes.seed is None else wishes.seed,
        sampling=sampling,
        max_tokens=_first(wishes.max_tokens, settings.mint_max_tokens, entry.max_tokens if entry else None, _MAX_TOKENS),
        until=wishes.until,
        target=check_target(target),
        repair=wishes.repair,
        tune=wishes.tune,
        feedback=entry.feedback if entry else "full",
        endpoint=elsewhere,
    )


def _reached(address: str, reach: Callable[[str], endpoint.Endpoint] | None) -> endpoint.Endpoint:
    if reach is None:
        raise UsageError("a smith elsewhere is only for the command line", fix=f"kmint mint OP --model {address}")
    return reach(address)


def _check_tunable(target: str | None) -> None:
    """Tuning is timing: refuse it before anything is drafted where nothing can be timed."""
    if lonely := no_gpu_reason():
        fix = "leave out --tune, or mint on a machine with a GPU"
        raise EnvironmentUnfit(f"--tune times variants of the best kernel on a GPU, and {lonely}", title="tuning needs a GPU", fix=fix)
    if target is not None:
        raise UsageError("--tune times on the GPU that is here, so it cannot be told of another --target", fix="leave one of them out")


def show_plan(out: Output, request: MintRequest, *, as_json: bool) -> None:
    """What would be done, the memory it would take, and the prompt."""
    here, lonely = request.endpoint is None, no_gpu_reason()
    fit = assess(request.model.file, drafts=request.drafts, max_tokens=request.max_tokens) if here else None
    if as_json:
        content = {
            "op": request.op.name,
            "model": request.model.id,
            "model_sha256": request.model_sha256,
            "model_reason": request.model.reason,
            "drafts": request.drafts,
            "seed": request.seed,
            "sampling": asdict(request.sampling),
            "max_tokens": request.max_tokens,
            "until": request.until,
            "repair": request.repair,
            "tune": request.tune,
            "target": request.target,
            "mode": "interpret" if lonely else "replay",
            "memory": fit.to_json() if fit is not None else None,
            "prompt": asdict(request.prompt),
        }
        out.document("kmint.plan/1", content)
        return
    out.pairs(
        [
            ("op", f"{request.op.name}: {request.op.formula}"),
            ("model", f"{request.model.id} ({_kind(request)}): {request.model.reason}"),
            ("drafts", f"{request.drafts} of at most {request.max_tokens} tokens, seed {request.seed}"),
            *([("repair", f"up to {request.repair} further rounds for rejected drafts")] if request.repair else []),
            *([("tune", "launch constants of the best kernel are swept on the GPU")] if request.tune else []),
            ("sampling", f"temperature {request.sampling.temperature:g}, top-p {request.sampling.top_p:g}"),
            ("memory", fit.text if fit is not None else "none here: the smith is elsewhere, and is sent the prompt"),
            ("referee", f"interpreter, no timing ({lonely})" if lonely else "replay and timing on the GPU"),
        ]
    )
    out.text("")
    out.heading("system")
    out.text(request.prompt.system)
    out.text("")
    out.heading("user")
    out.text(request.prompt.user)


def _kind(request: MintRequest) -> str:
    file = request.model.file
    return f"an endpoint serving {file.name}" if request.endpoint is not None else f"{file.quant}, {readable(file.nbytes)}"


def _first(*values: T | None) -> T:
    return next(value for value in values if value is not None)
