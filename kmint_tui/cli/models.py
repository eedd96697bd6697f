"""`kmint models`: the smiths that kmint knows, and their local state. Separate modules hold the
verbs that move files.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import click

from kmint_tui import paths
from kmint_tui.cli.framework import Lazy, LazyGroup
from kmint_tui.cli.model_ids import complete_model
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import Cell, Table
from kmint_tui.errors import ModelError

if TYPE_CHECKING:
    from kmint_tui.models.check import ModelFile
    from kmint_tui.models.fit import Fit
    from kmint_tui.models.registry import ModelEntry

DRAFTS, MAX_TOKENS = 8, 1024
_MOVES = "kmint_tui.cli.models_files"
_NETWORK = "kmint_tui.cli.models_pull"
VERBS = {
    "pull": Lazy(f"{_NETWORK}:pull", "Fetch a smith from the hub."),
    "url": Lazy(f"{_NETWORK}:url", "Print a smith's address, size and sha256."),
    "import": Lazy(f"{_MOVES}:import_model", "Bring a GGUF or a bundle into the store."),
    "prompt": Lazy(
        "kmint_tui.cli.models_prompt:set_prompt", "Take a model's prompt from its card."
    ),
    "bundle": Lazy(f"{_MOVES}:bundle_model", "Write an archive for a machine without a network."),
    "verify": Lazy(f"{_MOVES}:verify_model", "Check a model's header and digest."),
    "rm": Lazy(f"{_MOVES}:remove_model", "Take a model out of the store."),
}


@click.group(cls=LazyGroup, lazy=VERBS, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.models/1).")
@click.pass_context
def models(context: click.Context, as_json: bool) -> None:
    """The smiths kmint knows, and the store they are kept in; alone it lists them.

    \b
      kmint models
      kmint models show minicpm5-1b
    """
    if context.invoked_subcommand is None:
        context.invoke(list_models, as_json=as_json)


@models.command("ls", short_help="List the known models, and which one is used.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.models/1).")
@click.pass_obj
def list_models(state: State, as_json: bool) -> None:
    """List the known models, whether they are here and usable, and which one `kmint mint` would
    use.
    """
    from kmint_tui.models import registry
    from kmint_tui.models.checkpoints import fetched, home
    from kmint_tui.models.fit import assess, readable
    from kmint_tui.models.store import choose

    known = registry.load(paths.user_models_file())
    checkpoints = fetched()
    found = {entry.id: _status(entry) for entry in known.entries}
    fits = {
        entry.id: assess(file, drafts=DRAFTS, max_tokens=entry.max_tokens)
        for entry in known.entries
        if (file := found[entry.id][0])
    }
    try:
        choice = choose(known, drafts=DRAFTS)
        default, reason = choice.id, choice.reason
    except ModelError as error:
        default, reason = None, error.message
    if as_json:
        listed = [
            {**asdict(entry), **_status_json(*found[entry.id], fits.get(entry.id))}
            for entry in known.entries
        ]
        here = [
            {"repo": item.repo, "path": str(item.folder), "bytes": item.nbytes}
            for item in checkpoints
        ]
        state.out.document(
            "kmint.models/1",
            {"models": listed, "default": default, "reason": reason, "checkpoints": here},
        )
        return
    rows = [
        _row(entry, *found[entry.id], fits.get(entry.id), default=entry.id == default)
        for entry in known.entries
    ]
    state.out.table(
        Table(
            ("", "id", "title", "state", "quant", "size", f"with {DRAFTS} drafts", "licence"),
            rows,
            frozenset({"size"}),
        )
    )
    state.err.hint(f"default: {default or 'none'} ({reason})")
    if checkpoints:
        sizes = ", ".join(f"{item.repo} {readable(item.nbytes)}" for item in checkpoints)
        state.err.hint(
            f"fetched for `kmint convert` into {home()}: {sizes}; `kmint models rm OWNER/NAME` takes one out"
        )


@models.command("show", short_help="Show the facts of a model.")
@click.argument(
    "model",
    metavar="ID|PATH",
    shell_complete=complete_model,
    help="A model, or a GGUF file; `kmint models ls` lists the models.",
)
@click.option(
    "--prompt",
    "prompt_only",
    is_flag=True,
    help="Show the prompt that the model's card gives, instead.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.model/1).")
@click.pass_obj
def show(state: State, model: str, prompt_only: bool, as_json: bool) -> None:
    """Show the facts of a model, the origin of each value, and its file if it is here."""
    from kmint_tui.models import digest, registry
    from kmint_tui.models.fit import assess
    from kmint_tui.models.store import resolve

    known = registry.load(paths.user_models_file())
    if prompt_only:
        from kmint_tui.cli.models_prompt import show_prompt

        show_prompt(state, known.get(model), as_json=as_json)
        return
    entry = known.find(model)
    file, trouble = (None, "") if entry is None else _status(entry)
    if entry is None:
        file = resolve(known, model).file
    sha256 = digest.sha256(file.path) if file else None
    fit = (
        assess(file, drafts=DRAFTS, max_tokens=entry.max_tokens if entry else MAX_TOKENS)
        if file
        else None
    )
    origins = dict(known.origins.get(model, {}))
    if as_json:
        content = {
            "entry": asdict(entry) if entry else None,
            "origins": origins,
            "sha256": sha256,
            **_status_json(file, trouble, fit),
        }
        state.out.document("kmint.model/1", content)
        return
    if entry is not None:
        rows = [
            (item.name, str(value), origins.get(item.name, "built in"))
            for item in fields(entry)
            if (value := getattr(entry, item.name))
        ]
        state.out.table(Table(("key", "value", "origin"), rows))
        state.out.text("")
    if file is None or fit is None:
        state.out.text(f"not here: {trouble}")
        return
    facts = [
        ("file", str(file.path)),
        ("sha256", sha256 or ""),
        (f"memory with {DRAFTS} drafts", fit.text),
        *[(name, str(value)) for name, value in asdict(file).items() if name != "path"],
    ]
    state.out.pairs(facts)


def _status(entry: ModelEntry) -> tuple[ModelFile | None, str]:
    from kmint_tui.models.check import check
    from kmint_tui.models.store import installed, way_to_get

    path = installed(entry)
    if path is None:
        return None, way_to_get(entry)
    try:
        return check(path), ""
    except ModelError as error:
        return None, error.message


def _status_json(file: ModelFile | None, trouble: str, fit: Fit | None) -> dict[str, Any]:
    memory = fit.to_json() if fit else None
    return {
        "file": {**asdict(file), "path": str(file.path)} if file else None,
        "trouble": trouble or None,
        "memory": memory,
    }


def _row(
    entry: ModelEntry, file: ModelFile | None, trouble: str, fit: Fit | None, *, default: bool
) -> tuple[Cell | str, ...]:
    from kmint_tui.models.fit import readable
    from kmint_tui.models.store import installed

    mark = "*" if default else ""
    if file is not None and fit is not None:
        verdict = Cell(fit.verdict, "green" if fit.verdict == "fits" else "yellow")
        return (
            mark,
            entry.id,
            entry.title,
            Cell("here", "green"),
            file.quant,
            readable(file.nbytes),
            verdict,
            entry.licence,
        )
    state = Cell("refused", "red") if installed(entry) else Cell("not here", "dim")
    return mark, entry.id, entry.title, state, "", "", "", entry.licence
