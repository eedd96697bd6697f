"""`kmint models import | bundle | verify | rm`: moving model files by hand, without the network."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmint_tui import paths
from kmint_tui.cli.framework import Command
from kmint_tui.cli.model_ids import complete_model, complete_stored
from kmint_tui.cli.state import State
from kmint_tui.errors import ModelError, UsageError

if TYPE_CHECKING:
    from kmint_tui.models.intake import Imported
    from kmint_tui.models.registry import Dialect, ModelEntry, Registry


@click.command("import", cls=Command)
@click.argument(
    "source",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A GGUF file, or a bundle that `kmint models bundle` wrote.",
)
@click.option(
    "--as",
    "as_id",
    metavar="ID|NAME",
    shell_complete=complete_model,
    help="The model it is, or a new name for it.",
)
@click.option(
    "--dialect",
    type=click.Choice(["card", "trained", "graph", "request"]),
    help="For a new name: the form of its prompts.",
)
@click.option(
    "--context",
    type=click.IntRange(256),
    metavar="N",
    help="For a new name: the tokens it may use.  [default: the file's]",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 5),
    metavar="T",
    help="For a new name.  [default: 0.7]",
)
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="P",
    help="For a new name.  [default: 0.95]",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    metavar="N",
    help="For a new name: tokens of a draft.  [default: 1024]",
)
@click.option("--copy", is_flag=True, help="Copy the file into the store instead of linking to it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.import/1).")
@click.pass_obj
def import_model(
    state: State,
    source: Path,
    as_id: str | None,
    dialect: Dialect | None,
    context: int | None,
    temperature: float | None,
    top_p: float | None,
    max_tokens: int | None,
    copy: bool,
    as_json: bool,
) -> None:
    """Bring a GGUF, or a bundle made with `kmint models bundle`, into the store. The file is known
    by header and digest.

    \b
      kmint models import ~/Downloads/smith-Q8_0.gguf
      kmint models import /media/stick/minicpm5-1b.kmint.tar
      kmint models import mine.gguf --as my-smith --dialect request
    """
    from kmint_tui.models import registry
    from kmint_tui.models.intake import import_any
    from kmint_tui.models.own import Settings

    known = registry.load(paths.user_models_file())
    source = paths.expanded(source)
    if not source.is_file():
        what = "is not a file" if source.exists() else "does not exist"
        raise ModelError(
            f"{source} {what}",
            fix="give the path of a GGUF file, or of a bundle that `kmint models bundle` wrote",
        )
    settings = Settings(dialect, context, temperature, top_p, max_tokens)
    if settings.given and as_id is None:
        raise UsageError(
            "the dialect and the sampling are for a new name", fix="give the name with --as NAME"
        )
    done = import_any(known, source, as_id=as_id, copy=copy, settings=settings)
    known = registry.load(paths.user_models_file())
    _show(state, done, as_json=as_json)
    if not as_json and _is_default(known, done.entry):
        state.err.hint("from now on `kmint mint` uses it when no --model is given")


def _is_default(known: Registry, entry: ModelEntry) -> bool:
    from kmint_tui.cli.models import DRAFTS
    from kmint_tui.models.store import choose

    try:
        return choose(known, drafts=DRAFTS).id == entry.id
    except ModelError:
        return False


def _show(state: State, done: Imported, *, as_json: bool) -> None:
    if as_json:
        content = {
            "id": done.entry.id,
            "path": str(done.file.path),
            "sha256": done.sha256,
            "linked": done.linked,
            "reason": done.reason,
        }
        state.out.document("kmint.import/1", content)
        return
    state.out.text(str(done.file.path))
    how = "linked" if done.linked else "copied"
    state.err.hint(
        f"{how} as {done.entry.id} ({done.reason}); use it with `kmint mint OP --model {done.entry.id}`"
    )


@click.command("bundle", cls=Command)
@click.argument(
    "model",
    metavar="ID",
    shell_complete=complete_model,
    help="A model; `kmint models ls` lists them.",
)
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The archive to write; ID.kmint.tar by default.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.bundle/1).")
@click.pass_obj
def bundle_model(state: State, model: str, out: Path | None, as_json: bool) -> None:
    """Write one archive for a machine without a network: a model, its sha256, hash-pinned
    requirements and a bill of materials.
    """
    from kmint_tui.models import cards, registry
    from kmint_tui.models.bundle import write_bundle
    from kmint_tui.models.fit import readable
    from kmint_tui.models.store import resolve

    choice = resolve(registry.load(paths.user_models_file()), model)
    target = out or Path(f"{choice.id}.kmint.tar")
    state.err.note(f"writing {target} ({readable(choice.file.nbytes)})")
    manifest = write_bundle(choice.id, choice.file.path, target, cards.path_of(choice.id))
    if as_json:
        state.out.document("kmint.bundle/1", {**vars(manifest), "path": str(target)})
        return
    state.out.text(str(target))
    state.err.hint("on the other machine: `kmint models import FILE`")
    state.err.hint(
        "packages to carry along: `pip download --require-hashes -r requirements.txt`, with the file in the archive"
    )


@click.command("verify", cls=Command)
@click.argument(
    "model",
    metavar="ID|PATH",
    shell_complete=complete_model,
    help="A model, or a GGUF file; `kmint models ls` lists the models.",
)
@click.option(
    "--smoke",
    is_flag=True,
    help="Also load it, have it write a few tokens, and compare its memory with the estimate.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.models.verify/1).")
@click.pass_obj
def verify_model(state: State, model: str, smoke: bool, as_json: bool) -> None:
    """Check a model's header and template, and read its whole file for its sha256, which
    models.toml may know.

    \b
      kmint models verify minicpm5-1b
      kmint models verify ./smith-Q8_0.gguf --smoke
    """
    from kmint_tui.models import digest, registry
    from kmint_tui.models.check import check_template
    from kmint_tui.models.smoke import smoke as generate
    from kmint_tui.models.store import resolve

    choice = resolve(registry.load(paths.user_models_file()), model)
    path = choice.file.path
    check_template(path)
    pinned = choice.entry.sha256.get(path.name) if choice.entry else None
    actual, recorded = digest.verified(path, pinned), digest.recorded(path)
    verdict = "unknown" if pinned is None else "same"
    smoked = (
        generate(choice.file, paths.private_dir(paths.log_dir()) / f"smoke-{os.getpid()}.log")
        if smoke
        else None
    )
    if as_json:
        content = {
            "id": choice.id,
            "path": str(path),
            "sha256": actual,
            "recorded": recorded,
            "pinned": verdict,
            "smoke": smoked.to_json() if smoked else None,
        }
        state.out.document("kmint.models.verify/1", content)
    else:
        since = "unchanged since it came in" if recorded else "not written down when it came in"
        state.out.pairs(
            [
                ("file", str(path)),
                ("sha256", actual),
                ("store", since),
                ("models.toml", verdict),
                *(smoked.pairs() if smoked else []),
            ]
        )


@click.command("rm", cls=Command)
@click.argument(
    "model",
    metavar="ID|OWNER/NAME",
    shell_complete=complete_stored,
    help="A model, or a checkpoint that `kmint convert` fetched; `kmint models ls` lists both.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.models.rm/1).")
@click.pass_obj
def remove_model(state: State, model: str, yes: bool, as_json: bool) -> None:
    """Take a model out of the store, or a checkpoint that `kmint convert` fetched. A linked file is
    only unlinked.

    \b
      kmint models rm minicpm5-1b
      kmint models rm openbmb/MiniCPM5-1B
    """
    from kmint_tui.models import checkpoints, intake, registry
    from kmint_tui.models.fit import readable

    known = registry.load(paths.user_models_file())
    checkpoint = None if known.find(model) else checkpoints.find(model)
    if checkpoint is None:
        entry = known.get(model)
        intake.stored(entry)
        question = f"remove {model} from {paths.models_dir()}?"
    else:
        question = f"remove {model} ({readable(checkpoint.nbytes)}) from {checkpoint.folder}?"
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(
                f"removing {model} needs a yes, and there is no terminal to ask on",
                fix="give --yes",
            )
        click.confirm(question, abort=True, err=True)
    removed = intake.remove(entry) if checkpoint is None else checkpoints.remove(checkpoint)
    if as_json:
        state.out.document(
            "kmint.models.rm/1", {"id": model, "removed": [str(path) for path in removed]}
        )
        return
    for path in removed:
        state.out.text(str(path))
