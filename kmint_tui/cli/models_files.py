"""`kmint models import | bundle | verify | rm`: moving model files by hand, without the network."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmint_tui import paths
from kmint_tui.cli.framework import Command
from kmint_tui.cli.models import complete_model, complete_stored
from kmint_tui.cli.state import State
from kmint_tui.errors import ModelError, UsageError

if TYPE_CHECKING:
    from kmint_tui.models.intake import Imported

CHANGED = "if that was not meant, take it out with `kmint models rm` and pull or import it again"


@click.command("import", cls=Command)
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--as", "as_id", metavar="ID", shell_complete=complete_model, help="The model it is, when its header does not tell.")
@click.option("--copy", is_flag=True, help="Copy the file into the store instead of linking to it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.import/1).")
@click.pass_obj
def import_model(state: State, source: Path, as_id: str | None, copy: bool, as_json: bool) -> None:
    """Bring a GGUF, or a bundle made with `kmint models bundle`, into the store. The file is known by header and digest.

    \b
      kmint models import ~/Downloads/smith-Q8_0.gguf
      kmint models import /media/stick/minicpm5-1b.kmint.tar
    """
    from kmint_tui.models import bundle, registry
    from kmint_tui.models.intake import import_file

    known = registry.load(paths.user_models_file())
    source = source.expanduser()
    if not source.is_file():
        what = "is not a file" if source.exists() else "does not exist"
        raise ModelError(f"{source} {what}", fix="give the path of a GGUF file, or of a bundle that `kmint models bundle` wrote")
    if bundle.is_bundle(source):
        folder = paths.private_dir(paths.models_dir())
        with tempfile.TemporaryDirectory(dir=folder, prefix=".unpack-") as scratch:
            manifest, model = bundle.unpack(source, Path(scratch))
            done = import_file(known, model, as_id=as_id or manifest.model_id, copy=True)
    else:
        done = import_file(known, source, as_id=as_id, copy=copy)
    _show(state, done, as_json=as_json)


def _show(state: State, done: Imported, *, as_json: bool) -> None:
    if as_json:
        content = {"id": done.entry.id, "path": str(done.file.path), "sha256": done.sha256, "linked": done.linked, "reason": done.reason}
        state.out.document("kmint.import/1", content)
        return
    state.out.text(str(done.file.path))
    how = "linked" if done.linked else "copied"
    state.err.hint(f"{how} as {done.entry.id} ({done.reason}); use it with `kmint mint OP --model {done.entry.id}`")


@click.command("bundle", cls=Command)
@click.argument("model", metavar="ID", shell_complete=complete_model)
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="The archive to write; ID.kmint.tar by default.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.bundle/1).")
@click.pass_obj
def bundle_model(state: State, model: str, out: Path | None, as_json: bool) -> None:
    """Write one archive with a model, its sha256 and the list of packages, for a machine without a network."""
    from kmint_tui.models import registry
    from kmint_tui.models.bundle import write_bundle
    from kmint_tui.models.fit import readable
    from kmint_tui.models.store import resolve

    choice = resolve(registry.load(paths.user_models_file()), model)
    target = out or Path(f"{choice.id}.kmint.tar")
    state.err.note(f"writing {target} ({readable(choice.file.nbytes)})")
    manifest = write_bundle(choice.id, choice.file.path, target)
    if as_json:
        state.out.document("kmint.bundle/1", {**vars(manifest), "path": str(target)})
        return
    state.out.text(str(target))
    state.err.hint("on the other machine: `kmint models import FILE`; requirements.txt in it lists the wheels to carry along")


@click.command("verify", cls=Command)
@click.argument("model", metavar="ID|PATH", shell_complete=complete_model)
@click.option("--smoke", is_flag=True, help="Also load it, have it write a few tokens, and compare its memory with the estimate.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.models.verify/1).")
@click.pass_obj
def verify_model(state: State, model: str, smoke: bool, as_json: bool) -> None:
    """Check a model's header and template, and read its whole file for its sha256, which models.toml may know.

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
    actual = digest.sha256(path)
    pinned = dict(choice.entry.sha256).get(path.name) if choice.entry else None
    verdict = "unknown" if pinned is None else "same" if pinned == actual else "different"
    recorded = digest.recorded(path)
    if recorded not in (None, actual):
        raise ModelError(f"{path} has changed since it came into the store: its sha256 is {actual}, it was {recorded}", fix=CHANGED)
    if verdict == "different":
        raise ModelError(f"{path} is not the file that models.toml names: its sha256 is {actual}", fix="pull or import it again")
    smoked = generate(choice.file, paths.private_dir(paths.log_dir()) / f"smoke-{os.getpid()}.log") if smoke else None
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
            [("file", str(path)), ("sha256", actual), ("store", since), ("models.toml", verdict), *(smoked.pairs() if smoked else [])]
        )


@click.command("rm", cls=Command)
@click.argument("model", metavar="ID|OWNER/NAME", shell_complete=complete_stored)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.models.rm/1).")
@click.pass_obj
def remove_model(state: State, model: str, yes: bool, as_json: bool) -> None:
    """Take a model out of the store, or a checkpoint that `kmint convert` fetched. A linked file is only unlinked.

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
            raise UsageError(f"removing {model} needs a yes, and there is no terminal to ask on", fix="give --yes")
        click.confirm(question, abort=True, err=True)
    removed = intake.remove(entry) if checkpoint is None else checkpoints.remove(checkpoint)
    if as_json:
        state.out.document("kmint.models.rm/1", {"id": model, "removed": [str(path) for path in removed]})
        return
    for path in removed:
        state.out.text(str(path))
